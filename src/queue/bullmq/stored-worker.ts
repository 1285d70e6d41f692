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
  /** When it was requested, on `performance.now()`. Its lock lasts from then at least. */
  readonly takenAtMs: number;
}

/** The next job of a worker; without one, the ms until there may be one. */
export type Fetched =
  | { readonly job: HeldJob }
  | { readonly job: undefined; readonly nextMs: number | undefined };

/** Where a worker gets its jobs. */
export interface JobSupply {
  /** True if it gives no more jobs. */
  readonly isClosed: boolean;
  /** Notes that a job's outcome is stored, or never will be. The worker no longer holds its lock. */
  release(id: string, token: string): void;
  /**
   * Resolves with the next job, once the worker can start one soon, or without a job if there is none. Rejects if Redis
   * does.
   */
  next(): Promise<Fetched>;
  /** Redis has signalled that there may be a job, so the last reply no longer holds. */
  look(): void;
  /** Resolves when a job is ready that was fetched while updates were sent. */
  untilReady(): Promise<void>;
}

export interface StoredWorkerSettings {
  readonly queue: string;
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly concurrency: number;
  readonly lockMs: number;
  /** True if a worker may hold a job whose lock has ended or will end soon. */
  readonly mayStall: () => boolean;
  /** Called once a job's outcome is stored, with the token of its lock. Never rejects. */
  readonly onStored: (token: string) => Promise<void> | undefined;
  /** Called with the jobs that were recovered from dead workers. Never rejects. */
  readonly onRecovered: (ids: readonly string[]) => Promise<void>;
  readonly logger: Logger;
}

/** How many jobs a worker may hold, beside those whose handlers run, while their outcome is not decided. */
export const MOST_BESIDE = 100;
/**
 * The share of `lockMs` after which each worker looks for locks that have ended. Another worker may have looked just
 * before a lock ended, and BullMQ lets only one worker look in each interval. So a dead worker's job is found within a
 * quarter of `lockMs`.
 */
const LOOK_SHARE = 1 / 8;

/** BullMQ's part of a worker: it stores the outcomes of jobs. `process` gets BullMQ's job and how it was fetched. */
export function createStoredWorker<Data, Result>(
  settings: StoredWorkerSettings,
  fetcher: JobSupply,
  process: (job: Stored<Data>, taken: HeldJob) => Promise<Result | undefined>,
): StoredWorker<Data, Result | undefined> {
  const { queue, connection, prefix, concurrency, lockMs, logger } = settings;
  const { Worker } = loadBullmq();
  /** By the token of the job's lock. */
  const handedOut = new Map<string, HeldJob>();
  /** Makes another worker look for jobs: this one has consumed the marker that signalled them, and fetches none. */
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
          // The fetcher limits the jobs. A job whose outcome is being stored does not count there.
          concurrency: 2 * concurrency + 1 + MOST_BESIDE,
          lockDuration: lockMs,
          // `worker/held/held-jobs.ts` renews the locks.
          skipLockRenewal: true,
          stalledInterval: Math.ceil(lockMs * LOOK_SHARE),
          // BullMQ counts the death of a worker for all jobs that it held. `worker/job-start.ts` counts it for those
          // that ran.
          maxStalledCount: Number.MAX_SAFE_INTEGER,
          // Locks would end within BullMQ's default of 15 s.
          runRetryDelay: ASK_AGAIN_MS,
          autorun: false,
        },
        backendFor(wait, { ...settings, clock: connection.clockOf(queue) }),
      ),
  );
  const letFollow = (id: string, dedupeId: string): Promise<void> =>
    // If this fails, the job comes due by itself within ten seconds.
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

/** The parts of BullMQ's worker that `fetchBy` uses and that its types do not show. */
interface Insides {
  moveToActive(token: string): Promise<unknown>;
  processJob(
    job: { readonly id: string; readonly deduplicationId?: string },
    token: string,
    fetchNext: () => boolean,
  ): Promise<unknown>;
  nextJobFromJobData(fields: unknown, id?: string, token?: string): Promise<unknown>;
  updateDelays(limitedForMs: number, nextAtMs: number): void;
  handleFailed(error: Error, job: object, ...rest: readonly unknown[]): Promise<unknown>;
}

/** The errors of attempts whose failures are being stored, as JSON. */
const facts = new WeakMap<object, string>();

/**
 * Stores the facts of an error together with its message, which is all that BullMQ keeps. `backendFor` adds them to
 * what it writes. BullMQ has no option for this; checked with bullmq 6.7.0 (`handleFailed` in worker.js, `moveToFailed`
 * in job.js).
 */
function keepFacts(worker: Insides): void {
  const handleFailed = worker.handleFailed.bind(worker);
  worker.handleFailed = (error, job, ...rest) => {
    facts.set(job, JSON.stringify(readErrorFacts(error)));
    return handleFailed(error, job, ...rest);
  };
}

/**
 * Makes BullMQ's worker get its jobs from the fetcher. Its own fetch, and the one with each end of a job, know no
 * lanes. BullMQ has no option for this; checked with bullmq 6.7.0 (worker.js).
 *
 * - It pauses after a refusal. If Redis refuses to give a job (full memory, missing rights, a replica), BullMQ asks
 *   again at once and without end. If the call throws at once, it does so in a loop of microtasks that blocks the
 *   process. Known of the older Bull (OptimalBits/bull#1304) and of early BullMQ (taskforcesh/bullmq#389); no open
 *   issue known (`retryIfFailed` in worker.js pauses only after connection errors).
 * - It reports a due delayed job with each job. BullMQ fetches a job for each free place, one after another, before it
 *   starts the first (taskforcesh/bullmq#2157, #2242): far from Redis, locks would end during that time. It leaves that
 *   loop early if `blockUntil` is set (`mainLoop` in worker.js).
 */
function fetchBy(
  worker: Insides,
  fetcher: Pick<JobSupply, "next" | "isClosed" | "release">,
  {
    handedOut,
    wake,
    onStored,
    letFollow,
    lookSoon,
  }: Pick<StoredWorkerSettings, "onStored"> & {
    readonly lookSoon: () => void;
    readonly handedOut: Map<string, HeldJob>;
    readonly wake: () => void;
    /** Lets the job start that was to run after this one, if this one has ended. */
    readonly letFollow: (id: string, dedupeId: string) => Promise<void>;
  },
): void {
  const processJob = worker.processJob.bind(worker);
  function release(id: string, token: string): void {
    // For some jobs, BullMQ calls no processor.
    handedOut.delete(token);
    fetcher.release(id, token);
  }

  worker.processJob = (job, token) => {
    const { id, deduplicationId } = job;
    const processing = processJob(job, token, () => false).finally(() => {
      release(id, token);
      // The next run of its schedule was planned.
      if (id.startsWith("repeat:")) lookSoon();
      return onStored(token);
    });
    // Only a job with a dedupeId may have a follower.
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

/** Returns a fetched job as BullMQ's worker would hold it. */
export function storedJobOf<Data, Result>(
  stored: StoredWorker<Data, Result>,
  taken: TakenJob,
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

/** How long a worker waits before it asks Redis again, after a refusal or a lost connection. */
const ASK_AGAIN_MS = 1_000;

/** A time before that of any delayed job, in ms since 1970. */
const LONG_PAST_MS = 1;

/**
 * BullMQ's backend for a worker that gets its jobs from the fetcher:
 *
 * - The end of a job fetches no next one. BullMQ's worker would read an empty fetch as an empty queue, and wait. No
 *   upstream issue known; checked with bullmq 6.7.0 (`handleCompleted` in worker.js).
 * - It waits for a marker in Redis that there may be jobs, and for jobs that are ready in this process. It does not
 *   wait for jobs that it puts back itself.
 * - It looks for ended locks only while there may be some.
 * - It uses the clock of Redis.
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
      // Without fields to update, the job goes back without an attempt. It has been due all the time.
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

/** The wait of a worker for jobs. */
interface JobWait {
  /** Waits by `forMarker` for the marker in Redis, for at most this many seconds. */
  by(forMarker: (seconds: number) => Promise<Marker>): (seconds: number) => Promise<Marker>;
  /** Ends the wait: this worker has put a job back into the queue, and does not wait for the marker. */
  lookNow(): void;
  /** The same for a job that may be due later: only if the marker does not come in time. */
  readonly lookSoon: () => void;
}

/** How long a marker may be in flight. */
const MARKER_MS = 25;

/**
 * The wait for the marker ends early if jobs are ready. A marker that comes after that, while this worker does not
 * wait, is passed on to another worker. Whatever time a marker names, Redis is asked, because it may be the time of a
 * job that is parked for a day.
 *
 * Only one worker gets the marker. If that worker hangs, no other one looks for the job. So a worker does not rely on
 * the marker for jobs that it put back itself, and producers check the jobs that they enqueue (`enqueue/storing.ts`).
 */
function createJobWait(
  { look, untilReady }: Pick<JobSupply, "look" | "untilReady">,
  wake: () => void,
): JobWait {
  /** Ends the current wait. */
  let leave = (): void => {};
  let waits = 0;
  let forMarker: (seconds: number) => Promise<Marker>;
  let asked: Promise<{ readonly marker: Marker } | { readonly error: unknown }> | undefined;
  let isWaited = false;
  /** True if `asked` is older than the current wait, so that its end without a marker means nothing. */
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
      // A wait that begins later learns of the job anyway.
      if (!isWaited) return;
      const before = waits;
      setTimeout(() => void (isWaited && waits === before && lookNow()), MARKER_MS).unref();
    },
  };
}
