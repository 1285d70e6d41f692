import type { Limit } from "./limits/limit.ts";
import type { RateInput } from "./rate.ts";

/** The limits of a bucket, or of one key. */
export interface LimitsOptions {
  /** How fast calls may leave, by all replicas together: `"100/s"`. Short for `leakyBucket(rate, { burst })`. */
  readonly rate?: RateInput | undefined;
  /** Calls that may leave at once after an idle time. Defaults to 1: evenly spaced, always. */
  readonly burst?: number | undefined;
  /** Calls that may run at once, over all replicas. Short for `concurrency(max)`. */
  readonly concurrency?: number | undefined;
  /** Any others; a call leaves when all of them let it. */
  readonly limits?: readonly Limit[] | undefined;
}
