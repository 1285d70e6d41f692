import { formatLimit } from "../core/limits/registry.ts";
import { keyLimitsOf } from "../core/policy/per-key.ts";
import { formatPolicy, type Policy } from "../core/policy/policy.ts";
import type { Peeked } from "../core/store.ts";

/** How one limit stands. The numbers are of 100 calls a minute, 97 of them used. */
export interface LimitState {
  /** `"100/min"`. */
  readonly name: string;
  readonly unit: string;
  readonly scope: "bucket" | "key";
  /** `100`. */
  readonly capacity: number;
  /** What is used: `97`. */
  readonly level: number;
  /** What could pass now: `3`. */
  readonly remaining: number;
  /** Ms until a call of cost 1 may pass: `0`. Undefined if nobody can tell, as of a concurrency limit that is used up. */
  readonly nextFreeMs: number | undefined;
}

/** How a bucket stands, for all replicas. */
export interface BucketState {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Whether it comes from the code or was configured over it. */
  readonly policyFrom: "code" | "configured";
  readonly generation: number;
  /** Ms until a cooldown ends: `0` if there is none. */
  readonly coolingForMs: number;
  /** Ms until a pause ends: `0` if there is none; Infinity if it has no end. */
  readonly pausedForMs: number;
  /** The part of the rate that is in force after a refusal: `1` is all of it. */
  readonly rateFactor: number;
  /** How many replicas drew of late. */
  readonly replicas: number;
  /** How many callers wait in this process. */
  readonly waitingHere: number;
  readonly limits: readonly LimitState[];
}

/** A pause without an end: some 30 years. */
export const FOREVER_US = 1e15;

/** What a look at a bucket tells its user. */
export function describeState(
  peeked: Peeked,
  key: string | undefined,
  policy: Policy,
  waitingHere: number,
): BucketState {
  const { nowUs, standings, coolUntilUs, pausedUntilUs } = peeked;
  const shutUntilUs = Math.max(coolUntilUs, pausedUntilUs);
  const limits = [...policy.limits, ...keyLimitsOf(policy, key)].map((limit, index): LimitState => {
    const { remaining = limit.capacity, nextUs = nowUs } = standings[index] ?? {};
    return {
      name: formatLimit(limit),
      unit: limit.unit,
      scope: index < policy.limits.length ? "bucket" : "key",
      capacity: limit.capacity,
      level: limit.capacity - remaining,
      remaining,
      nextFreeMs: nextUs === Infinity ? undefined : msUntil(Math.max(nextUs, shutUntilUs), nowUs),
    };
  });
  return {
    policy: formatPolicy(policy),
    policyFrom: peeked.isOverride ? "configured" : "code",
    generation: peeked.generation,
    coolingForMs: msUntil(coolUntilUs, nowUs),
    pausedForMs: orEndless(msUntil(pausedUntilUs, nowUs)),
    rateFactor: peeked.factor / 1_000,
    replicas: peeked.alive,
    waitingHere,
    limits,
  };
}

/** Infinity for what is left of a pause without an end. */
export function orEndless(ms: number): number {
  return ms > FOREVER_US / 2_000 ? Infinity : ms;
}

export function msUntil(us: number, nowUs: number): number {
  return Math.max(0, Math.ceil((us - nowUs) / 1_000));
}
