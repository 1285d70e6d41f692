/** Returns numbers from 0 to below 1. The same seed gives the same numbers. */
export type Random = () => number;

/** Mulberry32: a small generator with 2^32 states. Enough to draw arrivals and latencies. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns a time until the next of events that happen `perMs` times a ms, independently of each other. */
export function exponential(random: Random, perMs: number): number {
  return -Math.log(1 - random()) / perMs;
}

/** Returns a number of the standard normal distribution. */
export function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
