/** What a promise rejects with, watched from now on; that it fulfils is an error of its own. */
export function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => {
      throw new Error(`expected a rejection, got ${String(value)}`);
    },
    (reason: unknown) => reason,
  );
}
