import { withForever } from "../../core/describe.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import { scopesOf, ownersOfLimits } from "../../core/policy/per-key.ts";
import { asFarAsKnown, formatPolicy, type Policy } from "../../core/policy/policy.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { limitsOfCall, type Peeked, type ShadowCounts } from "../../core/store.ts";

/** The policy in force for all replicas, and the state of the bucket under it. */
export interface InForce {
  readonly policy: Policy;
  readonly state: BucketState;
  /** Ms until the whole rate is in force again: `0` if it is. */
  readonly wholeInMs: number;
  /** For how many ms calls keep a distance that answers asked for: `0` if there is none. */
  readonly spacedForMs: number;
  /** That distance, in ms. */
  readonly gapMs: number;
}

/** The state of one limit. The numbers are of 100 calls a minute, 97 of them used. */
export interface LimitState {
  /** `"100/min"`; where keys have several levels or names, with that: `"2/s (level 1)"`. */
  readonly name: string;
  readonly unit: string;
  /** Whether the whole bucket shares it (`"bucket"`) or each key has its own (`"key"`); of keys by name, the name. */
  readonly scope: string;
  /** Which name of a path it is for: `0` is the first. Undefined of the bucket, and of keys by name. */
  readonly keyLevel: number | undefined;
  /** `100`. */
  readonly capacity: number;
  /** What is used: `97`. */
  readonly level: number;
  /** What could pass now: `3`. */
  readonly remaining: number;
  /** Ms until a call of cost 1 may pass: `0`. Undefined if it is unknown, as of a concurrency limit that is used up. */
  readonly nextFreeMs: number | undefined;
}

/**
 * What a limit has counted that holds nothing back, for all replicas, since it has its numbers. Each call that leaves
 * takes its place in the line that there would have been.
 */
export interface ShadowState {
  /** `"50/s"`. */
  readonly name: string;
  readonly unit: string;
  /** All calls that it has seen: `12000`. */
  readonly calls: number;
  /** Those that would have waited for it: `340`. */
  readonly wouldHaveWaited: number;
  /** The longest of these waits, in ms: `1250`. */
  readonly longestWaitMs: number;
  /** Those that cost more than it could ever give, or would have waited for more than an hour: `0`. */
  readonly wouldHaveBeenRefused: number;
}

/** The state of a bucket without its limits, for all replicas. */
export interface BriefState {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Whether it comes from the code, from the rules, or was configured over both. */
  readonly policyFrom: "code" | "rules" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends: `0` if there is none. */
  readonly coolingForMs: number;
  /** Ms until a pause ends: `0` if there is none; Infinity if it has no end, which JSON says as `"forever"`. */
  readonly pausedForMs: number;
  /**
   * While the downstream is away, of the bucket or of the key, as some process has found: ms until the next job tries
   * whether it is back, at least 1. Else 0.
   */
  readonly awayForMs: number;
  /** The part of the rate that is in force after a refusal: `1` is all of it. */
  readonly rateFactor: number;
  /** How many replicas drew in this second or the last. */
  readonly replicas: number;
  /** How many callers wait in this process. */
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

/** What is known of a bucket beside its state. */
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

/** The same without its limits, of a policy without shadows. */
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
