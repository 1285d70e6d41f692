/**
 * Returns the most calls in any half-open window of this length, wherever the window begins.
 * `arrivalsMs` need not be sorted.
 */
export function worstWindow(arrivalsMs: readonly number[], windowMs: number): number {
  const sorted = Float64Array.from(arrivalsMs).sort();
  let worst = 0;
  let start = 0;
  for (let end = 0; end < sorted.length; end++) {
    while (sorted[end]! - sorted[start]! >= windowMs) start += 1;
    worst = Math.max(worst, end - start + 1);
  }
  return worst;
}
