/**
 * Compares the actual cost of calls with the estimated cost, by name, such as a model's. The result is the mean of the
 * first hundred samples. After that, each new sample counts for one hundredth. `lua/bucket/ratios-learn.lua` computes it.
 */

/** The most names that a bucket keeps. A new name replaces the least recently used one. */
export const MOST_NAMES = 64;
/** The number of samples in a mean. */
export const MOST_SAMPLES = 100;
/** The bounds of a ratio, in millionths: 0.001 to 100. */
export const LEAST_RATIO = 1_000;
export const MOST_RATIO = 100_000_000;

/** Converts a ratio to the form of samples: whole millionths, within the bounds. */
export function toRatio(ratio: number): number {
  return Math.min(Math.max(Math.round(ratio * 1_000_000), LEAST_RATIO), MOST_RATIO);
}
