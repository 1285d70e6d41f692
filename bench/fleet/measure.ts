import { worstWindow } from "sluice/testing";

/** The figures of one run. */
export interface Traffic {
  /** Calls in the measured time. */
  readonly calls: number;
  /** The share of the cap that was used, such as `0.998`. */
  readonly share: number;
  /** Calls in the worst second ÷ the cap, such as `1.004`. */
  readonly worstSecond: number;
  /** Calls in the worst 100 ms ÷ a tenth of the cap, such as `1.06`. */
  readonly worstTenth: number;
  /** Jain's index over the calls of each replica: 1 if even, 1 / replicas if one replica made all calls. */
  readonly fairness: number;
}

export interface MeasureOptions {
  readonly cap: number;
  /** How many arrivals each recorded time represents. */
  readonly every: number;
  /** The start of the measured time, which includes `fromMs` but not `toMs`. */
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Searches the whole run, including its start, for the worst windows. The other figures cover only the measured time.
 */
export function measure(
  arrivals: readonly Float64Array[],
  { cap, every, fromMs, toMs }: MeasureOptions,
): Traffic {
  const counts = arrivals.map((times) => every * countWithin(times, fromMs, toMs));
  const calls = counts.reduce((sum, count) => sum + count, 0);
  const all = arrivals.flatMap((times) => Array.from(times));
  return {
    calls,
    share: calls / (cap * ((toMs - fromMs) / 1_000)),
    worstSecond: (every * worstWindow(all, 1_000)) / cap,
    worstTenth: (every * worstWindow(all, 100)) / (cap / 10),
    fairness: jainIndex(counts),
  };
}

/** Computes the fairness index of R. Jain, D. Chiu, W. Hawe: A quantitative measure of fairness, 1984. */
function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 0 : (sum * sum) / (counts.length * squares);
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? NaN)) / 2;
}

function countWithin(times: Float64Array, fromMs: number, toMs: number): number {
  return times.reduce((count, atMs) => count + (atMs >= fromMs && atMs < toMs ? 1 : 0), 0);
}
