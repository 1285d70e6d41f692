import { setTimeout as pause } from "node:timers/promises";
import { WaitingError, Worker as StoredWorker } from "bullmq";
import { InvalidOptionError, StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import type { Slot } from "../throttle/slot.ts";
import { runAttempt } from "./attempt.ts";
import { storedQueueName, type ConnectQueue } from "./connection.ts";
import { createJobContext, type Handler, type OwnedJobContext } from "./handler.ts";
import { fillDefaults, readJob, type Job, type Stored } from "./job.ts";
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
  readonly bucket: OwnedBucket;
  readonly handler: Handler<Data, Result>;
  readonly options: WorkerOptions;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly logger: Logger;
  readonly onClosed: () => void;
}

/** A job whose workers keep dying is given up after so many of them: it may be what kills them. */
const MOST_DEATHS = 10;
/** Finished jobs are kept for a look, but not without bound; failed ones are kept until somebody has seen to them. */
const KEEP_DONE = { count: 1_000, age: 86_400 };
const CLOSED = "the worker is closed";
const STORE_RETRY_MS = 1_000;
/** What a worker may need, its handlers having ended, to tell Redis what became of their jobs. */
const REDIS_GRACE_MS = 2_000;

export function createWorker<Data, Result>(settings: WorkerSettings<Data, Result>): Worker {
  const { queue, bucket, handler, connect, prefix, logger, onClosed } = settings;
  const options = readWorkerOptions(settings.options);
  if (typeof handler !== "function") {
    const remedy = "give the function that does one job";
    throw new InvalidOptionError({ where: "worker()", option: "handler", value: handler, remedy });
  }
  const { concurrency = 50, closeDeadlineMs = 30_000, lockMs = 30_000 } = options;
  const connection = connect("worker");
  const parts = { queue: queue.name, bucket, handler, logger };
  const running = createRunning();
  /** What ends the waits of jobs for their slots. */
  const waits = new Set<(reason: string) => void>();
  /** The jobs that are here, by their ids. */
  const contexts = new Map<string, OwnedJobContext>();
  let isClosing = false;
  let closing: Promise<void> | undefined;

  const stored = new StoredWorker<Data, Result | undefined>(
    storedQueueName(queue.name),
    (job, token) => process(job, token!),
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
    for (const id of ids) contexts.get(id)?.abort("the lock of the job was lost");
  });

  async function process(bullJob: Stored<Data>, token: string): Promise<Result | undefined> {
    fillDefaults(bullJob);
    const job = readJob(bullJob);
    const context = createJobContext(bullJob.attemptsMade + 1);
    contexts.set(job.id, context);
    running.begin();
    try {
      const slot = await slotFor(job);
      if (slot !== undefined && !context.isAborted) {
        return await runAttempt(parts, { stored: bullJob, job, context, slot });
      }
      slot?.release();
      // With its lock lost, or Redis away, the job comes back by itself.
      if (slot === undefined && connection.isReady()) await bullJob.moveToWait(token);
      throw new WaitingError();
    } finally {
      contexts.delete(job.id);
      running.end();
    }
  }

  /** The job's slot, or undefined if the worker is closed before it comes. An outage is waited out. */
  async function slotFor({ key, priority }: Job<Data>): Promise<Slot | undefined> {
    while (!isClosing) {
      try {
        return await bucket.drawForJob({ key, priority }, waits);
      } catch (error) {
        if (isClosing) return undefined;
        if (!(error instanceof StoreUnavailableError)) throw error;
        await pauseUnlessClosed();
      }
    }
    return undefined;
  }

  async function pauseUnlessClosed(): Promise<void> {
    const pausing = new AbortController();
    const stop = (): void => pausing.abort();
    waits.add(stop);
    await pause(STORE_RETRY_MS, undefined, pausing).catch(() => undefined);
    waits.delete(stop);
  }

  async function close(deadlineMs: number): Promise<void> {
    isClosing = true;
    // First of all it fetches no more, or BullMQ would take a job in the place of each that goes back.
    await stored.pause(true);
    for (const stopWaiting of waits) stopWaiting(CLOSED);
    const haveAllEnded = await running.untilNone(deadlineMs);
    for (const context of contexts.values()) context.abort(CLOSED);
    // BullMQ waits for handlers, and for Redis however long it is away; with force it does not.
    const closed = stored.close(!haveAllEnded || !connection.isReady());
    const isClosed = await Promise.race([closed, pause(REDIS_GRACE_MS, "late", { ref: false })]);
    if (isClosed === "late") void stored.disconnect();
    connection.close();
    onClosed();
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
