import { ClosedError } from "../core/errors.ts";

/** Tells those of a bucket's own parts that hold callers back when it is closed. */
interface CloseNews {
  readonly isClosed: boolean;
  /** Calls back when the bucket is closed, at once if it is; returns what ends it. */
  onClose(fail: (reason: ClosedError) => void): () => void;
  close(): void;
}

export function createCloseNews(bucket: string): CloseNews {
  const listeners = new Set<(reason: ClosedError) => void>();
  let closed: ClosedError | undefined;
  return {
    get isClosed() {
      return closed !== undefined;
    },
    onClose(fail) {
      if (closed !== undefined) fail(closed);
      listeners.add(fail);
      return () => listeners.delete(fail);
    },
    close() {
      closed ??= new ClosedError(`Bucket "${bucket}"`);
      for (const fail of listeners) fail(closed);
    },
  };
}
