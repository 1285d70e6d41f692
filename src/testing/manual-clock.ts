/** A clock that moves only when it is told to, for a store or a test of yours. */
export interface ManualClock {
  /** µs; pass it where a clock is asked for. */
  readonly nowUs: () => number;
  advanceMs(ms: number): void;
  /** Steps to a time, also backwards. */
  set(us: number): void;
}

export function createManualClock(startUs: number = 1_790_000_000_000_000): ManualClock {
  let us = startUs;
  return {
    nowUs: () => us,
    advanceMs(ms) {
      us += Math.round(ms * 1_000);
    },
    set(nextUs) {
      us = nextUs;
    },
  };
}
