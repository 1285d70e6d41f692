import { stepOf } from "../core/draw/scope.ts";
import { isLeased, ruleOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import { HORIZON_MS } from "../core/policy/limit-makers.ts";

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
 * 1 % of a second and 10 % of 100 ms are 10 ms both: no window that is promised may see slots of more than that beyond
 * its own. The network and clocks have 4 ms of it, and each end of a window may catch a call.
 */
const ROOM_MS = 10;
const NETWORK_MS = 4;
/** By so much are timers and a busy process off, whatever the rate. */
const TIMERS_MS = 5;

/**
 * A slot may be used late by half an interval: at least by what timers and a busy process are off, at most by one
 * horizon. At 100/s both are 5 ms, which leaves as much to the network before a second can see two calls too many.
 * Above 2,000/s so many calls wait that clearing up after them holds a process up for longer, and a second has room
 * for it. Where nothing is evenly spaced there is no interval, and a whole horizon is allowed.
 */
function lateMs(spacing: readonly Limit[], costs: readonly number[]): number {
  if (!spacing.some(({ kind }) => ruleOf(kind).doesSpace === true)) return HORIZON_MS;
  const intervalMs = stepOf(spacing, costs) / 1_000;
  const roomMs = ROOM_MS - NETWORK_MS - 2 * intervalMs;
  return Math.min(Math.max(intervalMs / 2, TIMERS_MS, roomMs), HORIZON_MS);
}
