/** How many calls a bucket started here in the last ten seconds, as counts that are read about once a second say. */
export interface RecentCalls {
  /** Takes in how many calls started since the last reading. */
  add(nowMs: number, started: number): void;
  /**
   * How many started in the ten seconds before the last reading: `30`. Of a reading that began before them, no more than
   * its part in proportion counts, so that a bucket at its cap is never shown above it.
   */
  count(): number;
}

const WINDOW_MS = 10_000;

interface Reading {
  readonly fromMs: number;
  readonly atMs: number;
  readonly started: number;
}

/** A first call is read after `withinMs` at the latest: one that comes after a rest has started within that time. */
export function createRecentCalls(withinMs: number): RecentCalls {
  let readings: readonly Reading[] = [];

  return {
    add(atMs, started) {
      const last = readings.at(-1);
      const fromMs = last !== undefined && last.started > 0 ? last.atMs : atMs - withinMs;
      const recent = readings.filter((reading) => reading.atMs > atMs - WINDOW_MS);
      readings = [...recent, { fromMs: Math.max(fromMs, last?.atMs ?? fromMs), atMs, started }];
    },
    count() {
      const sinceMs = (readings.at(-1)?.atMs ?? 0) - WINDOW_MS;
      return readings.reduce((sum, { fromMs, atMs, started }) => {
        if (fromMs >= sinceMs) return sum + started;
        return sum + Math.floor((started * (atMs - sinceMs)) / (atMs - fromMs));
      }, 0);
    },
  };
}
