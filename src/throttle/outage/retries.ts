import { ClosedError } from "../../core/errors.ts";

/** Schedules the retries of calls that wait for a store that does not answer. */
export interface StoreRetries {
  /**
   * Resolves after {@link STORE_RETRY_MS}, or earlier if `retryNow` is called.
   *
   * @throws {@link ClosedError} when the bucket is closed.
   */
  readonly untilRetry: () => Promise<void>;
  readonly retryNow: () => void;
  close(): void;
}

/** The time between two attempts, unless the store reports earlier that it is reachable again. */
export const STORE_RETRY_MS = 1_000;

export function createStoreRetries(bucket: string): StoreRetries {
  const waiting = new Set<() => void>();
  let isClosed = false;

  function retryNow(): void {
    for (const go of waiting) go();
  }

  return {
    async untilRetry() {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          clearTimeout(timer);
          waiting.delete(go);
          resolve();
        };
        const timer = setTimeout(go, STORE_RETRY_MS);
        waiting.add(go);
        if (isClosed) go();
      });
      if (isClosed) throw new ClosedError(`Bucket "${bucket}"`);
    },
    retryNow,
    close() {
      isClosed = true;
      retryNow();
    },
  };
}
