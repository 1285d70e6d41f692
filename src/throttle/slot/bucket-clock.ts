/** Estimates how far this process's monotonic clock is ahead of a bucket's clock in Redis. */
export interface BucketClock {
  /** Adds a reply that Redis wrote at `nowUs` and that arrived at `arrivedMs`. Returns the current offset in ms. */
  sample(arrivedMs: number, nowUs: number): number;
  /** Forgets all samples, because Redis lost the bucket and the bucket's clock started again. */
  reset(): void;
}

/**
 * Uses the smallest offset of the last one to two seconds. It comes from the reply that travelled fastest from Redis.
 * Calls then start late by at most this travel time, and never early. A reply that arrives late does not shift its
 * slots into the slots of other replicas.
 */
export function createBucketClock(): BucketClock {
  const offsets = createRecentMinimum();

  return {
    sample: (arrivedMs, nowUs) => offsets.sample(arrivedMs, arrivedMs - nowUs / 1_000),
    reset: () => offsets.reset(),
  };
}

/** The length of a window of samples. The minimum covers the current window and the previous one. */
const WINDOW_MS = 1_000;

/** Computes the minimum of all samples in the current and the previous second. */
export interface RecentMinimum {
  /** Adds a sample that was taken at `atMs`. Returns the recent minimum. */
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
