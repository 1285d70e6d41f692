import type { Worker as StoredWorker } from "bullmq";
import type { Logger } from "../core/logger.ts";
import { storedQueueName, type QueueConnection } from "./connection.ts";
import type { Stored } from "./job.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { deadlyFailure } from "./outcome.ts";
import { ASK_AGAIN_MS, createPatientBackend } from "./patient-backend.ts";
import { createErrorReports } from "./report-errors.ts";
import { createRetention } from "./retention.ts";
import { publishRetries } from "./retry-events.ts";

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
  const { Worker } = loadBullmq();
  const stored = new Worker<Data, Result | undefined>(
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
  publishRetries(stored);
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
