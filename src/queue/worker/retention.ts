/**
 * How long done jobs stay: as many of a queue, and for as long, as its `keepDone` says. Each worker removes the others after every 64 jobs that
 * it has done, and a second after one (`lua/queue/ends/jobs-forget.lua`). BullMQ's `removeOnComplete` would look for them with
 * each job, which costs Redis five commands, and only then (taskforcesh/bullmq#1353). Failed jobs are
 * kept by `failed-retention.ts`.
 */
/** Removes done jobs that are no longer kept. */
export interface Retention {
  /** Notes that a job is done. */
  note(): void;
  /** Removes for the last time. */
  close(): Promise<void>;
}

const MOST_DONE = 64;
const REMOVE_MS = 1_000;

export function createRetention(
  forget: () => Promise<void>,
  onError: (error: Error) => void,
): Retention {
  // It removes after the first job: workers may end before they have done many, over and over.
  let done = MOST_DONE - 1;
  let timer: NodeJS.Timeout | undefined;
  /** The one request under way, also while Redis is away. */
  let removing: Promise<void> | undefined;
  let isClosed = false;

  function remove(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    done = 0;
    removing = forget()
      .catch((error: Error) => {
        onError(error);
        if (!isClosed) removeLater();
      })
      .finally(() => void (removing = undefined));
    return removing;
  }

  function removeLater(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      if (removing === undefined) void remove();
      else removeLater();
    }, REMOVE_MS).unref();
  }

  return {
    note() {
      done += 1;
      if (done >= MOST_DONE && removing === undefined) void remove();
      else removeLater();
    },
    async close() {
      isClosed = true;
      await removing;
      if (timer !== undefined) await remove();
    },
  };
}
