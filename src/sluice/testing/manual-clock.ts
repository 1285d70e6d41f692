/** A clock that moves only by its methods, for tests. */
export interface ManualClock {
  /** The time, in µs; pass it where a clock is asked for. */
  readonly nowUs: () => number;
  advanceMs(ms: number): void;
  /** Sets the time, also backwards. */
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
