/** Measures how long a process stands still, by a timer that should fire at regular times. */
export interface Standstills {
  /** To be called whenever the timer fires. */
  readonly ring: () => void;
  /** The longest standstill in the last second, in ms, including one that still lasts. */
  readonly longestOfLastSecondMs: () => number;
  /** All standstills of 5 ms and more together, in ms. */
  readonly totalMs: () => number;
}

const SECOND_MS = 1_000;
/** Timers are always late by less than this. */
const LEAST_MS = 1;
/** Shorter ones happen on an idle machine too. */
const LEAST_COUNTED_MS = 5;

export function createStandstills(
  everyMs: number,
  now: () => number = () => performance.now(),
): Standstills {
  let rangAtMs = now();
  let totalMs = 0;
  let recent: { readonly endedAtMs: number; readonly ms: number }[] = [];

  /** The time since the timer should have fired. */
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
