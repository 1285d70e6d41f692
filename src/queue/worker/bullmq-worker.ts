import { setTimeout as pause } from "node:timers/promises";
import { createRedisBackend, Worker as StoredWorker } from "bullmq";
import type { Logger } from "../../core/logger.ts";
import { storedQueueName, type QueueConnection } from "../connection.ts";
import type { Stored } from "../job.ts";
import { createErrorReports } from "../stored-queue.ts";
import { deadlyFailure } from "./outcome.ts";
import { createRetention } from "./retention.ts";

export interface StoredWorkerParts<Data, Result> {
  readonly queue: string;
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly concurrency: number;
  readonly lockMs: number;
  readonly logger: Logger;
  /** Runs a job that was fetched; the token is that of its lock. */
  readonly process: (job: Stored<Data>, token: string) => Promise<Result | undefined>;
}

/**
 * Locks that have ended are looked for each time that so much of `lockMs` is over. Who looks next may have looked just
 * before that: so a job is found within a quarter of `lockMs`, whichever worker has died.
 */
const LOOK_SHARE = 1 / 8;
/** A job whose workers keep dying is given up after so many of them: it may be what kills them. */
const MOST_DEATHS = 10;

/** BullMQ's worker, and its end. */
interface OwnedStoredWorker<Data, Result> {
  readonly stored: StoredWorker<Data, Result | undefined>;
  /** With force it waits neither for handlers nor for Redis. */
  readonly close: (isForced: boolean) => Promise<void>;
}

/** BullMQ's part of a worker: fetches jobs, keeps their locks, and stores what became of them. */
export function createStoredWorker<Data, Result>(
  parts: StoredWorkerParts<Data, Result>,
): OwnedStoredWorker<Data, Result> {
  const { queue, connection, prefix, concurrency, lockMs, logger } = parts;
  const stored = new StoredWorker<Data, Result | undefined>(
    storedQueueName(queue),
    (job, token) => {
      giveUpDeadly(job);
      return parts.process(job, token!);
    },
    {
      connection: connection.client,
      prefix,
      concurrency,
      lockDuration: lockMs,
      stalledInterval: Math.ceil(lockMs * LOOK_SHARE),
      // So many it lets pass.
      maxStalledCount: MOST_DEATHS - 1,
      runRetryDelay: ASK_AGAIN_MS,
    },
    createPatientBackend,
  );
  createErrorReports(`A worker of queue "${queue}"`, logger)(stored);
  const retention = createRetention(
    (kept) => connection.forgetDone(queue, kept),
    // What fails for want of Redis is told already.
    (error) => void (connection.isReady() && stored.emit("error", error)),
  );
  stored.on("completed", () => retention.note());
  return {
    stored,
    async close(isForced) {
      await stored.close(isForced);
      if (connection.isReady()) await retention.close();
    },
  };
}

/** BullMQ gives up no run of a schedule, however often its workers die. */
function giveUpDeadly({ repeatJobKey, stalledCounter }: Stored<unknown>): void {
  if (repeatJobKey !== undefined && stalledCounter >= MOST_DEATHS) {
    throw deadlyFailure(stalledCounter);
  }
}

/** When a worker asks again that was refused, or lost its connection: with 15 s, as BullMQ has it, locks end meanwhile. */
const ASK_AGAIN_MS = 1_000;

/** A time at which a delayed job has long been due. */
const LONG_PAST_MS = 1;

/**
 * How a worker asks Redis. BullMQ asks for the next job again as soon as Redis has refused to give it one,
 * without end; and where it could not begin at all, without ever letting the process do anything else. And it
 * asks for as many jobs as it has places, one after another, before it starts the first, unless it takes a delayed
 * job to be due: far from Redis, locks would end meanwhile.
 */
const createPatientBackend: typeof createRedisBackend = (...settings) => {
  const backend = createRedisBackend(...settings);
  const fetch = backend.moveToActive.bind(backend);
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
