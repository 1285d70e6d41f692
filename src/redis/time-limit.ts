/** A time limit is made up of so many looks. */
const LOOKS = 4;

/**
 * Calls `late` after this time, unless the returned function stops it.
 *
 * It takes the time in looks, each in a turn of the event loop of its own: a process that stood still has yet to read
 * what Redis answered meanwhile, or even to send what it asked, and must not take Redis for silent. However long it
 * stood still, that is one look.
 */
export function startTimeLimit(timeoutMs: number, late: () => void): () => void {
  let left = LOOKS;
  const timer = setTimeout(
    () => {
      left -= 1;
      if (left === 0) late();
      else timer.refresh();
    },
    Math.max(1, timeoutMs / LOOKS),
  );
  return () => clearTimeout(timer);
}

/** What some work comes to, if it does within this time; else it rejects with what `late` tells. */
export async function withinMs<T>(
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
