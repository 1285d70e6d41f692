/** Measures for how long a process is blocked, with a timer that should fire at regular intervals. */
export interface Standstills {
  /** Call this whenever the timer fires. */
  readonly ring: () => void;
  /**
   * Returns the longest time in the last second for which the process was blocked, in ms. Includes a block that still
   * lasts.
   */
  readonly longestOfLastSecondMs: () => number;
  /** Returns the sum of all blocks of at least 5 ms, in ms. */
  readonly totalMs: () => number;
}

const SECOND_MS = 1_000;
/** Shorter delays are ignored, because timers are always late by up to this much. */
const LEAST_MS = 1;
/** Shorter blocks are not added to the total, because they happen on an idle machine too. */
const LEAST_COUNTED_MS = 5;

export function createStandstills(
  everyMs: number,
  now: () => number = () => performance.now(),
): Standstills {
  let rangAtMs = now();
  let totalMs = 0;
  let recent: { readonly endedAtMs: number; readonly ms: number }[] = [];

  /** Returns the time since the timer should have fired. */
  function lastingMs(): number {
    return Math.max(0, now() - rangAtMs - everyMs);
  }

  return {
    ring() {
      const ms = lastingMs();
      rangAtMs = now();
      if (ms >= LEAST_COUNTED_MS) totalMs += ms;
      if (ms < LEAST_MS) return;
      recent = recent.filter(({ endedAtMs }) => endedAtMs > rangAtMs - SECOND_MS);
      recent.push({ endedAtMs: rangAtMs, ms });
    },
    totalMs: () => totalMs,
    longestOfLastSecondMs() {
      const sinceMs = now() - SECOND_MS;
      const ended = recent.filter(({ endedAtMs }) => endedAtMs > sinceMs);
      return Math.max(lastingMs(), ...ended.map(({ ms }) => ms));
    },
  };
}
