import { createLeastOfLate } from "./least-of-late.ts";

/** How far this process's monotonic clock runs ahead of a bucket's. */
export interface BucketClock {
  /** Takes in a reply that arrived at `arrivedMs` and was written at `nowUs`; the offset, in ms. */
  sample(arrivedMs: number, nowUs: number): number;
  /** The bucket's clock has gone back, since Redis lost it: what was seen of it says nothing any more. */
  reset(): void;
}

/**
 * The smallest offset seen of late: that of the reply whose way back was the
 * shortest. A call is then late by that way at most, and never early; a reply
 * that came late does not shift its slots into those of other replicas.
 */
export function createBucketClock(): BucketClock {
  const offsets = createLeastOfLate();

  return {
    sample: (arrivedMs, nowUs) => offsets.sample(arrivedMs, arrivedMs - nowUs / 1_000),
    reset: () => offsets.reset(),
  };
}
