import { setMaxListeners } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { WaitingError, Worker as StoredWorker } from "bullmq";
import { StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { withSlotInHand } from "../throttle/slot-in-hand.ts";
import type { Slot } from "../throttle/slot.ts";
import { storedQueueName, type ConnectQueue } from "./connection.ts";
import type { Handler } from "./handler.ts";
import { readJob, type Job, type Stored } from "./job.ts";
import type { Queue } from "./queue.ts";
import { reportErrors } from "./report-errors.ts";
import { createRunning } from "./running.ts";
import {
  readCloseOptions,
  readWorkerOptions,
  type CloseOptions,
  type WorkerOptions,
} from "./worker-options.ts";

/** Works on a queue: draws a slot for each job just before its handler runs. */
export interface Worker {
  /**
   * Fetches no more jobs, puts those that wait for a slot back into the queue, and lets running
   * handlers end. At the deadline their signals are aborted, and their jobs are run again elsewhere
   * once their locks have ended. No handler starts after it resolves.
   */
  close(options?: CloseOptions): Promise<void>;
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

/** A job whose workers keep dying is given up after so many of them: it may be what kills them. */
const MOST_DEATHS = 10;
/** Finished jobs are kept for a look, but not without bound; failed ones are kept until somebody has seen to them. */
const KEEP_DONE = { count: 1_000, age: 86_400 };
const STORE_RETRY_MS = 1_000;
/** What a worker may need, its handlers having ended, to tell Redis what became of their jobs. */
const REDIS_GRACE_MS = 2_000;

export function createWorker<Data, Result>(settings: WorkerSettings<Data, Result>): Worker {
  const { queue, handler, connect, prefix, logger } = settings;
  const options = readWorkerOptions(settings.options);
  const { concurrency = 50, closeDeadlineMs = 30_000, lockMs = 30_000 } = options;
  const connection = connect("worker");
  const running = createRunning();
  const stopWaiting = new AbortController();
  const deadline = new AbortController();
  setMaxListeners(0, stopWaiting.signal, deadline.signal);
  let closing: Promise<void> | undefined;

  const stored = new StoredWorker<Data, Result>(
    storedQueueName(queue.name),
    (job, token, signal) => running.track(process(job, token!, signal!)),
    {
      connection: connection.client,
      prefix,
      concurrency,
      lockDuration: lockMs,
      stalledInterval: lockMs,
      maxStalledCount: MOST_DEATHS,
      removeOnComplete: KEEP_DONE,
    },
  );
  reportErrors(stored, `A worker of queue "${queue.name}"`, logger);
  stored.on("lockRenewalFailed", (ids) => {
    for (const id of ids) stored.cancelJob(id, "the lock of the job was lost");
  });

  async function process(
    bullJob: Stored<Data>,
    token: string,
    signal: AbortSignal,
  ): Promise<Result> {
    const job = readJob(bullJob);
    const slot = await slotFor(job);
    if (slot === undefined) {
      // With Redis away the job comes back by itself, when its lock has ended.
      if (connection.isReady()) await bullJob.moveToWait(token);
      throw new WaitingError();
    }
    const context = { signal, attempt: bullJob.attemptsMade + 1 };
    const run = async (): Promise<Result> => handler(job, context);
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
    await stored.pause(true);
    stopWaiting.abort();
    if (!(await running.untilNone(deadlineMs))) {
      stored.cancelAllJobs("the worker is closed");
      deadline.abort();
    }
    // BullMQ waits for Redis however long it is away; with force it does not, nor does it wait for handlers.
    const closed = stored.close(!connection.isReady());
    const isClosed = await Promise.race([closed, pause(REDIS_GRACE_MS, "late", { ref: false })]);
    if (isClosed === "late") void stored.disconnect();
    connection.close();
  }

  return {
    async close(given = {}) {
      const { deadlineMs = closeDeadlineMs } = readCloseOptions(given);
      await (closing ??= close(deadlineMs));
    },
    async [Symbol.asyncDispose]() {
      await (closing ??= close(closeDeadlineMs));
    },
  };
}
