/**
 * Removes done jobs beyond the number and age that the queue's `keepDone` allows. Each worker removes such jobs when it
 * starts, after every 64 done jobs, a second after a done job, and when kept jobs become too old
 * (`lua/queue/ends/jobs-forget.lua`). BullMQ's `removeOnComplete` is not used: it would look for such jobs at the end
 * of each job, which costs Redis five commands, and at no other time (taskforcesh/bullmq#1353). For failed jobs see
 * {@link createFailedRetention}.
 */
import type { Logger } from "../../core/logger.ts";
import type { KeptFailed } from "../../stores/redis/scripts/queue/jobs.ts";

/** Removes jobs that are no longer kept. */
interface Retention {
  /** Records that a job is done. */
  note(): void;
  /** Removes old jobs one last time, then stops. */
  close(): Promise<void>;
}

const MOST_DONE = 64;
const REMOVE_MS = 1_000;
/**
 * How often to look for old jobs while this worker completes none. The workers that ran the old jobs may have stopped.
 */
const LOOK_MS = 60_000;

export function createRetention(
  forget: () => Promise<void>,
  onError: (error: Error) => void,
  /** Returns how long jobs are kept, in ms. Infinity means at any age. */
  forMsOf: () => number = () => Infinity,
): Retention {
  let done = 0;
  let timer: NodeJS.Timeout | undefined;
  let looking: NodeJS.Timeout | undefined;
  /** True if jobs were done since the last check for old jobs. */
  let isWorking = false;
  /** The request in flight. There is at most one, even while Redis is unreachable. */
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

  const soonMs = (): number => Math.max(REMOVE_MS, Math.min(forMsOf(), LOOK_MS));

  function lookIn(ms: number): void {
    clearTimeout(looking);
    looking = setTimeout(() => {
      if (removing === undefined) void remove();
      else removeLater();
      lookIn(isWorking ? soonMs() : LOOK_MS);
      isWorking = false;
    }, ms).unref();
  }

  void remove();
  lookIn(LOOK_MS);

  return {
    note() {
      done += 1;
      if (done >= MOST_DONE && removing === undefined) void remove();
      else removeLater();
      if (!isWorking && soonMs() < LOOK_MS) lookIn(soonMs());
      isWorking = true;
    },
    async close() {
      isClosed = true;
      clearTimeout(looking);
      await removing;
      if (timer !== undefined) await remove();
    },
  };
}

interface FailedRetentionParts {
  readonly queue: string;
  readonly kept: {
    readonly now: { readonly keepFailed: KeptFailed | undefined };
    current(): Promise<{ readonly keepFailed: KeptFailed | undefined }>;
  };
  /** Removes dead letters that are no longer kept. Resolves with the number of removed dead letters. */
  readonly forget: (kept: KeptFailed) => Promise<number>;
  readonly onError: (error: Error) => void;
  readonly logger: Logger;
}

/**
 * At most one line is logged in this time. The line has the number of all dead letters that were removed since the last
 * line.
 */
const LOG_MS = 10_000;

/**
 * Removes the dead letters that the queue's `keepFailed` no longer keeps, and logs their number. Dead letters are
 * removed at the same times as done jobs (`lua/queue/ends/failed-forget.lua`). Without `keepFailed`, they are kept
 * forever.
 */
export function createFailedRetention({
  queue,
  kept,
  forget,
  onError,
  logger,
}: FailedRetentionParts): Retention {
  let removed = 0;
  let loggedAtMs = -Infinity;
  let timer: NodeJS.Timeout | undefined;

  function log(): void {
    clearTimeout(timer);
    timer = undefined;
    loggedAtMs = performance.now();
    const facts = { queue, removed, keepFailed: kept.now.keepFailed };
    const text = `Removed ${removed} dead letters of queue "${queue}" that its keepFailed no longer keeps.`;
    removed = 0;
    logger.warn(facts, text);
  }

  async function forgetSome(): Promise<void> {
    const { keepFailed } = await kept.current();
    if (keepFailed === undefined) return;
    removed += await forget(keepFailed);
    if (removed === 0 || timer !== undefined) return;
    const waitMs = loggedAtMs + LOG_MS - performance.now();
    if (waitMs <= 0) log();
    else timer = setTimeout(log, waitMs).unref();
  }

  const retention = createRetention(
    forgetSome,
    onError,
    () => kept.now.keepFailed?.forMs ?? Infinity,
  );
  return {
    note: () => retention.note(),
    async close() {
      await retention.close();
      if (timer !== undefined) log();
    },
  };
}
