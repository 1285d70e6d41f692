/** What some work comes to, if it does within this time; else it rejects with what `late` tells. What it comes to later is nobody's. */
export async function withinMs<T>(
  timeoutMs: number,
  work: T | Promise<T>,
  late: () => Error,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const expiry = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(late()), Math.max(1, timeoutMs));
  });
  try {
    return await Promise.race([work, expiry]);
  } finally {
    clearTimeout(timer);
  }
}
