import { UnrecoverableError } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import { SluiceError, StoreUnavailableError, WaitTooLongError } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import { isByPolicy } from "../../throttle/known-policy.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import { pauseFor, type Waits } from "../../throttle/waiting/wait.ts";
import type { TooFar, WaitOptions } from "../../throttle/waiting/waiting-call.ts";
import type { QueueConnection } from "../connection.ts";
import { readJob, type Job, type Stored } from "../job.ts";
import { expiredFailure, impossibleFailure } from "./outcome.ts";

/** Draws slots for the jobs of one worker. */
export interface JobSlots {
  /**
   * The job's slot; or why there is none: its key's time is too far off, or undefined: the worker is closed. What
   * ends the wait is among `waits`.
   *
   * @throws the failure of a job that did not start in time, or never can.
   */
  draw(job: Job<unknown>, waits: Waits): Promise<Slot | TooFar | undefined>;
  /** Whoever leaves its wait from now on draws no more. */
  close(): void;
}

const STORE_RETRY_MS = 1_000;
const NO_KEY = "";

export function createJobSlots(
  bucket: OwnedBucket,
  patienceMs: number,
  weightOf: (key: string) => number | undefined,
  /** The application could not tell the limits of a key; it is asked again, and each job that waits says so each second. */
  onKeyError: (error: unknown) => void,
): JobSlots {
  let isClosed = false;

  function drawOnce(job: Job<unknown>, waits: Waits): Promise<Slot | TooFar> {
    const options = waitOptions(job);
    if (options === undefined) return Promise.reject(expiredFailure(job, Date.now()));
    try {
      return bucket.drawForJob(options, waits);
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /** An outage is waited out, of Redis as of what the application asks for the limits of a key. */
  async function drawAgain(
    job: Job<unknown>,
    waits: Waits,
    failure: unknown,
  ): Promise<Slot | TooFar | undefined> {
    let error = failure;
    while (!isClosed) {
      // It was too late before it could ask.
      if (error instanceof UnrecoverableError) throw error;
      if (error instanceof WaitTooLongError) throw expiredFailure(job, Date.now());
      // What was let in may be too large, or of a unit that nothing counts, once the limits have changed.
      if (isByPolicy(error)) throw impossibleFailure(error);
      if (!(error instanceof SluiceError)) onKeyError(error);
      else if (!(error instanceof StoreUnavailableError)) throw error;
      await pauseFor(STORE_RETRY_MS, waits);
      if (isClosed) return undefined;
      try {
        return await drawOnce(job, waits);
      } catch (next) {
        error = next;
      }
    }
    return undefined;
  }

  /** Undefined when it is too late for the job to start. */
  function waitOptions({ key, cost, priority, startByMs }: Job<unknown>): WaitOptions | undefined {
    const maxWaitMs = startByMs === undefined ? undefined : startByMs - Date.now();
    if (maxWaitMs !== undefined && maxWaitMs < 1) return undefined;
    // Jobs without a key take turns with the lanes as if they were one.
    if (key === undefined) return { cost, priority, maxWaitMs, lane: NO_KEY };
    return { key, cost, priority, maxWaitMs, lane: key, laneWeight: weightOf(key), patienceMs };
  }

  return {
    draw(job, waits) {
      // Not async, and no loop: each layer of promises would cost a job about as much as its draw.
      if (isClosed) return Promise.resolve(undefined);
      return drawOnce(job, waits).catch((error: unknown) => drawAgain(job, waits, error));
    },
    close() {
      isClosed = true;
    },
  };
}

/**
 * The deadlines by which jobs have to begin. One that has begun in time has kept its deadline, also if its worker
 * was lost then, of which BullMQ keeps no trace: it is to be done again, and not to expire.
 */
export interface Deadlines {
  /** The job, with the deadline that it still has to keep. */
  read<Data>(stored: Stored<Data>): Job<Data> | Promise<Job<Data>>;
  /** The job begins now. */
  keep(job: Job<unknown>): void;
}

export function createDeadlines(parts: {
  readonly queue: string;
  readonly connection: Pick<QueueConnection, "noteBegun" | "begunBy">;
  readonly logger: Logger;
}): Deadlines {
  const { queue, connection, logger } = parts;

  async function withoutKept<Data>(job: Job<Data>): Promise<Job<Data>> {
    const keptMs = await connection.begunBy(queue, job.id);
    return keptMs === job.startByMs ? { ...job, startByMs: undefined } : job;
  }

  return {
    read(stored) {
      const job = readJob(stored);
      // Only the job of a worker that was lost can have begun before.
      const mayHaveBegun = job.startByMs !== undefined && stored.stalledCounter > 0;
      return mayHaveBegun ? withoutKept(job) : job;
    },
    keep({ id, startByMs }) {
      if (startByMs === undefined) return;
      connection.noteBegun(queue, id, startByMs).catch((error: unknown) => {
        const facts = { queue, job: id, reason: reasonOf(error) };
        logger.warn(
          facts,
          "It is not noted that a job has begun: should its worker be lost, it expires.",
        );
      });
    },
  };
}
