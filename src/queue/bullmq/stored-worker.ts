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

/** A job that a worker has taken. */
export interface HeldJob extends TakenJob {
  /** When it was asked for, on `performance.now()`: its lock lasts from then on at least. */
  readonly takenAtMs: number;
}

/** The next job of a worker; without one, in how many ms there may be one. */
export type Fetched =
  | { readonly job: HeldJob }
  | { readonly job: undefined; readonly nextMs: number | undefined };

/** Where a worker gets its jobs. */
export interface JobSupply {
  /** Whether it gives no more jobs. */
  readonly isClosed: boolean;
  /** Notes that what became of a job is stored, or never will be: its lock is no longer this worker's. */
  release(id: string, token: string): void;
  /** The next job. Resolves once the worker can start one soon, and without one if there is none; rejects if Redis does. */
  next(): Promise<Fetched>;
  /** There may be a job again, by what Redis has told: the last answer no longer holds. */
  look(): void;
  /** Resolves when a job lies ready, which was taken when news were sent. */
  untilReady(): Promise<void>;
}

export interface StoredWorkerSettings {
  readonly queue: string;
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly concurrency: number;
  readonly lockMs: number;
  /** Whether a worker may hold a job whose lock has ended, or will soon. */
  readonly mayStall: () => boolean;
  /** Called once what became of a job is stored, with the token of its lock. Never rejects. */
  readonly onStored: (token: string) => Promise<void> | undefined;
  /** Called with the jobs that were recovered from workers that died. Never rejects. */
  readonly onRecovered: (ids: readonly string[]) => Promise<void>;
  readonly logger: Logger;
}

/** How many jobs a worker may hold beside those whose handlers run: what comes of them is not decided yet. */
export const MOST_BESIDE = 100;
/**
 * The share of `lockMs` after which each worker looks for locks that have ended. Another may have looked just before one
 * ended, and BullMQ lets only one worker do so in each such interval: so a dead worker's job is found within a quarter of
 * `lockMs`.
 */
const LOOK_SHARE = 1 / 8;

/** BullMQ's part of a worker: stores what came of its jobs. `process` gets a job of BullMQ's and how it was taken. */
export function createStoredWorker<Data, Result>(
  settings: StoredWorkerSettings,
  fetcher: JobSupply,
  process: (job: Stored<Data>, taken: HeldJob) => Promise<Result | undefined>,
): StoredWorker<Data, Result | undefined> {
  const { queue, connection, prefix, concurrency, lockMs, logger } = settings;
  const { Worker } = loadBullmq();
  /** By the token of the job's lock. */
  const handedOut = new Map<string, HeldJob>();
  /** Has another worker look for jobs: this one has taken the marker that said so, and looks for none. */
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
          // The fetcher decides: a job whose end is being stored takes no place there.
          concurrency: 2 * concurrency + 1 + MOST_BESIDE,
          lockDuration: lockMs,
          // Locks are kept by `worker/held/held-jobs.ts`.
          skipLockRenewal: true,
          stalledInterval: Math.ceil(lockMs * LOOK_SHARE),
          // BullMQ counts each death of a worker against all jobs that it held; `worker/job-start.ts` against those that ran.
          maxStalledCount: Number.MAX_SAFE_INTEGER,
          // Within BullMQ's default of 15 s, locks would end.
          runRetryDelay: ASK_AGAIN_MS,
          autorun: false,
        },
        backendFor(wait, { ...settings, clock: connection.clockOf(queue) }),
      ),
  );
  const letFollow = (id: string, dedupeId: string): Promise<void> =>
    // Unheard, it comes by itself within ten seconds.
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

/** What `fetchBy` uses of BullMQ's worker and does not find in its types. */
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

/** What failed the attempts whose failures are being stored, as JSON. */
const facts = new WeakMap<object, string>();

/**
 * Has the facts of an error stored together with its message, which is all that BullMQ keeps of it; `backendFor` adds
 * them to what it writes. BullMQ has no option for it; checked with bullmq 6.7.0 (`handleFailed` in worker.js,
 * `moveToFailed` in job.js).
 */
function keepFacts(worker: Insides): void {
  const handleFailed = worker.handleFailed.bind(worker);
  worker.handleFailed = (error, job, ...rest) => {
    facts.set(job, JSON.stringify(readErrorFacts(error)));
    return handleFailed(error, job, ...rest);
  };
}

/**
 * Has BullMQ's worker get its jobs from the fetcher instead of its own queue: its fetch, and the one that comes with each
 * end of a job, look at no lanes. BullMQ has no option for it; checked with bullmq 6.7.0 (worker.js).
 *
 * - After a refusal it pauses. BullMQ asks again at once and without end when Redis refuses to give a job (memory
 *   full, no right, a replica), and in a loop of microtasks if the call throws at once, so that the process does nothing
 *   else. Known of the older Bull (OptimalBits/bull#1304) and of early BullMQ (taskforcesh/bullmq#389); no open issue
 *   known (`retryIfFailed` in worker.js pauses after errors of the connection only).
 * - With each job it says that a delayed one is due. BullMQ fetches as many jobs as it has places, one after another,
 *   before it starts the first (taskforcesh/bullmq#2157, #2242): far from Redis, locks would end meanwhile. The loop is
 *   left early if `blockUntil` is set (`mainLoop` in worker.js).
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
    /** Lets the job go that was to run after this one, if this one has ended. */
    readonly letFollow: (id: string, dedupeId: string) => Promise<void>;
  },
): void {
  const processJob = worker.processJob.bind(worker);
  function release(id: string, token: string): void {
    // BullMQ calls no processor for some jobs.
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
    // Only such a job may have another that follows it.
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

/** A job that was taken, as BullMQ's worker would hold it. */
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

/** How long a worker waits before it asks Redis again that refused it, or that it lost. */
const ASK_AGAIN_MS = 1_000;

/** A time at which any delayed job has been due for long, in ms since 1970. */
const LONG_PAST_MS = 1;

/**
 * BullMQ's backend for a worker that gets its jobs elsewhere:
 *
 * - Without a fetch, the end of a job returns an empty one, which BullMQ's worker reads as the news that its queue is
 *   empty, and waits then. No upstream issue known; checked with bullmq 6.7.0 (`handleCompleted` in worker.js).
 * - It waits for a marker in Redis that there may be jobs, and for jobs that lie ready here. Jobs that it brings back into
 *   the queue itself, it does not wait for.
 * - It looks for locks that have ended only while there may be some.
 * - Its times are those of Redis.
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
      // Without fields to update, the job gives its place back without an attempt: it has been due all the time.
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
  /** Waits for the marker in Redis by this, for so many seconds at most. */
  by(forMarker: (seconds: number) => Promise<Marker>): (seconds: number) => Promise<Marker>;
  /** This worker has brought a job back into the queue: it does not wait for the marker that says so. */
  lookNow(): void;
  /** The same where a job may be due later: if the marker has not come in time. */
  readonly lookSoon: () => void;
}

/** How long a marker may take that is on its way. */
const MARKER_MS = 25;

/**
 * A wait for the marker is left when jobs lie ready sooner. A marker that comes after that, while nobody waits here, is
 * another worker's. Whatever time it names, Redis is asked: it may be that of a job that is parked for a day.
 *
 * One worker takes the marker, and if that stands still, nobody looks for the job. So a worker does not rely on it for jobs
 * of which it knows itself; for those that are enqueued, their producer looks (`enqueue/storing.ts`).
 */
function createJobWait(
  { look, untilReady }: Pick<JobSupply, "look" | "untilReady">,
  wake: () => void,
): JobWait {
  /** Ends the wait at hand. */
  let leave = (): void => {};
  let waits = 0;
  let forMarker: (seconds: number) => Promise<Marker>;
  let asked: Promise<{ readonly marker: Marker } | { readonly error: unknown }> | undefined;
  let isWaited = false;
  /** Whether `asked` is older than the wait, so that its end without a marker says nothing. */
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
      // A wait that begins later knows when there is a job.
      if (!isWaited) return;
      const before = waits;
      setTimeout(() => void (isWaited && waits === before && lookNow()), MARKER_MS).unref();
    },
  };
}
