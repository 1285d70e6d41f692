/** A clock for tests. Its time changes only through its methods. */
export interface ManualClock {
  /** Returns the time in µs. Pass this function where a clock is needed. */
  readonly nowUs: () => number;
  advanceMs(ms: number): void;
  /** Sets the time, in µs. The new time may be earlier than the current time. */
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
