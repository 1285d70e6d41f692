/**
 * How a job starts: it draws a slot, within `maxWaitMs` if it has one, and expires if none comes in time. A job whose key
 * has no room for longer than `patienceMs` makes way for others. An outage of Redis is waited out.
 */
import { reasonOf } from "../../core/describe.ts";
import { SluiceError, StoreUnavailableError, WaitTooLongError } from "../../core/errors.ts";
import { isByPolicy } from "../../throttle/known-policy.ts";
import type { DrawnSlot } from "../../throttle/slot/slot.ts";
import { pauseFor, type WaitRegistry } from "../../throttle/waiting/wait.ts";
import type { NoRoomYet, WaitOptions } from "../../throttle/waiting/waiting-call.ts";
import { isFinalError } from "../bullmq/errors.ts";
import { producerOf, readJob, type Stored } from "../bullmq/stored-job.ts";
import { keyTextOf, type Job } from "../job.ts";
import type { WorkerContext } from "./context.ts";
import { deadlyFailure, expiredFailure, impossibleFailure } from "./outcome.ts";

/** Draws slots for the jobs of one worker. */
export interface JobSlots {
  /**
   * Resolves with the job's slot; with {@link NoRoomYet} when its key has no room for too long; with undefined when the
   * worker is closed, or the job is not to begin here. The wait can be ended by `waits`.
   *
   * @throws the failure of a job that did not start in time, or never can.
   */
  draw(job: Job<unknown>, waits: JobWaits): Promise<DrawnSlot | NoRoomYet | undefined>;
  /** Lets no wait that is ended from now on draw again. */
  close(): void;
}

/** The wait of one job, and whether it is not to begin here any more. */
type JobWaits = WaitRegistry & { readonly isLeaving: boolean };

const STORE_RETRY_MS = 1_000;
const NO_KEY = "";

export function createJobSlots(
  worker: Pick<WorkerContext, "queue" | "bucket" | "clock" | "patienceMs" | "weightsOf" | "logger">,
): JobSlots {
  const { queue, bucket, clock, patienceMs, weightsOf, logger } = worker;
  let isClosed = false;

  function drawOnce(job: Job<unknown>, waits: WaitRegistry): Promise<DrawnSlot | NoRoomYet> {
    const options = waitOptions(job);
    if (options === undefined) return Promise.reject(expiredFailure(job, clock.latestMs()));
    try {
      return bucket.drawForJob(options, waits);
    } catch (error) {
      return Promise.reject(error as Error);
    }
  }

  /** Draws again each second during an outage: of Redis, or of what the application's `perKey` asks. */
  async function drawAgain(
    job: Job<unknown>,
    waits: JobWaits,
    failure: unknown,
  ): Promise<DrawnSlot | NoRoomYet | undefined> {
    let error = failure;
    while (!isClosed && !waits.isLeaving) {
      // It was already too late to draw.
      if (isFinalError(error)) throw error;
      if (error instanceof WaitTooLongError) throw expiredFailure(job, clock.latestMs(), error);
      // Since the job was enqueued, the limits have changed: its cost may be too large now, or of a unit that no limit counts.
      if (isByPolicy(error)) throw impossibleFailure(error);
      if (!(error instanceof SluiceError)) warnOfKey(error);
      else if (!(error instanceof StoreUnavailableError)) throw error;
      await pauseFor(STORE_RETRY_MS, waits);
      if (isClosed || waits.isLeaving) return undefined;
      try {
        return await drawOnce(job, waits);
      } catch (next) {
        error = next;
      }
    }
    return undefined;
  }

  function warnOfKey(error: unknown): void {
    logger.warn({ queue, reason: reasonOf(error) }, "perKey failed; retrying in 1 s.");
  }

  /** Returns undefined when it is too late for the job to start. */
  function waitOptions(job: Job<unknown>): WaitOptions | undefined {
    const { cost, priority, startByMs } = job;
    const key = keyTextOf(job);
    const maxWaitMs = startByMs === undefined ? undefined : startByMs - clock.latestMs();
    if (maxWaitMs !== undefined && maxWaitMs < 1) return undefined;
    // Jobs without a key take turns with the lanes as if they were one lane.
    const producer = producerOf(job);
    if (key === undefined) return { cost, priority, maxWaitMs, lane: NO_KEY, producer };
    const laneWeights = weightsOf(key);
    return { key, cost, priority, maxWaitMs, lane: key, laneWeights, patienceMs, producer };
  }

  return {
    draw(job, waits) {
      // Not async, and no loop: each layer of promises would cost a job about as much as its draw.
      if (isClosed || waits.isLeaving) return Promise.resolve(undefined);
      return drawOnce(job, waits).catch((error: unknown) => drawAgain(job, waits, error));
    },
    close() {
      isClosed = true;
    },
  };
}

/** A job that was running when this many of its workers died is failed: it may be what kills them. */
const MOST_DEATHS = 10;
/** For how long a job that may kill its worker waits for Redis to know that it starts. */
const NOTE_MS = 1_000;
/** For how long a job with a deadline waits for the time of Redis. */
const CLOCK_MS = 1_000;

/**
 * Reads a job, with the deadline that it still has to keep. A job that was started in time has kept its deadline, also
 * if its worker died then: it is to be repeated, and not to expire. BullMQ keeps no trace of such a start, so we do.
 *
 * @throws the failure of a job that was running when its workers died, too often. BullMQ would count the deaths of all
 * workers that held it, also those in whose hands it only waited, and would never give up a run of a schedule.
 */
export function readFetched<Data>(
  { queue, connection, clock }: Pick<WorkerContext, "queue" | "connection" | "clock">,
  stored: Stored<Data>,
): Job<Data> | Promise<Job<Data>> {
  const job = readJob(stored);
  // A deadline is held to the clock of Redis, which is not known for a moment after an outage.
  const unknown = job.startByMs === undefined ? undefined : clock.ready();
  // In the next outage it goes by what was known before.
  const known = unknown && connection.inTime(CLOCK_MS, unknown).catch(() => undefined);
  if (!isSuspect(stored)) return known === undefined ? job : known.then(() => job);
  return Promise.all([connection.recall({ queue, id: job.id }), known]).then(
    ([{ deaths, keptMs }]) => {
      // What the job did when the first worker died was not recorded: it may have killed that one too.
      if (deaths + 1 >= MOST_DEATHS) throw deadlyFailure(deaths + 1);
      return keptMs === job.startByMs ? { ...job, startByMs: undefined } : job;
    },
  );
}

/** Whether a worker has died with the job. Before that nothing is recorded of it, which would cost each job a command. */
function isSuspect({ stalledCounter }: Stored<unknown>): boolean {
  return stalledCounter > 0;
}

/** Whether a worker may have begun the job before. */
export function mayHaveBegun(stored: Stored<unknown>): boolean {
  return stored.attemptsMade > 0 || isSuspect(stored);
}

/**
 * Records that a job starts now, if it has a deadline or may kill its worker. Returns what to wait for before it starts,
 * if anything: a job that kills its worker at once must not do so before Redis knows.
 */
export function noteStart(
  { queue, connection, logger }: Pick<WorkerContext, "queue" | "connection" | "logger">,
  stored: Stored<unknown>,
  { id, startByMs }: Job<unknown>,
): Promise<void> | undefined {
  const mayKill = isSuspect(stored);
  if (startByMs === undefined && !mayKill) return undefined;
  const noting = connection.noteBegun({ queue, id, startByMs, isSuspect: mayKill });
  const noted = connection.inTime(NOTE_MS, noting).catch((error: unknown) => {
    const facts = { queue, job: id, reason: reasonOf(error) };
    const problem = `Could not record that the job started; if its worker dies, ${mayKill ? "that will not count" : "it will expire"}.`;
    logger.warn(facts, problem);
  });
  return mayKill ? noted : undefined;
}
