/** How long a process has stood still, by a bell that should ring at regular times. */
export interface Standstills {
  /** The bell has rung. */
  readonly ring: () => void;
  /** The longest of the last second, in ms; one that lasts until now counts. */
  readonly longestOfLastSecondMs: () => number;
}

const SECOND_MS = 1_000;
/** Timers are late by less all the time. */
const LEAST_MS = 1;

export function createStandstills(
  everyMs: number,
  now: () => number = () => performance.now(),
): Standstills {
  let rangAtMs = now();
  let recent: { readonly endedAtMs: number; readonly ms: number }[] = [];

  /** What has passed since the bell was due. */
  function lastingMs(): number {
    return Math.max(0, now() - rangAtMs - everyMs);
  }

  return {
    ring() {
      const ms = lastingMs();
      rangAtMs = now();
      if (ms < LEAST_MS) return;
      recent = recent.filter(({ endedAtMs }) => endedAtMs > rangAtMs - SECOND_MS);
      recent.push({ endedAtMs: rangAtMs, ms });
    },
    longestOfLastSecondMs() {
      const sinceMs = now() - SECOND_MS;
      const ended = recent.filter(({ endedAtMs }) => endedAtMs > sinceMs);
      return Math.max(lastingMs(), ...ended.map(({ ms }) => ms));
    },
  };
}
