import type { KeptJobs } from "../../core/queue-store.ts";

/** Removes done jobs that are no longer kept. BullMQ would look for them with each job, which costs Redis five commands. */
export interface Retention {
  /** A job was done. */
  note(): void;
  /** Looks for the last time. */
  close(): Promise<void>;
}

/** Finished jobs are kept for a look, but not without bound; failed ones are kept until somebody has seen to them. */
const KEPT: KeptJobs = { most: 1_000, forMs: 86_400_000 };
/** A worker looks when so many more are done, … */
const MOST_UNSEEN = 64;
/** … and so long after one was done. */
const LOOK_MS = 1_000;

export function createRetention(
  forget: (kept: KeptJobs) => Promise<void>,
  onError: (error: Error) => void,
): Retention {
  // The first one at once: a worker may end before it has done many, over and over.
  let unseen = MOST_UNSEEN - 1;
  let timer: NodeJS.Timeout | undefined;
  /** One at a time: while Redis is away, one is on its way. */
  let looking: Promise<void> | undefined;
  let isClosed = false;

  function look(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    unseen = 0;
    looking = forget(KEPT)
      .catch((error: Error) => {
        onError(error);
        if (!isClosed) lookLater();
      })
      .finally(() => void (looking = undefined));
    return looking;
  }

  function lookLater(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      if (looking === undefined) void look();
      else lookLater();
    }, LOOK_MS).unref();
  }

  return {
    note() {
      unseen += 1;
      if (unseen >= MOST_UNSEEN && looking === undefined) void look();
      else lookLater();
    },
    async close() {
      isClosed = true;
      await looking;
      if (timer !== undefined) await look();
    },
  };
}
