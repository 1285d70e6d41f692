import { setTimeout as pause } from "node:timers/promises";
import type { createRedisBackend, Worker as StoredWorker } from "bullmq";
import type { Logger } from "../../core/logger.ts";
import { createErrorReports, storedQueueName, type QueueConnection } from "./connection.ts";
import { createFetches, type Fetches } from "./fetches.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { publishRetries } from "./stored-events.ts";
import type { Stored } from "./stored-job.ts";

export interface StoredWorkerSettings {
  readonly queue: string;
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly concurrency: number;
  readonly lockMs: number;
  /** Whether a worker may hold a job whose lock has ended, or will soon. */
  readonly mayStall: () => boolean;
  /** Watches what it fetches. */
  readonly fetches: Fetches;
  readonly logger: Logger;
}

/**
 * The share of `lockMs` after which each worker looks for locks that have ended. Another may have looked just before one
 * ended, and BullMQ lets only one worker do so in each such interval: so a dead worker's job is found within a quarter of
 * `lockMs`.
 */
const LOOK_SHARE = 1 / 8;

/** BullMQ's part of a worker: fetches jobs, and stores what came of them. `process` gets a job and its lock's token. */
export function createStoredWorker<Data, Result>(
  settings: StoredWorkerSettings,
  process: (job: Stored<Data>, token: string) => Promise<Result | undefined>,
): StoredWorker<Data, Result | undefined> {
  const { queue, connection, prefix, concurrency, lockMs, mayStall, fetches, logger } = settings;
  const { Worker } = loadBullmq();
  const stored = new Worker<Data, Result | undefined>(
    storedQueueName(queue),
    (job, token) => process(job, token!),
    {
      connection: connection.client,
      prefix,
      concurrency,
      lockDuration: lockMs,
      // Locks are kept by `worker/job-locks.ts`.
      skipLockRenewal: true,
      stalledInterval: Math.ceil(lockMs * LOOK_SHARE),
      // BullMQ counts each death of a worker against all jobs that it held; `worker/job-start.ts` against those that ran.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      // Within BullMQ's default of 15 s, locks would end.
      runRetryDelay: ASK_AGAIN_MS,
    },
    patientBackend(mayStall, fetches),
  );
  createErrorReports(`A worker of queue "${queue}"`, logger)(stored);
  publishRetries(stored);
  return stored;
}

/** How long a worker waits before it asks Redis again that refused it, or that it lost. */
const ASK_AGAIN_MS = 1_000;

/** A time at which any delayed job has been due for long, in ms since 1970. */
const LONG_PAST_MS = 1;

/**
 * How a worker fetches jobs: `moveToActive` of BullMQ's backend, patched in two ways. And how it looks for locks that
 * have ended: only while there may be some.
 *
 * - After a refusal it pauses. BullMQ asks again at once and without end when Redis refuses to give a job (memory
 *   full, no right, a replica), and in a loop of microtasks if the call throws at once, so that the process does nothing
 *   else. Known of the older Bull (OptimalBits/bull#1304) and of early BullMQ (taskforcesh/bullmq#389); no open issue
 *   known; checked with bullmq 6.7.0 (`retryIfFailed` in worker.js pauses after errors of the connection only).
 * - With each job it says that a delayed one is due. BullMQ fetches as many jobs as it has places, one after another,
 *   before it starts the first (taskforcesh/bullmq#2157, #2242): far from Redis, locks would end meanwhile. The loop is
 *   left early if `blockUntil` is set, which the fourth part of the reply does. No upstream issue known; checked with
 *   bullmq 6.7.0 (`mainLoop` in worker.js).
 */
export function patientBackend(
  mayStall: () => boolean,
  fetches: Fetches = createFetches(),
): typeof createRedisBackend {
  return (...settings) => {
    const backend = loadBullmq().createRedisBackend(...settings);
    fetches.watch(backend);
    const fetch = backend.moveToActive.bind(backend);
    const lookForStalled = backend.moveStalledJobsToWait.bind(backend);
    backend.moveStalledJobsToWait = async () => (mayStall() ? lookForStalled() : []);
    backend.moveToActive = async (...asked) => {
      try {
        const [job, id, limitedForMs, nextDueMs] = await fetch(...asked);
        return [job, id, limitedForMs, job ? LONG_PAST_MS : nextDueMs];
      } catch (error) {
        await pause(ASK_AGAIN_MS, undefined, { ref: false });
        throw error;
      }
    };
    return backend;
  };
}
