/**
 * Time limits that do not expire while the process is frozen. After a freeze, the process has not
 * yet read the replies that arrived, and must not treat Redis as silent.
 */

/** The number of steps of a time limit. */
const STEPS = 4;

/**
 * Calls `late` after `timeoutMs`, unless the returned function is called before.
 *
 * Each step takes its own turn of the event loop, in which the process reads replies. A freeze
 * counts as only one step, even if it was long.
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

/**
 * Resolves with the result of `work`. Rejects with the result of `late` if `work` takes longer than
 * `timeoutMs`.
 */
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
