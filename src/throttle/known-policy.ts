import { reasonOf } from "../core/describe.ts";
import { CostTooLargeError, InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { CountSlots } from "../core/events/observer.ts";
import {
  formatPolicy,
  readPolicyElsewhere,
  readPolicyText,
  UNKNOWN_POLICY,
  type Policy,
} from "../core/policy/policy.ts";
import type { KnownTerms, Store } from "../core/store.ts";
import type { TryCall } from "./call-options.ts";

/** A policy in force that this process did not know. */
export interface PolicyUpdate {
  readonly text: string;
  readonly version: number;
  /** True if an operator or the rules replaced the policy of the code. */
  readonly isOverride: boolean;
}

/**
 * The newest policy of a bucket that this process knows. The newest declaration wins for all replicas. Each draw carries
 * the known policy, so a Redis that lost its data gets the policy back.
 */
export interface KnownPolicy {
  readonly policy: Policy;
  /** The policy of the code. */
  readonly declared: Policy;
  readonly terms: KnownTerms;
  /** Records that the known policy is in force, in this version. */
  confirm(version: number): void;
  /** Parses the text of a policy that another process may have put in force. */
  read(text: string): Policy;
  /** Records that another policy is in force. */
  learn(update: PolicyUpdate): void;
}

/** The policy that the code declares, and the rules' policy, which the process draws with until a reply names another. */
export interface FirstPolicy {
  readonly policy: Policy;
  readonly startsWith?: Policy | undefined;
}

export function createKnownPolicy(
  bucket: string,
  { policy: declared, startsWith = declared }: FirstPolicy,
  logger: Logger,
): KnownPolicy {
  let policy = startsWith;
  let terms = termsOf(policy, 0);
  let hasWarned = false;

  function read(text: string): Policy {
    const known = [policy, declared].find((each) => each.text === text);
    if (known !== undefined) return known;
    const where = `bucket("${bucket}")`;
    const isUnknown = declared === UNKNOWN_POLICY;
    return isUnknown ? readPolicyElsewhere(where, text) : readPolicyText(where, text, declared);
  }

  function learn({ text, version, isOverride }: PolicyUpdate): void {
    policy = read(text);
    terms = termsOf(policy, version);
    // An override differs from the code on purpose.
    if (hasWarned || isOverride || text === declared.text) return;
    hasWarned = true;
    logger.warn(
      { bucket, declared: formatPolicy(declared), inForce: formatPolicy(policy) },
      `Bucket "${bucket}" was declared here with ${formatPolicy(declared)}, and later elsewhere with ` +
        `${formatPolicy(policy)}. The newest policy holds for all; give every process the same one.`,
    );
  }

  return {
    get policy() {
      return policy;
    },
    declared,
    get terms() {
      return terms;
    },
    confirm(version) {
      if (version !== terms.version) terms = termsOf(policy, version);
    },
    read,
    learn,
  };
}

export function termsOf({ limits, shadows, shares, text }: Policy, version: number): KnownTerms {
  return { limits, shares, text, version, shadows: shadows.length === 0 ? undefined : shadows };
}

/** What all parts of one bucket share. */
export interface BucketContext {
  readonly store: Store;
  readonly bucket: string;
  /** The name of this process in the store. */
  readonly asker: string;
  readonly known: KnownPolicy;
  readonly logger: Logger;
  /** Counts granted, late, returned and refused slots for metrics. */
  readonly count: CountSlots;
}

/**
 * Reads the policy in force, and resolves to true if it is not the known one. A process learns policies from replies to
 * its draws, but a call that the known policy rejects never draws. Rejects only while no policy is known.
 */
export type RefreshPolicy = () => Promise<boolean>;

export function createPolicyRefresh(
  { store, bucket, known, logger }: BucketContext,
  learn: (update: PolicyUpdate) => void,
  find: FindPolicy = async () => undefined,
): RefreshPolicy {
  let refreshing: Promise<boolean> | undefined;

  async function learnFirst(): Promise<true> {
    const text = await find(bucket).finally(() => (refreshing = undefined));
    if (text === undefined) throw unknownPolicy(bucket);
    // With version 1, any policy in force is newer.
    learn({ text, version: 1, isOverride: true });
    return true;
  }

  async function refresh(): Promise<boolean> {
    try {
      const { terms } = known;
      const request = { bucket, terms, scopes: [] };
      const { text, version, source } = await store.peek(request);
      const isOverride = source !== "code";
      // A policy that this process declared and has not drawn with yet is newer than those of other processes.
      const isNewer = isOverride || (terms.version > 0 && version > terms.version);
      if (text === known.terms.text || !isNewer) return false;
      learn({ text, version, isOverride });
      return true;
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ bucket, reason }, "Could not look up the policy in force; kept the known one.");
      return false;
    } finally {
      refreshing = undefined;
    }
  }

  return () => {
    refreshing ??= known.policy === UNKNOWN_POLICY ? learnFirst() : refresh();
    return refreshing;
  };
}

/** Finds the text of the policy that the rules, or the code of other processes, give a bucket. */
export type FindPolicy = (bucket: string) => Promise<string | undefined>;

export function unknownPolicy(bucket: string): InvalidOptionError {
  const where = `bucket("${bucket}")`;
  const remedy =
    "no rules and no code of another process say its limits; give a rate here, or name it in the rules";
  return new InvalidOptionError({ where, option: "rate", value: undefined, remedy });
}

/** True if the policy is why a call was rejected, so that another policy may allow it. */
export function isByPolicy(refusal: unknown): refusal is CostTooLargeError | InvalidOptionError {
  return refusal instanceof CostTooLargeError || refusal instanceof InvalidOptionError;
}

/** Amounts by unit, and the option that holds them, such as `cost.tokens` of `draw()`. */
export interface AmountsByUnit {
  readonly where: string;
  /** The option's name before that of the unit: `"cost."`. */
  readonly path: string;
  readonly byUnit: Readonly<Record<string, unknown>>;
  /** True if the call has a key. */
  readonly isKeyed: boolean;
}

/**
 * Checks that each unit is counted by a limit of the policy in force or of the declared policy. Any other unit is a typing
 * error. A unit that only the declared policy counts costs nothing: a live change that drops a unit must not fail all
 * waiting calls.
 *
 * @throws {@link InvalidOptionError} when no limit counts a unit.
 */
export function assertCounted(
  bucket: string,
  { policy: inForce, declared }: Pick<KnownPolicy, "policy" | "declared">,
  { where, path, byUnit, isKeyed }: AmountsByUnit,
): void {
  const policies = [inForce, declared];
  for (const unit of Object.keys(byUnit)) {
    if (unit === "calls" || policies.some((policy) => counts(policy, unit, isKeyed))) continue;
    const limits = policies.flatMap((policy) => [
      ...policy.limits,
      ...(policy.perKey?.all ?? []),
      ...policy.shadows,
    ]);
    const units = [...new Set(limits.map((limit) => limit.unit))].join(", ");
    const remedy = `no limit of bucket "${bucket}" counts it; the units are ${units}`;
    throw new InvalidOptionError({ where, option: `${path}${unit}`, value: byUnit[unit], remedy });
  }
}

export function assertCostUnits(
  bucket: string,
  known: KnownPolicy,
  where: string,
  { key, cost }: TryCall,
): void {
  if (typeof cost !== "object") return;
  assertCounted(bucket, known, { where, path: "cost.", byUnit: cost, isKeyed: key !== undefined });
}

/** True if the policy may count a unit. Limits that a function returns for each key may have any unit. */
function counts({ limits, shadows, perKey }: Policy, unit: string, isKeyed: boolean): boolean {
  if ([...limits, ...shadows].some((limit) => limit.unit === unit)) return true;
  if (perKey === undefined) return false;
  return perKey.all === undefined ? isKeyed : perKey.all.some((limit) => limit.unit === unit);
}
