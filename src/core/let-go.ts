/** Hears how a promise ends that was given where none can be used: a rejection that nobody hears ends the process. */
export function letGo(value: unknown): void {
  try {
    if (value instanceof Promise) value.catch(() => {});
  } catch {
    // A proxy that throws is no promise.
  }
}
