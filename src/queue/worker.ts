import { setMaxListeners } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { WaitingError, Worker as StoredWorker } from "bullmq";
import { z } from "zod";
import { StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../core/options.ts";
import { withSlotInHand } from "../throttle/slot-in-hand.ts";
import type { Slot } from "../throttle/slot.ts";
import { storedQueueName, type ConnectQueue } from "./connection.ts";
import { readJob, type Job, type Stored } from "./job.ts";
import type { Queue } from "./queue.ts";

/** What a handler gets beside its job. */
export interface JobContext {
  /** Aborted when the worker's deadline is over or the job's lock is lost: another worker may then run the job. */
  readonly signal: AbortSignal;
  /** 1 at the first try. */
  readonly attempt: number;
}

/** Does one job; what it throws counts as a failed attempt. */
export type Handler<Data, Result> = (job: Job<Data>, context: JobContext) => Promise<Result>;

export interface WorkerOptions {
  /** How many jobs this worker holds at once, waiting for their slots or running. Defaults to 50. */
  readonly concurrency?: number | undefined;
  /** How long a running handler may go on after `close()`, unless close says otherwise. Defaults to 30,000 ms. */
  readonly closeDeadlineMs?: number | undefined;
  /** How long a job stays with a worker that has died or stands still. Defaults to 30,000 ms. */
  readonly lockMs?: number | undefined;
}

/** Draws a slot for each job just before its handler runs. */
export interface Worker {
  /**
   * Fetches no more jobs, puts those that wait for a slot back into the queue, and lets running
   * handlers end. At the deadline their signals are aborted, and their jobs are run again elsewhere
   * once their locks have ended. No handler starts after it resolves.
   */
  close(options?: { readonly deadlineMs?: number | undefined }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface WorkerSettings<Data, Result> {
  readonly queue: Queue<Data>;
  readonly handler: Handler<Data, Result>;
  readonly options: WorkerOptions;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly logger: Logger;
}

const WORKER_OPTIONS = z.strictObject({
  concurrency: wholeNumber(1, 100_000, "jobs").optional(),
  closeDeadlineMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
  lockMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
});
const CLOSE_OPTIONS = z.strictObject({
  deadlineMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
});

/** A job whose workers keep dying is given up after so many of them: it may be what kills them. */
const MOST_DEATHS = 10;
/** Finished jobs are kept for a look, but not without bound; failed ones are kept until somebody has seen to them. */
const KEEP_DONE = { count: 1_000, age: 86_400 };
const STORE_RETRY_MS = 1_000;

export function createWorker<Data, Result>(settings: WorkerSettings<Data, Result>): Worker {
  const { queue, handler, connect, prefix, logger } = settings;
  const options = readOptions("worker()", WORKER_OPTIONS, settings.options);
  const { concurrency = 50, closeDeadlineMs = 30_000, lockMs = 30_000 } = options;
  const connection = connect("worker");
  const stopWaiting = new AbortController();
  const deadline = new AbortController();
  setMaxListeners(0, stopWaiting.signal, deadline.signal);
  let closing: Promise<void> | undefined;

  const stored = new StoredWorker<Data, Result>(storedQueueName(queue.name), process, {
    connection: connection.client,
    prefix,
    concurrency,
    lockDuration: lockMs,
    stalledInterval: lockMs,
    maxStalledCount: MOST_DEATHS,
    removeOnComplete: KEEP_DONE,
  });
  stored.on("error", (error) =>
    logger.error({ queue: queue.name, error }, "A worker met an error."),
  );
  stored.on("lockRenewalFailed", (ids) => {
    for (const id of ids) stored.cancelJob(id, "the lock of the job was lost");
  });

  async function process(bullJob: Stored<Data>, token?: string, signal?: AbortSignal) {
    const job = readJob(bullJob);
    const slot = await slotFor(job);
    if (slot === undefined) {
      await bullJob.moveToWait(token);
      throw new WaitingError();
    }
    const context = { signal: signal!, attempt: bullJob.attemptsMade + 1 };
    const run = (): Promise<Result> => handler(job, context);
    return untilDeadline(withSlotInHand({ bucket: queue.bucket, slot, cost: 1 }, run));
  }

  /** The job's slot, or undefined if the worker is closed before it comes. An outage is waited out. */
  async function slotFor({ key, priority }: Job<Data>): Promise<Slot | undefined> {
    const { signal } = stopWaiting;
    while (!signal.aborted) {
      try {
        return await queue.bucket.draw({ key, priority, signal });
      } catch (error) {
        if (signal.aborted) return undefined;
        if (!(error instanceof StoreUnavailableError)) throw error;
        await pause(STORE_RETRY_MS, undefined, { signal }).catch(() => undefined);
      }
    }
    return undefined;
  }

  /** Leaves a handler that outlasts the deadline: its job keeps its lock, and is run again when that ends. */
  async function untilDeadline(result: Promise<Result>): Promise<Result> {
    const { signal } = deadline;
    return new Promise((resolve, reject) => {
      const leave = (): void => reject(new WaitingError());
      signal.addEventListener("abort", leave, { once: true });
      const settled = (): void => signal.removeEventListener("abort", leave);
      result.then(resolve, reject).finally(settled);
    });
  }

  async function close(deadlineMs: number): Promise<void> {
    // BullMQ first: it then fetches no job in the place of those that go back.
    const closed = stored.close();
    stopWaiting.abort();
    const timer = setTimeout(() => {
      stored.cancelAllJobs("the worker is closed");
      deadline.abort();
    }, deadlineMs);
    await closed;
    clearTimeout(timer);
    connection.close();
  }

  return {
    async close(given = {}) {
      const { deadlineMs = closeDeadlineMs } = readOptions("close()", CLOSE_OPTIONS, given);
      await (closing ??= close(deadlineMs));
    },
    async [Symbol.asyncDispose]() {
      await (closing ??= close(closeDeadlineMs));
    },
  };
}
