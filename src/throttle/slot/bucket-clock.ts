/** How far this process's monotonic clock is ahead of a bucket's clock. */
export interface BucketClock {
  /** Learns from a reply that arrived at `arrivedMs` and was written at `nowUs`; returns the offset in ms. */
  sample(arrivedMs: number, nowUs: number): number;
  /** Forgets all samples: Redis lost the bucket, and its clock started again. */
  reset(): void;
}

/**
 * Uses the smallest offset of the last one to two seconds, which comes from the reply with the shortest way back. A
 * call is then late by that way at most, and never early. A reply that arrives late does not move its slots into those
 * of other replicas.
 */
export function createBucketClock(): BucketClock {
  const offsets = createRecentMinimum();

  return {
    sample: (arrivedMs, nowUs) => offsets.sample(arrivedMs, arrivedMs - nowUs / 1_000),
    reset: () => offsets.reset(),
  };
}

/** The minimum covers the current window and the one before. */
const WINDOW_MS = 1_000;

/** The minimum of the samples of this second and the one before. */
export interface RecentMinimum {
  /** Adds a sample of the time `atMs`; returns the recent minimum. */
  sample(atMs: number, seen: number): number;
  reset(): void;
}

export function createRecentMinimum(): RecentMinimum {
  let windowEndsMs = -Infinity;
  let least = Infinity;
  let leastBefore = Infinity;

  return {
    sample(atMs, seen) {
      if (atMs >= windowEndsMs) {
        leastBefore = atMs < windowEndsMs + WINDOW_MS ? least : Infinity;
        least = Infinity;
        windowEndsMs = atMs + WINDOW_MS;
      }
      least = Math.min(least, seen);
      return Math.min(least, leastBefore);
    },
    reset() {
      windowEndsMs = -Infinity;
      least = Infinity;
    },
  };
}
