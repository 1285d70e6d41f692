/**
 * What is read again and again while somebody asks for it, so that whoever asks need not wait: asked for the first time,
 * or after a while, it is read then.
 */
export interface Readings<Facts> {
  /** The facts of the last reading; undefined if that failed. */
  latest(): Promise<Facts | undefined>;
  close(): void;
}

export interface ReadingsParts<Facts> {
  readonly everyMs: number;
  readonly read: () => Promise<Facts>;
  readonly onError: (error: unknown) => void;
}

/** For how long it is read on when nobody asks: scrapes are a minute apart at most, as a rule. */
const ASKED_MS = 90_000;
/** Reading takes no more than this part of the time. */
const LEAST_REST = 10;

export function createReadings<Facts>(parts: ReadingsParts<Facts>): Readings<Facts> {
  const { everyMs, read, onError } = parts;
  let facts: Facts | undefined;
  let reading: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let askedAtMs = -Infinity;
  /** Whether it is read again and again. */
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
    // It keeps no process alive.
    timer.unref();
  }

  return {
    async latest() {
      askedAtMs = performance.now();
      if (isClosed) return undefined;
      // Nothing has been read yet, or not for a while, or not with success.
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
