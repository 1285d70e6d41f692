/**
 * Compares the actual cost of calls with the estimated cost, by name, such as a model's. The result is the mean of the
 * first hundred samples. After that, each new sample counts for one hundredth. Twin of `lua/bucket/ratios-learn.lua`.
 */
import type { RatioSample } from "../store.ts";

/** The most names that a bucket keeps. A new name replaces the least recently used one. */
export const MOST_NAMES = 64;
/** The number of samples in a mean. */
export const MOST_SAMPLES = 100;
/** The bounds of a ratio, in millionths: 0.001 to 100. */
export const LEAST_RATIO = 1_000;
export const MOST_RATIO = 100_000_000;

interface Learned {
  readonly samples: number;
  /** In millionths. */
  readonly mean: number;
  /** Grows with each sample of any name. */
  readonly order: number;
}

export type Ratios = Map<string, Learned>;

/** Adds samples. Returns the mean of each name, in millionths. */
export function learn(ratios: Ratios, seen: readonly RatioSample[]): ReadonlyMap<string, number> {
  for (const { name, ratio } of seen) {
    const known = ratios.get(name);
    const order = Math.max(0, ...[...ratios.values()].map((each) => each.order)) + 1;
    if (known === undefined && ratios.size >= MOST_NAMES) ratios.delete(longestAgo(ratios));
    const samples = Math.min((known?.samples ?? 0) + 1, MOST_SAMPLES);
    const before = known?.mean ?? 0;
    ratios.set(name, { samples, mean: before + Math.floor((ratio - before) / samples), order });
  }
  return new Map([...ratios].map(([name, { mean }]) => [name, mean]));
}

function longestAgo(ratios: Ratios): string {
  const [first] = [...ratios].toSorted(([, one], [, other]) => one.order - other.order);
  return first![0];
}

/** Converts a ratio to the form of samples: whole millionths, within the bounds. */
export function toRatio(ratio: number): number {
  return Math.min(Math.max(Math.round(ratio * 1_000_000), LEAST_RATIO), MOST_RATIO);
}
