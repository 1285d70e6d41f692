/** How far the wall clock may differ before the server follows it, for example after the machine slept. */
const MOST_APART_MS = 1_000;

/** The clock of a server: the wall clock of this process with µs, plus the time that tests have skipped. */
export interface ServerClock {
  readonly nowUs: () => number;
  readonly skippedMs: () => number;
  readonly advance: (ms: number) => void;
}

export function createServerClock(): ServerClock {
  let baseMs = Date.now() - performance.now();
  let skippedMs = 0;

  return {
    nowUs() {
      const wallMs = Date.now();
      let ms = baseMs + performance.now();
      if (Math.abs(wallMs - ms) > MOST_APART_MS) {
        baseMs += wallMs - ms;
        ms = wallMs;
      }
      return Math.floor((ms + skippedMs) * 1_000);
    },
    skippedMs: () => skippedMs,
    advance(ms) {
      skippedMs += ms;
    },
  };
}
