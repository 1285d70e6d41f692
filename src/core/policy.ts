import { InvalidOptionError } from "./errors.ts";
import type { LeakyBucket } from "./limits/leaky-bucket.ts";
import { formatRate, parseRate, type RateInput } from "./rate.ts";

/** What a bucket is told about its downstream. */
export interface PolicyOptions {
  /** How fast calls may leave, by all replicas together: `"100/s"`. */
  readonly rate: RateInput;
  /** Calls that may leave at once after an idle time. Defaults to 1: evenly spaced, always. */
  readonly burst?: number | undefined;
}

/** The same as it may come from a caller who minds no types. */
export interface UnreadPolicy {
  readonly rate?: RateInput | undefined;
  readonly burst?: number | undefined;
}

/** How far ahead slots are handed out. */
export const HORIZON_US = 100_000;

/** Above it a double no longer holds every whole number. */
const MAX_LEVEL = 2 ** 53;

/**
 * Compiles a bucket's options into whole numbers.
 *
 * @throws {@link InvalidOptionError} when rate or burst can never work.
 */
export function compilePolicy(where: string, { rate, burst = 1 }: UnreadPolicy): LeakyBucket {
  const { count, periodUs } = parseRate(where, rate);
  const isWhole = Number.isSafeInteger(burst) && burst >= 1;
  // The highest level a draw can write: a full burst, a full horizon, and one call that pays before it starts.
  const highest = 2 * burst * periodUs + HORIZON_US * count;
  if (!isWhole || highest > MAX_LEVEL) {
    const most = Math.floor((MAX_LEVEL - HORIZON_US * count) / (2 * periodUs));
    const remedy = `give a whole number of calls from 1 to ${most}`;
    throw new InvalidOptionError({ where, option: "burst", value: burst, remedy });
  }
  return Object.freeze({ count, periodUs, burst });
}

export function isSamePolicy(a: LeakyBucket, b: LeakyBucket): boolean {
  return a.count === b.count && a.periodUs === b.periodUs && a.burst === b.burst;
}

/** The policy as errors and warnings name it: `"100/s"`, `"100/s with a burst of 5"`. */
export function formatPolicy(policy: LeakyBucket): string {
  const rate = formatRate(policy);
  return policy.burst === 1 ? rate : `${rate} with a burst of ${policy.burst}`;
}
