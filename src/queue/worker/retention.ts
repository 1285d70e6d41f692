/**
 * How long done jobs stay: as many of a queue, and for as long, as its `keepDone` says. Each worker removes the others as
 * it starts, after every 64 jobs that it has done, a second after one, and as those that are left get too old
 * (`lua/queue/ends/jobs-forget.lua`). BullMQ's `removeOnComplete` would look for them with each job, which costs Redis
 * five commands, and only then (taskforcesh/bullmq#1353). Failed jobs: {@link createFailedRetention}.
 */
import type { Logger } from "../../core/logger.ts";
import type { KeptFailed } from "../../stores/redis/scripts/queue/jobs.ts";

/** Removes done jobs that are no longer kept. */
interface Retention {
  /** Notes that a job is done. */
  note(): void;
  /** Removes for the last time. */
  close(): Promise<void>;
}

const MOST_DONE = 64;
const REMOVE_MS = 1_000;
/** How often it is looked for what has become too old, though none is done: workers that did jobs may be gone. */
const LOOK_MS = 60_000;

export function createRetention(
  forget: () => Promise<void>,
  onError: (error: Error) => void,
  /** For how long they are kept by now; Infinity: however old they are. */
  forMsOf: () => number = () => Infinity,
): Retention {
  let done = 0;
  let timer: NodeJS.Timeout | undefined;
  let looking: NodeJS.Timeout | undefined;
  /** Whether jobs were done since it was looked for what has become too old. */
  let isWorking = false;
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
  /** Removes those that are no longer kept; how many. */
  readonly forget: (kept: KeptFailed) => Promise<number>;
  readonly onError: (error: Error) => void;
  readonly logger: Logger;
}

/** At most one line is logged in this time, with the number of all that were removed. */
const LOG_MS = 10_000;

/**
 * Removes dead letters that are older than the queue's `keepFailed`, as done jobs are removed
 * (`lua/queue/ends/failed-forget.lua`), and logs how many. Without `keepFailed` they stay for good.
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
    const text = `Removed ${removed} dead letters of queue "${queue}" that its keepFailed keeps no longer.`;
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
