/**
 * The ratio of the actual to the estimated cost of calls, for each name, such as a model. The ratio is the mean of the
 * first hundred samples. After that, each new sample has a weight of one hundredth. `lua/bucket/ratios-learn.lua`
 * computes the ratio.
 */

/** The most names for which a bucket stores a ratio. A new name replaces the least recently used name. */
export const MOST_NAMES = 64;
/** The number of samples of which the ratio is the mean. */
export const MOST_SAMPLES = 100;
/** The smallest and the largest ratio, in millionths: 0.001 to 100. */
export const LEAST_RATIO = 1_000;
export const MOST_RATIO = 100_000_000;

/** Converts a ratio to whole millionths within the bounds, as samples store it. */
export function toRatio(ratio: number): number {
  return Math.min(Math.max(Math.round(ratio * 1_000_000), LEAST_RATIO), MOST_RATIO);
}
