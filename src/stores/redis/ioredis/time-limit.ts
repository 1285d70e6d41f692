/**
 * Time limits that a frozen process does not use up. After a freeze, it has not yet read the
 * replies that arrived, and must not take Redis for silent.
 */

/** A time limit is made up of this many steps. */
const STEPS = 4;

/**
 * Calls `late` after this time, unless the returned function stops it.
 *
 * Each step takes a turn of the event loop of its own, in which answers are read. A freeze counts as one step, however
 * long it was.
 */
export function startTimeLimit(timeoutMs: number, late: () => void): () => void {
  let left = STEPS;
  const timer = setTimeout(
    () => {
      left -= 1;
      if (left === 0) late();
      else timer.refresh();
    },
    Math.max(1, timeoutMs / STEPS),
  );
  return () => clearTimeout(timer);
}

/** The result of `work`; rejects with what `late` returns when there is none within this time. */
export async function withTimeout<T>(
  timeoutMs: number,
  work: Promise<T>,
  late: () => Error,
): Promise<T> {
  let stop = (): void => {};
  const expiry = new Promise<never>((_resolve, reject) => {
    stop = startTimeLimit(timeoutMs, () => reject(late()));
  });
  try {
    return await Promise.race([work, expiry]);
  } finally {
    stop();
  }
}
