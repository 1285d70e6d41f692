/** The longest delay that a timer of Node takes. */
const LONGEST_MS = 2 ** 31 - 1;

export interface Alarm {
  /** Rings at this time of `performance.now()`, and no longer at an earlier one; Infinity: never. */
  set(atMs: number): void;
}

/** One timer that is moved rather than added to. */
export function createAlarm(ring: () => void): Alarm {
  let timer: NodeJS.Timeout | undefined;
  let ringsAtMs = Infinity;

  function check(): void {
    timer = undefined;
    const atMs = ringsAtMs;
    ringsAtMs = Infinity;
    // A timer of Node may fire up to 1 ms early.
    if (performance.now() < atMs) set(atMs);
    else ring();
  }

  function set(atMs: number): void {
    if (atMs === ringsAtMs) return;
    clearTimeout(timer);
    timer = undefined;
    ringsAtMs = atMs;
    if (atMs === Infinity) return;
    const delayMs = Math.max(0, Math.ceil(atMs - performance.now()));
    timer = setTimeout(check, Math.min(delayMs, LONGEST_MS));
  }

  return { set };
}
