import { withForever } from "../../core/describe.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import { scopesOf, ownersOfLimits } from "../../core/policy/per-key.ts";
import { asFarAsKnown, formatPolicy, type Policy } from "../../core/policy/policy.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { limitsOfCall, type Peeked, type ShadowCounts } from "../../core/store.ts";

/** The policy in force, and the state of the bucket under it. */
export interface InForce {
  readonly policy: Policy;
  readonly state: BucketState;
  /** Ms until the whole rate is in force again, or `0`. */
  readonly wholeInMs: number;
  /** Ms until calls no longer keep the minimum distance that responses demanded. `0` without such a distance. */
  readonly spacedForMs: number;
  /** The minimum distance between two calls that responses demanded, in ms. */
  readonly gapMs: number;
}

/** The state of one limit. The examples are for 100 calls a minute, 97 of them used. */
export interface LimitState {
  /** The limit as text: `"100/min"`. Includes the level or name if several have limits: `"2/s (level 1)"`. */
  readonly name: string;
  readonly unit: string;
  /** `"bucket"` for a shared limit, `"key"` for a limit per key, or the name for keys by name. */
  readonly scope: string;
  /** The level of a path, from `0`. Undefined for the bucket, and for keys by name. */
  readonly keyLevel: number | undefined;
  /** `100`. */
  readonly capacity: number;
  /** The used part: `97`. */
  readonly level: number;
  /** The free part: `3`. */
  readonly remaining: number;
  /** Ms until a call of cost 1 may pass: `0`. Undefined if unknown, as for a used-up concurrency limit. */
  readonly nextFreeMs: number | undefined;
}

/**
 * What a shadow limit has counted over all replicas, since its numbers last changed. It computes the line that its calls
 * would have formed.
 */
export interface ShadowState {
  /** `"50/s"`. */
  readonly name: string;
  readonly unit: string;
  /** All counted calls: `12000`. */
  readonly calls: number;
  /** Calls that would have waited: `340`. */
  readonly wouldHaveWaited: number;
  /** The longest of these waits, in ms: `1250`. */
  readonly longestWaitMs: number;
  /** Calls that cost more than its capacity, or would have waited for more than an hour: `0`. */
  readonly wouldHaveBeenRefused: number;
}

/** The state of a bucket without its limits, for all replicas. */
export interface BriefState {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Where the policy comes from: an operator configured it, or the rules or the code declare it. */
  readonly policyFrom: "code" | "rules" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends: `0` if there is none. */
  readonly coolingForMs: number;
  /** Ms until a pause ends, or `0`. Infinity without an end, which is `"forever"` in JSON. */
  readonly pausedForMs: number;
  /** While a process finds the downstream unreachable: ms until the next probe, at least `1`. Else `0`. */
  readonly awayForMs: number;
  /** The part of the rate that is in force after a refusal. `1` is the whole rate. */
  readonly rateFactor: number;
  /** The number of replicas that drew in this second or the last. */
  readonly replicas: number;
  /** The number of callers that wait in this process. */
  readonly waitingHere: number;
  /** Limits that only count: `[]` if the policy has none. */
  readonly shadows: readonly ShadowState[];
}

/** The state of a bucket, for all replicas. */
export interface BucketState extends BriefState {
  readonly limits: readonly LimitState[];
}

/** A pause without an end: about 30 years. */
export const FOREVER_US = 1e15;

type SeenBeside = Pick<BriefState, "waitingHere" | "awayForMs">;

export function describeState(
  peeked: Peeked,
  key: string | undefined,
  policy: Policy,
  seen: SeenBeside,
): BucketState {
  const { nowUs, statuses, coolUntilUs, pausedUntilUs } = peeked;
  const closedUntilUs = Math.max(coolUntilUs, pausedUntilUs);
  const known = asFarAsKnown(policy);
  const scopes = scopesOf(known, key);
  const whose = ownersOfLimits(known, scopes);
  const limits = limitsOfCall(policy.limits, scopes).map((limit, index): LimitState => {
    const { scope, level, suffix } = whose[index]!;
    const { remaining = limit.capacity, nextUs = nowUs } = statuses[index] ?? {};
    return {
      name: formatLimit(limit) + suffix,
      unit: limit.unit,
      scope,
      keyLevel: level,
      capacity: limit.capacity,
      level: limit.capacity - remaining,
      remaining,
      nextFreeMs: nextUs === Infinity ? undefined : msUntil(Math.max(nextUs, closedUntilUs), nowUs),
    };
  });
  const shadows = policy.shadows.map((limit, index) => shadowState(limit, peeked.shadows[index]));
  return withForever({ ...briefState(peeked, policy, seen), limits, shadows });
}

function shadowState(limit: Limit, counts: ShadowCounts = NOTHING_COUNTED): ShadowState {
  const { calls, waited, longestUs, refused } = counts;
  return {
    name: formatLimit(limit),
    unit: limit.unit,
    calls,
    wouldHaveWaited: waited,
    longestWaitMs: Math.ceil(longestUs / 1_000),
    wouldHaveBeenRefused: refused,
  };
}

const NOTHING_COUNTED: ShadowCounts = { calls: 0, waited: 0, longestUs: 0, refused: 0 };

/** Describes a bucket without its limits and shadows. */
export function describeBriefly(
  peeked: BrieflyPeeked,
  policy: Policy,
  seen: SeenBeside,
): BriefState {
  return withForever(briefState(peeked, policy, seen));
}

type BrieflyPeeked = Pick<
  Peeked,
  "nowUs" | "source" | "generation" | "coolUntilUs" | "pausedUntilUs" | "factor" | "alive"
>;

function briefState(
  { nowUs, source, generation, coolUntilUs, pausedUntilUs, factor, alive }: BrieflyPeeked,
  policy: Policy,
  { waitingHere, awayForMs }: SeenBeside,
): BriefState {
  return {
    policy: formatPolicy(policy),
    policyFrom: source === "override" ? "configured" : source,
    generation,
    coolingForMs: msUntil(coolUntilUs, nowUs),
    pausedForMs: orEndless(msUntil(pausedUntilUs, nowUs)),
    awayForMs,
    rateFactor: factor / 1_000,
    replicas: alive,
    waitingHere,
    shadows: [],
  };
}

/** Infinity for the rest of a pause without an end. */
export function orEndless(ms: number): number {
  return ms > FOREVER_US / 2_000 ? Infinity : ms;
}

export function msUntil(us: number, nowUs: number): number {
  return Math.max(0, Math.ceil((us - nowUs) / 1_000));
}
