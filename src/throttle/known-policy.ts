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
import type { Limit } from "../core/limits/rule.ts";
import type { KnownTerms, Store } from "../core/store.ts";
import type { TryCall } from "./call-options.ts";
import { assertCost, type CallTerms } from "./costs.ts";

/** An active policy that this process did not know yet. */
export interface PolicyUpdate {
  readonly text: string;
  readonly version: number;
  /** True if an operator or the rules replaced the policy of the code. */
  readonly isOverride: boolean;
}

/**
 * The newest policy of a bucket that this process knows. If replicas declare different policies, the newest declaration
 * applies to all of them. Each draw sends the known policy, which restores it in a Redis that lost its data.
 */
export interface KnownPolicy {
  readonly policy: Policy;
  /** The policy that the code of this process declares. */
  readonly declared: Policy;
  readonly terms: KnownTerms;
  /** Records that the known policy is active, and its version. */
  confirm(version: number): void;
  /** Parses the text of a policy, which may come from another process. */
  read(text: string): Policy;
  /** Records that another policy is now active. */
  learn(update: PolicyUpdate): void;
}

/**
 * The policies with which a process starts: `policy` is declared by the code. `startsWith` comes from the rules, and
 * applies until a reply names another policy.
 */
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
    // No warning for an override: it differs from the code on purpose.
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

/** The objects that the components of a bucket share. */
export interface BucketContext {
  readonly store: Store;
  readonly bucket: string;
  /** The name by which the store knows this process. */
  readonly asker: string;
  readonly known: KnownPolicy;
  readonly logger: Logger;
  /** Counts granted, late, returned and refused slots for metrics. */
  readonly count: CountSlots;
}

/**
 * Reads the active policy. Resolves to true if it differs from the known policy. A process usually learns policies from
 * replies to its draws, but a call that the known policy rejects never draws. Rejects only if no policy is known at
 * all.
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
    // Any active policy has a version above 1, so the next reply can replace this policy.
    learn({ text, version: 1, isOverride: true });
    return true;
  }

  async function refresh(): Promise<boolean> {
    try {
      const { terms } = known;
      const request = { bucket, terms, scopes: [] };
      const { text, version, source } = await store.peek(request);
      const isOverride = source !== "code";
      // Version 0 means that this process has declared the policy but not drawn with it yet. Such a policy is newer
      // than those of other processes.
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

/** Finds the text of a bucket's policy in the rules, or in the declaration by another process. */
export type FindPolicy = (bucket: string) => Promise<string | undefined>;

export function unknownPolicy(bucket: string): InvalidOptionError {
  const where = `bucket("${bucket}")`;
  const remedy =
    "no rules and no code of another process say its limits; give a rate here, or name it in the rules";
  return new InvalidOptionError({ where, option: "rate", value: undefined, remedy });
}

/** True if the call was rejected because of the policy, so that another policy may allow the call. */
export function isByPolicy(refusal: unknown): refusal is CostTooLargeError | InvalidOptionError {
  return refusal instanceof CostTooLargeError || refusal instanceof InvalidOptionError;
}

/** Amounts by unit, with the name of the option for error messages, such as `cost.tokens` of `draw()`. */
export interface AmountsByUnit {
  readonly where: string;
  /** The prefix of the option's name, before the unit: `"cost."`. */
  readonly path: string;
  readonly byUnit: Readonly<Record<string, unknown>>;
  /** True if the call has a key. */
  readonly isKeyed: boolean;
}

/**
 * Checks that each unit is counted by a limit of the active or the declared policy. Any other unit is probably a typing
 * error. A unit that only the declared policy counts is accepted and costs nothing. Otherwise a live change that drops
 * a unit would fail all waiting calls.
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
      ...limitsOfMembers(policy),
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
  const { limits, perKey } = known.policy;
  const all = [...limits, ...(perKey?.all ?? []), ...limitsOfMembers(known.policy)];
  assertCost(all, cost, where);
}

/**
 * Returns the terms with which a call's cost is settled. If the policy has changed since the draw, these are the limits
 * of the draw, because budgets outlive a change of the policy. Returns undefined if nothing is left to settle.
 */
export function settlingTerms(
  { terms }: Pick<KnownPolicy, "terms">,
  { text, shared, hasBudgets }: Pick<CallTerms, "text" | "shared" | "hasBudgets">,
): KnownTerms | undefined {
  if (text === terms.text) return terms;
  return hasBudgets ? { ...terms, limits: shared, shadows: undefined, text } : undefined;
}

function limitsOfMembers({ pool }: Policy): readonly Limit[] {
  return pool?.members.flatMap(({ limits }) => limits) ?? [];
}

/**
 * True if the policy may count a unit. If a function returns the limits of each key, any unit is possible for a call
 * with a key.
 */
function counts(policy: Policy, unit: string, isKeyed: boolean): boolean {
  const { limits, shadows, perKey } = policy;
  const ofAll = [...limits, ...shadows, ...limitsOfMembers(policy)];
  if (ofAll.some((limit) => limit.unit === unit)) return true;
  if (perKey === undefined) return false;
  return perKey.all === undefined ? isKeyed : perKey.all.some((limit) => limit.unit === unit);
}
