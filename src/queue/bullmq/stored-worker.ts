import { setTimeout as pause } from "node:timers/promises";
import type { createRedisBackend, Worker as StoredWorker } from "bullmq";
import type { Logger } from "../../core/logger.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import type { TakenJob } from "../../stores/redis/scripts/queue/lanes.ts";
import { readErrorFacts } from "../failure.ts";
import {
  createErrorReports,
  storedQueueName,
  type QueueConnection,
  onRedisTime,
} from "./connection.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { publishRetries } from "./stored-events.ts";
import { DUE, FAILURE, noteDue, readFields, type Stored } from "./stored-job.ts";

/** A job that a worker has fetched. */
export interface HeldJob extends TakenJob {
  /** When the worker requested the job, on `performance.now()`. The job's lock began at this time or later. */
  readonly takenAtMs: number;
}

/** The next job of a worker. Without a job, `nextMs` is the time in ms until there may be one. */
export type Fetched =
  | { readonly job: HeldJob }
  | { readonly job: undefined; readonly nextMs: number | undefined };

/** Supplies BullMQ's worker with jobs. */
export interface JobSupply {
  /** True if the supply returns no more jobs. */
  readonly isClosed: boolean;
  /** Records that a job's outcome was stored, or never will be, so that the worker no longer holds the job's lock. */
  release(id: string, token: string): void;
  /**
   * Resolves with the next job, once the worker can start a job soon. Resolves without a job if there is none. Rejects
   * if the request to Redis fails.
   */
  next(): Promise<Fetched>;
  /**
   * Called when Redis has signalled that there may be a job. The latest reply that there are no jobs is no longer
   * valid.
   */
  look(): void;
  /** Resolves when a fetched job is ready, for example because a request that sent updates also fetched jobs. */
  untilReady(): Promise<void>;
}

export interface StoredWorkerSettings {
  readonly queue: string;
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly concurrency: number;
  readonly lockMs: number;
  /** True if any worker may hold a job whose lock has expired or will expire soon. */
  readonly mayStall: () => boolean;
  /** Called once a job's outcome is stored, with the token of its lock. Never rejects. */
  readonly onStored: (token: string) => Promise<void> | undefined;
  /** Called with the id of a job once the outcome of an attempt is stored. */
  readonly onEnded: (id: string) => void;
  /** Called with the jobs that were recovered from dead workers. Never rejects. */
  readonly onRecovered: (ids: readonly string[]) => Promise<void>;
  readonly logger: Logger;
}

/** How many jobs with an undecided outcome a worker may hold, in addition to the jobs whose handlers run. */
export const MOST_BESIDE = 100;
/**
 * The share of `lockMs` after which each worker looks for expired locks. BullMQ lets only one worker look in each
 * interval, and that worker may have looked just before a lock expired. So a dead worker's job is found within a
 * quarter of `lockMs`, that is, two intervals.
 */
const LOOK_SHARE = 1 / 8;

/** Creates the BullMQ worker that stores the outcomes of jobs. `process` gets BullMQ's job and how it was fetched. */
export function createStoredWorker<Data, Result>(
  settings: StoredWorkerSettings,
  fetcher: JobSupply,
  process: (job: Stored<Data>, taken: HeldJob) => Promise<Result | undefined>,
): StoredWorker<Data, Result | undefined> {
  const { queue, connection, prefix, concurrency, lockMs, logger } = settings;
  const { Worker } = loadBullmq();
  /** The fetched jobs, by the token of the job's lock. */
  const handedOut = new Map<string, HeldJob>();
  /**
   * Makes another worker look for jobs, because this worker has consumed the marker that signals jobs, but fetches
   * none.
   */
  const wake = (): void => void connection.wakeIdle({ queue }).catch(() => undefined);
  const wait = createJobWait(fetcher, wake);
  const stored = connection.adoptCopies(
    () =>
      new Worker<Data, Result | undefined>(
        storedQueueName(queue),
        (job, token) => {
          const taken = handedOut.get(token!)!;
          handedOut.delete(token!);
          return process(job, taken);
        },
        {
          connection: connection.client,
          prefix,
          // The fetcher limits the number of jobs. It does not count jobs whose outcome is being stored, so this bound
          // is higher.
          concurrency: 2 * concurrency + 1 + MOST_BESIDE,
          lockDuration: lockMs,
          // `worker/held/held-jobs.ts` renews the locks.
          skipLockRenewal: true,
          stalledInterval: Math.ceil(lockMs * LOOK_SHARE),
          // Turns off BullMQ's limit, which counts the death of a worker for all jobs that the worker held.
          // `worker/job-start.ts` counts a death only for jobs that ran.
          maxStalledCount: Number.MAX_SAFE_INTEGER,
          // Locks could expire within BullMQ's default of 15 s.
          runRetryDelay: ASK_AGAIN_MS,
          autorun: false,
        },
        backendFor(wait, { ...settings, clock: connection.clockOf(queue) }),
      ),
  );
  const letFollow = (id: string, dedupeId: string): Promise<void> =>
    // If this request fails, the job that follows becomes due by itself within ten seconds.
    connection.letFollow({ queue, id, dedupeId }).then(wait.lookSoon, () => undefined);
  const { lookSoon } = wait;
  fetchBy(stored as unknown as Insides, fetcher, {
    ...settings,
    handedOut,
    wake,
    letFollow,
    lookSoon,
  });
  keepFacts(stored as unknown as Insides);
  createErrorReports(`A worker of queue "${queue}"`, logger).watch(stored);
  publishRetries(stored);
  stored.run().catch((error: Error) => stored.emit("error", error));
  return stored;
}

/** The members of BullMQ's worker that `fetchBy` uses although BullMQ's types do not declare them. */
interface Insides {
  readonly backend: { readonly closing: boolean };
  moveToActive(token: string): Promise<unknown>;
  processJob(
    job: { readonly id: string; readonly deduplicationId?: string },
    token: string,
    fetchNext: () => boolean,
  ): Promise<unknown>;
  nextJobFromJobData(fields: unknown, id?: string, token?: string): Promise<unknown>;
  updateDelays(limitedForMs: number, nextAtMs: number): void;
  handleFailed(error: Error, job: object, ...rest: readonly unknown[]): Promise<unknown>;
  handleCompleted(result: unknown, job: object, ...rest: readonly unknown[]): Promise<unknown>;
}

/** A worker for jobs of any type. */
export type AnyWorker = StoredWorker<never, never>;

/**
 * Stores the outcome of a job that is active, but that BullMQ's worker does not process. Rejects with BullMQ's error,
 * which has a numeric `code`, if the token is not that of the job's lock.
 */
export async function storeOutcome(
  stored: AnyWorker,
  job: Stored<unknown>,
  token: string,
  outcome: { readonly result: unknown } | { readonly failure: Error },
): Promise<void> {
  const worker = stored as unknown as Insides;
  // BullMQ then stores nothing, without an error.
  if (worker.backend.closing) throw new Error("the queue's connection is closing");
  const noNext = (): boolean => false;
  if ("failure" in outcome) await worker.handleFailed(outcome.failure, job, token, noNext);
  else await worker.handleCompleted(outcome.result, job, token, noNext);
}

/** For each job whose failure is being stored: the code, status and causes of its error, as JSON. */
const facts = new WeakMap<object, string>();

/**
 * Keeps the code, status and causes of an error until BullMQ stores the failed attempt. BullMQ stores only the message,
 * so `backendFor` writes these fields together with the message. BullMQ has no option for this; checked with bullmq
 * 6.7.0 (`handleFailed` in worker.js, `moveToFailed` in job.js).
 */
function keepFacts(worker: Insides): void {
  const handleFailed = worker.handleFailed.bind(worker);
  worker.handleFailed = (error, job, ...rest) => {
    facts.set(job, JSON.stringify(readErrorFacts(error)));
    return handleFailed(error, job, ...rest);
  };
}

/**
 * Makes BullMQ's worker get its jobs from the fetcher, because BullMQ's own fetches do not use lanes. BullMQ has no
 * option for this; checked with bullmq 6.7.0 (worker.js).
 *
 * - The worker pauses after Redis rejects a fetch (full memory, missing rights, a replica). BullMQ would ask again at
 *   once and without end. If the call throws synchronously, this is a loop of microtasks that blocks the process. Known
 *   of the older Bull (OptimalBits/bull#1304) and of early BullMQ (taskforcesh/bullmq#389); no open issue known
 *   (`retryIfFailed` in worker.js pauses only after connection errors).
 * - With each job, this function claims that a delayed job is due. BullMQ fetches a job for each free place, one after
 *   another, before it starts the first job (taskforcesh/bullmq#2157, #2242). Far from Redis, locks would expire during
 *   that time. BullMQ leaves this loop early if `blockUntil` is set (`mainLoop` in worker.js).
 */
function fetchBy(
  worker: Insides,
  fetcher: Pick<JobSupply, "next" | "isClosed" | "release">,
  {
    handedOut,
    wake,
    onStored,
    onEnded,
    letFollow,
    lookSoon,
  }: Pick<StoredWorkerSettings, "onStored" | "onEnded"> & {
    readonly lookSoon: () => void;
    readonly handedOut: Map<string, HeldJob>;
    readonly wake: () => void;
    /** If this job has ended, allows the job to start that was stored to run after it. */
    readonly letFollow: (id: string, dedupeId: string) => Promise<void>;
  },
): void {
  const processJob = worker.processJob.bind(worker);
  function release(id: string, token: string): void {
    // BullMQ does not call the processor for some jobs, so their entries must be deleted here.
    handedOut.delete(token);
    fetcher.release(id, token);
  }

  worker.processJob = (job, token) => {
    const { id, deduplicationId } = job;
    const processing = processJob(job, token, () => false).finally(() => {
      release(id, token);
      onEnded(id);
      // When a run ended, the next run of its schedule may be due soon.
      if (id.startsWith("repeat:")) lookSoon();
      return onStored(token);
    });
    // Only a job with a dedupeId may have a job that runs after it.
    if (deduplicationId === undefined) return processing;
    return processing.finally(() => letFollow(id, deduplicationId));
  };
  worker.moveToActive = async () => {
    let fetched: Fetched;
    try {
      fetched = await fetcher.next();
    } catch (error) {
      await pause(ASK_AGAIN_MS, undefined, { ref: false });
      throw error;
    }
    const { job } = fetched;
    if (job === undefined) {
      if (fetcher.isClosed) wake();
      worker.updateDelays(0, fetched.nextMs === undefined ? 0 : Date.now() + fetched.nextMs);
      return worker.nextJobFromJobData(undefined);
    }
    worker.updateDelays(0, LONG_PAST_MS);
    handedOut.set(job.token, job);
    const made = await worker.nextJobFromJobData(readFields(job.fields, job.id), job.id, job.token);
    if (made === undefined) release(job.id, job.token);
    return made;
  };
}

/** Returns a fetched job as BullMQ's job object. */
export function storedJobOf<Data, Result>(
  stored: StoredWorker<Data, Result>,
  taken: Pick<TakenJob, "id" | "token" | "fields">,
): Stored<Data> {
  const { Job } = loadBullmq();
  const job = Job.fromJSON(
    stored,
    readFields(taken.fields, taken.id),
    taken.id,
  ) as unknown as Stored<Data>;
  job.token = taken.token;
  return job;
}

/** How long a worker waits before it asks Redis again after a rejected request or a lost connection. */
const ASK_AGAIN_MS = 1_000;

/** A time earlier than that of any delayed job, in ms since 1970. */
const LONG_PAST_MS = 1;

/**
 * BullMQ's backend for a worker that gets its jobs from the fetcher:
 *
 * - Storing a job's outcome does not fetch the next job. BullMQ's worker would take an empty fetch for an empty queue,
 *   and wait. No upstream issue known; checked with bullmq 6.7.0 (`handleCompleted` in worker.js).
 * - An idle worker waits for a marker in Redis that signals jobs, and for jobs that are ready in this process. It does
 *   not wait for jobs that it puts back itself.
 * - The worker looks for expired locks only while there may be some.
 * - All scripts use the clock of Redis.
 */
function backendFor(
  wait: JobWait,
  {
    clock,
    mayStall,
    onRecovered,
  }: Pick<StoredWorkerSettings, "mayStall" | "onRecovered"> & { readonly clock: RedisClock },
): typeof createRedisBackend {
  const create = onRedisTime(loadBullmq().createRedisBackend, clock);
  return (...settings) => {
    const backend = create(...settings);
    const finish = backend.moveToFinished.bind(backend);
    const fail = backend.moveToFailed.bind(backend);
    const delay = backend.moveToDelayed.bind(backend);
    const retry = backend.retryJob.bind(backend);
    const lookForStalled = backend.moveStalledJobsToWait.bind(backend);
    backend.waitForJob = wait.by(backend.waitForJob.bind(backend));
    backend.moveToFinished = async (...job) => {
      await finish(...job);
      return undefined as never;
    };
    backend.moveToFailed = (job, reason, remove, token, fetchNext, fields) =>
      fail(job, reason, remove, token, fetchNext, { ...fields, [FAILURE]: facts.get(job) ?? "" });
    backend.moveToDelayed = async (id, timestamp, delayMs, token, options) => {
      // Without fields to update, the job goes back without a counted attempt, and keeps its due time.
      const dueAgain = options?.fieldsToUpdate && {
        fieldsToUpdate: { ...options.fieldsToUpdate, [DUE]: clock.latestMs() + delayMs },
      };
      await delay(id, timestamp, delayMs, token, { ...options, ...dueAgain });
      wait.lookSoon();
    };
    backend.retryJob = async (id, lifo, token, options) => {
      const fieldsToUpdate = { ...options?.fieldsToUpdate, [DUE]: clock.latestMs() };
      const retried = await retry(id, lifo, token, { ...options, fieldsToUpdate });
      wait.lookSoon();
      return retried;
    };
    backend.moveStalledJobsToWait = async () => {
      const recovered = mayStall() ? await lookForStalled() : [];
      await noteDue(backend, recovered, clock);
      await onRecovered(recovered);
      if (recovered.length > 0) wait.lookNow();
      return recovered;
    };
    return backend;
  };
}

type Marker = Awaited<ReturnType<ReturnType<typeof createRedisBackend>["waitForJob"]>>;

/** An idle worker's wait for jobs. */
interface JobWait {
  /**
   * Returns a function that waits for the marker in Redis, for at most this many seconds. `forMarker` is BullMQ's own
   * wait.
   */
  by(forMarker: (seconds: number) => Promise<Marker>): (seconds: number) => Promise<Marker>;
  /**
   * Ends the wait at once. Called when this worker has put a job back into the queue, because it must not rely on the
   * marker.
   */
  lookNow(): void;
  /**
   * Ends the wait if the marker does not come soon. Called when a job may have become due, because the marker is
   * usually in flight.
   */
  readonly lookSoon: () => void;
}

/** How long a marker may be in flight. */
const MARKER_MS = 25;

/**
 * Creates the wait for the marker, which ends early if jobs are ready. If the marker comes while this worker no longer
 * waits, another worker is woken instead. The worker asks Redis for jobs whatever time the marker contains, because
 * that may be the time of a job that is parked for a day.
 *
 * Only one worker gets the marker. If that worker hangs, no other worker looks for the job. So a worker does not rely
 * on the marker for jobs that it put back itself, and producers check that their jobs are fetched
 * (`enqueue/storing.ts`).
 */
function createJobWait(
  { look, untilReady }: Pick<JobSupply, "look" | "untilReady">,
  wake: () => void,
): JobWait {
  /** Ends the current wait for jobs. */
  let leave = (): void => {};
  let waits = 0;
  let forMarker: (seconds: number) => Promise<Marker>;
  let asked: Promise<{ readonly marker: Marker } | { readonly error: unknown }> | undefined;
  let isWaited = false;
  /**
   * True if the request `asked` is older than the current wait. If this request ends without a marker, the wait
   * continues.
   */
  let isOld = false;

  function ask(seconds: number): NonNullable<typeof asked> {
    const asking = forMarker(seconds).then(
      (marker) => {
        if (marker !== null && !isWaited) {
          asked = undefined;
          wake();
        }
        return { marker };
      },
      (error: unknown) => ({ error }),
    );
    return asking;
  }

  async function waitFor(seconds: number): Promise<Marker> {
    isWaited = true;
    waits += 1;
    const timer = new AbortController();
    const isOver = pause(seconds * 1_000, "over", { signal: timer.signal }).catch(() => "over");
    const isReady = untilReady();
    const isLeft = new Promise<string>((resolve) => {
      leave = () => resolve("left");
    });
    try {
      for (;;) {
        asked ??= ask(seconds);
        const found = await Promise.race([asked, isReady, isOver, isLeft]);
        if (found === undefined || typeof found === "string") {
          isOld = true;
          if (found !== undefined) look();
          return null;
        }
        asked = undefined;
        if ("error" in found) throw found.error;
        const isNothing = found.marker === null && isOld;
        isOld = false;
        if (isNothing) continue;
        look();
        return found.marker && { ...found.marker, score: 0 };
      }
    } finally {
      isWaited = false;
      timer.abort();
    }
  }

  function lookNow(): void {
    look();
    leave();
  }

  return {
    by(waiting) {
      forMarker = waiting;
      return waitFor;
    },
    lookNow,
    lookSoon() {
      // A wait that begins later is not affected: before each wait, the worker asks Redis for jobs.
      if (!isWaited) return;
      const before = waits;
      setTimeout(() => void (isWaited && waits === before && lookNow()), MARKER_MS).unref();
    },
  };
}
