/**
 * Repeats a read while callers ask for its result, so that most callers get the latest result
 * immediately. Only the first call, and a call after a long break, waits for a new read.
 */
export interface Readings<Facts> {
  /** Returns the result of the last read. Undefined if that read failed. */
  latest(): Promise<Facts | undefined>;
  close(): void;
}

export interface ReadingsParts<Facts> {
  readonly everyMs: number;
  readonly read: () => Promise<Facts>;
  readonly onError: (error: unknown) => void;
}

/**
 * The time after which reading stops if no caller asks. Scrapes are usually at most a minute apart.
 */
const ASKED_MS = 90_000;
/**
 * The pause after a read is this many times as long as the read, so that reads take at most a tenth
 * of the time.
 */
const LEAST_REST = 10;

export function createReadings<Facts>(parts: ReadingsParts<Facts>): Readings<Facts> {
  const { everyMs, read, onError } = parts;
  let facts: Facts | undefined;
  let reading: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let askedAtMs = -Infinity;
  /** True while the read is repeated. */
  let isKept = false;
  let isClosed = false;

  async function readOnce(): Promise<void> {
    isKept = true;
    const sinceMs = performance.now();
    try {
      facts = await read();
    } catch (error) {
      facts = undefined;
      if (!isClosed) onError(error);
    }
    reading = undefined;
    const nowMs = performance.now();
    isKept = !isClosed && nowMs - askedAtMs <= ASKED_MS;
    if (!isKept) return;
    const restMs = Math.max(everyMs, LEAST_REST * (nowMs - sinceMs));
    timer = setTimeout(() => (reading = readOnce()), restMs);
    // The timer must not keep the process alive.
    timer.unref();
  }

  return {
    async latest() {
      askedAtMs = performance.now();
      if (isClosed) return undefined;
      // Waits for a new reading if there is no recent successful one.
      if (!isKept || facts === undefined) {
        clearTimeout(timer);
        await (reading ??= readOnce());
      }
      return facts;
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
