/** Samples of one window, and of the one before it, are looked at. */
const WINDOW_MS = 1_000;

/** The least of what was seen in this second and in the one before. */
export interface LeastOfLate {
  /** Takes in what was seen at `atMs`; the least of late. */
  sample(atMs: number, seen: number): number;
  reset(): void;
}

export function createLeastOfLate(): LeastOfLate {
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
