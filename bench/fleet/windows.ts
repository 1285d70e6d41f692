/** What is looked for in the times of calls: the worst windows, and the bounds of leaky buckets. */

/** A cost that was taken from a limit at one time. */
export interface Taking {
  readonly atMs: number;
  readonly cost: number;
}

export interface Leaky {
  readonly perSecond: number;
  readonly burst: number;
}

/** Milliseconds since 1970 in a double barely resolve a µs, and a rate multiplies the error. */
const ROUNDING = 1e-3;

/** How much a window of this many seconds may hold. */
export function boundOf({ perSecond, burst }: Leaky, seconds: number): number {
  return burst - 1 + Math.ceil(perSecond * seconds);
}

/**
 * Returns by how much the worst window of any length W exceeded a leaky bucket's bound
 * of burst − 1 + ⌈rate × W⌉. 0 or less means that none did.
 *
 * No window exceeds it exactly when a bucket that drains at that rate never holds more
 * than the burst, so one pass over the takings finds the worst.
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
