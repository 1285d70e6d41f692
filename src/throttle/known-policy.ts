import { reasonOf } from "../core/describe.ts";
import { CostTooLargeError, InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { formatPolicy, readPolicyText, type Policy } from "../core/policy/policy.ts";
import type { KnownTerms, Store } from "../core/store.ts";
import type { TryOptions } from "./call-options.ts";

/** A policy that is in force, and was not known here. */
export interface PolicyNews {
  readonly text: string;
  readonly version: number;
  /** Whether it was configured by hand, over what the code says. */
  readonly isOverride: boolean;
}

/**
 * The newest policy of a bucket that this process knows of. The newest
 * declaration wins everywhere: each draw carries what its process knows, so
 * that even a Redis that lost everything learns it again.
 */
export interface KnownPolicy {
  readonly policy: Policy;
  /** That of the code. */
  readonly declared: Policy;
  readonly terms: KnownTerms;
  /** The bucket has answered: the policy that this process knows is in force, in this version. */
  confirm(version: number): void;
  /** The policy of this text: that of the code, or what another process has put in force. */
  read(text: string): Policy;
  /** Another policy is in force. */
  learn(news: PolicyNews): void;
}

export function createKnownPolicy(bucket: string, declared: Policy, logger: Logger): KnownPolicy {
  let policy = declared;
  let terms = termsOf(declared, 0);
  let hasWarned = false;

  function read(text: string): Policy {
    const known = [policy, declared].find((each) => each.text === text);
    return known ?? readPolicyText(`bucket("${bucket}")`, text, declared);
  }

  function learn({ text, version, isOverride }: PolicyNews): void {
    policy = read(text);
    terms = termsOf(policy, version);
    // What was configured by hand is meant to differ.
    if (hasWarned || isOverride || text === declared.text) return;
    hasWarned = true;
    logger.warn(
      { bucket, declared: formatPolicy(declared), inForce: formatPolicy(policy) },
      `Bucket "${bucket}" was declared here with ${formatPolicy(declared)}, and later elsewhere with ` +
        `${formatPolicy(policy)}. The newest holds for all; give every process the same policy.`,
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

export function termsOf({ limits, shares, text }: Policy, version: number): KnownTerms {
  return { limits, shares, text, version };
}

/** What all parts of one bucket work with. */
export interface BucketContext {
  readonly store: Store;
  readonly bucket: string;
  /** This process, as the store knows it. */
  readonly asker: string;
  readonly known: KnownPolicy;
  readonly logger: Logger;
}

/**
 * Whether another policy is in force than the one that is known here. A process learns that by its draws; a call
 * that could never pass by what it knows would never come to one. Never rejects.
 */
export type RefreshPolicy = () => Promise<boolean>;

export function createPolicyRefresh(
  { store, bucket, known, logger }: BucketContext,
  learn: (news: PolicyNews) => void,
): RefreshPolicy {
  let looking: Promise<boolean> | undefined;

  async function look(): Promise<boolean> {
    try {
      const { terms } = known;
      const request = { bucket, terms, key: undefined, keyLimits: [] };
      const { text, version, isOverride } = await store.peek(request);
      // What was declared here and never drawn with yet is newer than what others have declared.
      const isNewer = isOverride || (terms.version > 0 && version > terms.version);
      if (text === known.terms.text || !isNewer) return false;
      learn({ text, version, isOverride });
      return true;
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ bucket, reason }, "The policy in force could not be looked up.");
      return false;
    } finally {
      looking = undefined;
    }
  }

  return () => (looking ??= look());
}

/** Whether a call was refused by what the policy says. */
export function isByPolicy(refusal: unknown): refusal is CostTooLargeError | InvalidOptionError {
  return refusal instanceof CostTooLargeError || refusal instanceof InvalidOptionError;
}

/** Where a unit was named: `cost.tokens` of `draw()`. */
export interface Naming {
  readonly where: string;
  /** What stands before a unit's name in an option: `"cost."`. */
  readonly path: string;
  readonly byUnit: Readonly<Record<string, unknown>>;
  /** Whether the call may be for a key. */
  readonly isKeyed: boolean;
}

/**
 * Checks that each unit is counted by some limit of some policy: by one in force, by what the code says, or by
 * that of another tier. A name that none of them knows is a slip of the pen; one that no limit counts at present
 * costs nothing, or a live change that leaves a unit out would fail all who wait.
 *
 * @throws {@link InvalidOptionError} when a unit is named that none of them counts.
 */
export function assertCounted(
  bucket: string,
  policies: readonly Policy[],
  { where, path, byUnit, isKeyed }: Naming,
): void {
  for (const unit of Object.keys(byUnit)) {
    if (unit === "calls" || policies.some((policy) => counts(policy, unit, isKeyed))) continue;
    const limits = policies.flatMap((policy) => [...policy.limits, ...(policy.perKey?.all ?? [])]);
    const units = [...new Set(limits.map((limit) => limit.unit))].join(", ");
    const remedy = `no limit of bucket "${bucket}" counts it; the units are ${units}`;
    throw new InvalidOptionError({ where, option: `${path}${unit}`, value: byUnit[unit], remedy });
  }
}

/** Checks the units of a call's cost, by all policies that are known. */
export function createUnitCheck(
  bucket: string,
  known: KnownPolicy,
): (where: string, options: TryOptions) => void {
  return (where, { key, cost }) => {
    if (typeof cost !== "object") return;
    const named = { where, path: "cost.", byUnit: cost, isKeyed: key !== undefined };
    assertCounted(bucket, [known.policy, known.declared], named);
  };
}

/** Where only a function tells the limits of keys, it may name any unit some day. */
function counts({ limits, perKey }: Policy, unit: string, isKeyed: boolean): boolean {
  if (limits.some((limit) => limit.unit === unit)) return true;
  if (perKey === undefined) return false;
  return perKey.all === undefined ? isKeyed : perKey.all.some((limit) => limit.unit === unit);
}
