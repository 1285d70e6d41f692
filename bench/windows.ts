/** What left at one time, and how much of a limit it took. */
export interface Taking {
  readonly atMs: number;
  readonly cost: number;
}

/** A clock that counts ms since 1970 holds a µs only just; a rate makes more of what is lost. */
const ROUNDING = 1e-3;

/**
 * By how much the worst window went over the bound of a leaky bucket, of windows
 * of any length W: each may hold burst − 1 + ⌈rate × W⌉. 0 or less: none did.
 *
 * None is over it exactly if a bucket that drains at that rate never holds more
 * than the burst, so one pass over the takings finds the worst.
 */
export function mostOverLeaky(
  takings: readonly Taking[],
  { perSecond, burst }: { readonly perSecond: number; readonly burst: number },
): number {
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

/** The most that any half-open window of this length held. */
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
