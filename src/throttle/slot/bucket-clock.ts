/** How far this process's monotonic clock runs ahead of a bucket's. */
export interface BucketClock {
  /** Takes in a reply that arrived at `arrivedMs` and was written at `nowUs`; returns the offset, in ms. */
  sample(arrivedMs: number, nowUs: number): number;
  /** The bucket's clock has gone back, since Redis lost it: earlier samples are of no use. */
  reset(): void;
}

/**
 * The smallest offset of the last one to two seconds: that of the reply whose way
 * back was the shortest. A call is then late by that way at most, and never early;
 * a reply that came late does not shift its slots into those of other replicas.
 */
export function createBucketClock(): BucketClock {
  const offsets = createRecentMinimum();

  return {
    sample: (arrivedMs, nowUs) => offsets.sample(arrivedMs, arrivedMs - nowUs / 1_000),
    reset: () => offsets.reset(),
  };
}

/** The minimum is of the samples of one window and of the one before it. */
const WINDOW_MS = 1_000;

/** The minimum of the samples of this second and the one before. */
export interface RecentMinimum {
  /** Takes in a sample of `atMs`; returns the recent minimum. */
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
