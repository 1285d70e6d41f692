import { HORIZON_US } from "../core/limit-makers.ts";
import type { Limit } from "../core/limits/limit.ts";
import { isLeased, ruleOf } from "../core/limits/registry.ts";
import { stepOf } from "../core/scope.ts";

/** What the calls of a group are under; all keys that have the same limits share it. */
export interface Conditions {
  /** What all keys share. */
  readonly shared: readonly Limit[];
  readonly keyLimits: readonly Limit[];
  /** The shared limits and then the key's. */
  readonly limits: readonly Limit[];
  /** For each of the limits. */
  readonly costs: readonly number[];
  /** The policy that all of this goes by. */
  readonly text: string;
  /** Whether its calls hold leases. */
  readonly hasLeases: boolean;
  /** What one call takes of the downstream, in ms. */
  readonly stepMs: number;
  /** How late a slot may be used. */
  readonly mostLateMs: number;
}

type Given = Pick<Conditions, "shared" | "keyLimits" | "costs" | "text">;

export function conditionsOf({ shared, keyLimits, costs, text }: Given): Conditions {
  const limits = [...shared, ...keyLimits];
  return {
    shared,
    keyLimits,
    limits,
    costs,
    text,
    hasLeases: limits.some(isLeased),
    stepMs: stepOf(limits, costs) / 1_000,
    // A key's own limit is a gate: it is the shared one that others' slots are spaced by.
    mostLateMs: lateMs(shared.length > 0 ? shared : keyLimits, costs),
  };
}

/**
 * A slot may be used late by half an interval: at least by what timers and a
 * busy process are off, at most by one horizon. At 100/s both are 5 ms, which
 * leaves as much to the network before a second can see two calls too many.
 * Where nothing is evenly spaced there is no interval, and a whole horizon is allowed.
 */
function lateMs(spacing: readonly Limit[], costs: readonly number[]): number {
  const horizonMs = HORIZON_US / 1_000;
  if (!spacing.some(({ kind }) => ruleOf(kind).doesSpace === true)) return horizonMs;
  return Math.min(Math.max(stepOf(spacing, costs) / 2_000, 5), horizonMs);
}
