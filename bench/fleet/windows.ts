/** Checks the times of calls: finds the worst windows, and excesses over the bounds of leaky buckets. */

/** A cost that a call used up of a limit at one time. */
export interface Taking {
  readonly atMs: number;
  readonly cost: number;
}

export interface Leaky {
  readonly perSecond: number;
  readonly burst: number;
}

/**
 * The tolerance for rounding errors. A double barely resolves a µs in milliseconds since 1970, and a rate multiplies
 * the error.
 */
const ROUNDING = 1e-3;

/** Returns the most units that a leaky bucket allows in a window of this many seconds. */
export function boundOf({ perSecond, burst }: Leaky, seconds: number): number {
  return burst - 1 + Math.ceil(perSecond * seconds);
}

/**
 * Returns by how much the worst window of any length W exceeded a leaky bucket's bound of burst − 1 + ⌈rate × W⌉. If
 * the result is 0 or less, no window exceeded it.
 *
 * All windows keep the bound exactly when a bucket that drains at that rate never contains more than the burst. So one
 * pass over the takings finds the worst window.
 */
export function mostOverLeaky(takings: readonly Taking[], { perSecond, burst }: Leaky): number {
  let level = 0;
  let most = 0;
  let lastMs = -Infinity;
  for (const { atMs, cost } of inOrder(takings)) {
    level = Math.max(0, level - ((atMs - lastMs) * perSecond) / 1_000) + cost;
    lastMs = atMs;
    most = Math.max(most, level);
  }
  return Math.ceil(most - burst - ROUNDING);
}

/** Returns the largest sum in any half-open window of this length. */
export function worstSum(takings: readonly Taking[], windowMs: number): number {
  const sorted = inOrder(takings);
  let worst = 0;
  let sum = 0;
  let start = 0;
  for (const { atMs, cost } of sorted) {
    sum += cost;
    while (atMs - sorted[start]!.atMs >= windowMs) {
      sum -= sorted[start]!.cost;
      start += 1;
    }
    worst = Math.max(worst, sum);
  }
  return worst;
}

function inOrder(takings: readonly Taking[]): Taking[] {
  return takings.toSorted((a, b) => a.atMs - b.atMs);
}
