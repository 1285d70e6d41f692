import { randomUUID } from "node:crypto";
import { availableParallelism } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import { sampled, type Logger } from "../../core/logger.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import { TooFar } from "../../throttle/waiting/waiting-call.ts";
import type { ConnectQueue } from "../bullmq/connection.ts";
import { movedToDelayed, movedToWait } from "../bullmq/errors.ts";
import { createStoredWorker } from "../bullmq/stored-worker.ts";
import type { Schema } from "../enqueue/data.ts";
import { fillDefaults, readJob, type Stored } from "../bullmq/stored-job.ts";
import { createFeeder, probeOf } from "../lanes/feeder.ts";
import { parkFromWorker } from "../lanes/park.ts";
import { tolerant } from "../lanes/weights.ts";
import { PARK_MS } from "../bullmq/stored-job.ts";
import {
  readCloseOptions,
  readWorkerOptions,
  type CloseOptions,
  type WorkerOptions,
} from "../options.ts";
import type { Queue } from "../queue.ts";
import { runAttempt } from "./attempt.ts";
import { createRunning, type Handler } from "./context.ts";
import { createFetchedJobs } from "./fetched-jobs.ts";
import { createDeadlines, createJobSlots } from "./job-start.ts";
import { createRetention } from "./retention.ts";
import { openHandler } from "./sandbox.ts";

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
  readonly queue: Queue<Data, unknown, never>;
  readonly bucket: OwnedBucket;
  readonly handler: Handler<Data, Result> | string | URL;
  readonly schema: Schema<Data> | undefined;
  readonly options: WorkerOptions;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly logger: Logger;
  /** The weight of a key's lane, if it is not 1. */
  readonly weightOf: (key: string | undefined) => number | undefined;
  readonly onClosed: () => void;
}

/** When a job's key has room, as it was told after so many changes. */
interface Told {
  readonly roomInMs: number;
  readonly changes: number;
}

const CLOSED = "the worker is closed";
/** What a worker may need, its handlers having ended, to tell Redis what became of their jobs. */
const REDIS_GRACE_MS = 2_000;

export function createWorker<Data, Result>(settings: WorkerSettings<Data, Result>): Worker {
  const { queue, bucket, schema, connect, prefix, onClosed } = settings;
  const logger = sampled(settings.logger, () => performance.now());
  const options = readWorkerOptions(settings.options);
  const isInline = typeof settings.handler === "function";
  const { concurrency = isInline ? 50 : availableParallelism(), timeoutMs } = options;
  const handler = openHandler(settings.handler, { processes: concurrency, logger });
  const { closeDeadlineMs = 30_000, lockMs = 30_000, patienceMs = 250 } = options;
  const connection = connect("worker");
  const common = { queue: queue.name, logger };
  const parts = { ...common, bucket, handler: handler.handle, schema, timeoutMs };
  const running = createRunning();
  const warn = (message: string) => (error: unknown) =>
    logger.warn({ queue: queue.name, reason: reasonOf(error) }, message);
  const weightOf = tolerant(settings.weightOf, warn("A key has no weight, and counts as 1."));
  const untold = "The limits of a job's key cannot be told; they are asked for again in a second.";
  const slots = createJobSlots(bucket, patienceMs, weightOf, warn(untold));
  let closing: Promise<void> | undefined;
  const told = { ...common, lanes: connection.lanes, worker: randomUUID() };
  const deadlines = createDeadlines({ ...common, connection });
  const held = createFetchedJobs({ ...told, running });
  const feeder = createFeeder({
    ...told,
    capacity: () => concurrency - running.count,
    deferred: () => bucket.deferred,
  });
  /** How often limits, a cooldown or a pause have changed. */
  let changes = 0;
  const stopHearing = bucket.onChange((key = "*") => {
    changes += 1;
    feeder.wake(key);
  });

  const stored = createStoredWorker<Data, Result>({
    ...common,
    connection,
    prefix,
    concurrency,
    lockMs,
    process,
  });
  const retention = createRetention(
    (kept) => connection.forgetDone(queue.name, kept),
    // What fails for want of Redis is told already.
    (error) => void (connection.isReady() && stored.emit("error", error)),
  );
  stored.on("completed", () => retention.note());
  stored.on("lockRenewalFailed", (ids) => {
    for (const id of ids) running.abort("its lock was lost", id);
  });

  async function process(bullJob: Stored<Data>, token: string): Promise<Result | undefined> {
    fillDefaults(bullJob);
    const context = running.add(bullJob.id!, bullJob.attemptsMade + 1);
    held.fetched();
    try {
      const reading = deadlines.read(bullJob);
      const job = reading instanceof Promise ? await reading : reading;
      const isReady = handler.ready();
      if (isReady !== undefined) await isReady;
      const arrival = job.key === undefined ? "fed" : await feeder.arrive(job.id);
      // It came due by itself, from a delay or a retry, and has yet to wait for its turn.
      if (arrival === "unfed") return await park(bullJob, token);
      const changesBefore = changes;
      const drawing = slots.draw(job, context);
      if (arrival === "probe") drawing.catch(() => feeder.missProbe(job.key!));
      const drawn = await (job.key === undefined ? drawing : feeder.whileWaiting(drawing));
      if (drawn instanceof TooFar) {
        return await park(bullJob, token, { roomInMs: drawn.roomInMs, changes: changesBefore });
      }
      if (drawn === undefined || context.isAborted) return await giveBack(bullJob, token, drawn);
      running.started(context);
      held.begun(context.jobId);
      deadlines.keep(job);
      feeder.start(probeOf(job, arrival, drawn));
      const { hasLease } = drawn;
      try {
        return await runAttempt(parts, { stored: bullJob, job, context, slot: drawn });
      } finally {
        if (hasLease && job.key !== undefined) feeder.wake(job.key);
      }
    } finally {
      running.end(context);
      held.begun(context.jobId);
    }
  }

  /** Its place here is another job's now; it comes back in its turn, when its key has room. */
  async function park(bullJob: Stored<Data>, token: string, told?: Told): Promise<never> {
    await bullJob.moveToDelayed(Date.now() + PARK_MS, token);
    const weight = weightOf(readJob(bullJob).key);
    // What it was told before a change is no longer so, and its lane was woken before the job lay in it.
    const isSo = told !== undefined && told.changes === changes;
    feeder.park({ id: bullJob.id!, weight, roomInMs: isSo ? Math.ceil(told.roomInMs) : undefined });
    throw movedToDelayed();
  }

  async function giveBack(bullJob: Stored<Data>, token: string, slot?: Slot): Promise<never> {
    slot?.release();
    // With its lock lost, or Redis away, the job comes back by itself.
    if (slot !== undefined || !connection.isReady()) throw movedToWait();
    return parkFromWorker(bullJob, token, { ...told, weightOf });
  }

  async function closeStored(isForced: boolean): Promise<void> {
    await stored.close(isForced);
    if (connection.isReady()) await retention.close();
  }

  async function close(deadlineMs: number): Promise<void> {
    // First of all it fetches no more, or BullMQ would take a job in the place of each that goes back.
    await stored.pause(true);
    stopHearing();
    slots.close();
    running.leave(CLOSED);
    const isTold = Promise.all([feeder.close(), held.close()]);
    if (connection.isReady()) await untilTooLong(isTold);
    const haveAllEnded = await running.untilNone(deadlineMs);
    running.abort(CLOSED);
    // BullMQ waits for handlers, and for Redis however long it is away; with force it does not.
    await untilTooLong(closeStored(!haveAllEnded || !connection.isReady()));
    // Not before: a job whose process is ended now would count as failed.
    await handler.close();
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

/** Waits for what a worker that closes still asks of Redis. */
async function untilTooLong(asking: Promise<unknown>): Promise<void> {
  await Promise.race([asking, pause(REDIS_GRACE_MS, undefined, { ref: false })]);
}
