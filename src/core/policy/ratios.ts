/**
 * How what calls of a bucket truly took compares with what they were estimated to take, by name, such as that of a
 * model: a mean of the first hundred samples, and then one in which each new sample counts for a hundredth. Twin of
 * `lua/bucket/ratios-learn.lua`.
 */
import type { RatioSample } from "../store.ts";

/** How many names a bucket keeps; a new one takes the place of the one that was seen longest ago. */
export const MOST_NAMES = 64;
/** How many samples a mean is of. */
export const MOST_SAMPLES = 100;
/** Bounds of a ratio, in millionths: 0.001 to 100. */
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

/** Takes samples in; returns the mean of each name, in millionths. */
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

/** A ratio as samples have it: whole millionths, within its bounds. */
export function toRatio(ratio: number): number {
  return Math.min(Math.max(Math.round(ratio * 1_000_000), LEAST_RATIO), MOST_RATIO);
}
