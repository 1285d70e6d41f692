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

/** A policy that is in force and that this process did not know. */
export interface PolicyUpdate {
  readonly text: string;
  readonly version: number;
  /** Whether it was put over that of the code, by hand or by rules. */
  readonly isOverride: boolean;
}

/**
 * The newest policy of a bucket that this process knows. The newest declaration
 * wins for all replicas: each draw carries the policy that its process knows, so
 * that a Redis that lost everything gets it again.
 */
export interface KnownPolicy {
  readonly policy: Policy;
  /** The policy of the code. */
  readonly declared: Policy;
  readonly terms: KnownTerms;
  /** A reply says that the known policy is in force, in this version. */
  confirm(version: number): void;
  /** The policy of a text that another process may have put in force. */
  read(text: string): Policy;
  /** A reply says that another policy is in force. */
  learn(update: PolicyUpdate): void;
}

/** The policy that the code declares, and the one that is to be drawn with until another is heard of: that of the rules. */
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
    // A policy that was put over that of the code differs on purpose.
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

/** What all the objects of one bucket work with. */
export interface BucketContext {
  readonly store: Store;
  readonly bucket: string;
  /** This process, as the store knows it. */
  readonly asker: string;
  readonly known: KnownPolicy;
  readonly logger: Logger;
  /** Counts what becomes of slots, for whoever observes the bucket. */
  readonly count: CountSlots;
}

/**
 * Looks up the policy in force, and resolves to whether it is another than the known one. A process learns policies by
 * its draws, but a call that the known policy refuses never comes to a draw. Rejects only where no policy is known yet.
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
    // Whatever is in force is newer.
    learn({ text, version: 1, isOverride: true });
    return true;
  }

  async function refresh(): Promise<boolean> {
    try {
      const { terms } = known;
      const request = { bucket, terms, scopes: [] };
      const { text, version, source } = await store.peek(request);
      const isOverride = source !== "code";
      // A policy that was declared here and never drawn with is newer than those of other processes.
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

/** The text of the policy that rules, or the code of other processes, give a bucket; undefined if none does. */
export type FindPolicy = (bucket: string) => Promise<string | undefined>;

export function unknownPolicy(bucket: string): InvalidOptionError {
  const where = `bucket("${bucket}")`;
  const remedy =
    "no rules and no code of another process say its limits; give a rate here, or name it in the rules";
  return new InvalidOptionError({ where, option: "rate", value: undefined, remedy });
}

/** Whether a call was refused because of the policy: another policy may allow it. */
export function isByPolicy(refusal: unknown): refusal is CostTooLargeError | InvalidOptionError {
  return refusal instanceof CostTooLargeError || refusal instanceof InvalidOptionError;
}

/** Amounts by unit, and the option that has them: `cost.tokens` of `draw()`. */
export interface AmountsByUnit {
  readonly where: string;
  /** The option's name before that of the unit: `"cost."`. */
  readonly path: string;
  readonly byUnit: Readonly<Record<string, unknown>>;
  /** Whether the call may be for a key. */
  readonly isKeyed: boolean;
}

/**
 * Checks that some limit counts each unit: of the policy in force, of the code's, or of any tier. A unit that none of
 * them has is a typing error. A unit that only the policy in force lacks costs nothing: otherwise a live change that
 * leaves a unit out would fail all calls that wait.
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

/** Checks the units of a call's cost as {@link assertCounted} does. */
export function assertCostUnits(
  bucket: string,
  known: KnownPolicy,
  where: string,
  { key, cost }: TryCall,
): void {
  if (typeof cost !== "object") return;
  assertCounted(bucket, known, { where, path: "cost.", byUnit: cost, isKeyed: key !== undefined });
}

/** Where a function gives the limits of keys, any unit may be in them. */
function counts({ limits, shadows, perKey }: Policy, unit: string, isKeyed: boolean): boolean {
  if ([...limits, ...shadows].some((limit) => limit.unit === unit)) return true;
  if (perKey === undefined) return false;
  return perKey.all === undefined ? isKeyed : perKey.all.some((limit) => limit.unit === unit);
}
