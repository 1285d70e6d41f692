/**
 * Starts jobs. A job draws a slot, and expires if it has a `maxWaitMs` and no slot comes in time. If the job's key has
 * no room for longer than `patienceMs`, the job goes back to its lane, so that other jobs can run. During an outage of
 * Redis, the job waits.
 */
import { isThenable, reasonOf } from "../../core/describe.ts";
import {
  SluiceError,
  StoreUnavailableError,
  WaitTooLongError,
  type CodecError,
} from "../../core/errors.ts";
import { isByPolicy } from "../../throttle/known-policy.ts";
import type { DrawnSlot } from "../../throttle/slot/slot.ts";
import { pauseFor, type WaitRegistry } from "../../throttle/waiting/wait.ts";
import type { NoRoomYet, WaitOptions } from "../../throttle/waiting/waiting-call.ts";
import { isFinalError } from "../bullmq/errors.ts";
import { producerOf, readJob, type Stored } from "../bullmq/stored-job.ts";
import { keyTextOf, type Job } from "../job.ts";
import { setRetryDelay } from "./attempt.ts";
import type { WorkerContext } from "./context.ts";
import { asFailure, deadlyFailure, expiredFailure, impossibleFailure } from "./outcome.ts";

/** Draws slots for the jobs of one worker. */
export interface JobSlots {
  /**
   * Draws a slot for a job. Resolves with the slot, or with {@link NoRoomYet} if the job's key has no room within
   * `patienceMs`. Resolves with undefined if the worker is closed or the job must not begin here. `waits` can end the
   * wait.
   *
   * @throws the failure of the job if it did not start in time, or can never start.
   */
  draw(job: Job<unknown>, waits: JobWaits): Promise<DrawnSlot | NoRoomYet | undefined>;
  /** Stops drawing. A wait that ends after this does not draw again. */
  close(): void;
}

/** Registers the wait of one job, and says whether the job must no longer begin here. */
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

  /** Draws again each second during an outage of Redis, or while the application's `perKey` function fails. */
  async function drawAgain(
    job: Job<unknown>,
    waits: JobWaits,
    failure: unknown,
  ): Promise<DrawnSlot | NoRoomYet | undefined> {
    let error = failure;
    while (!isClosed && !waits.isLeaving) {
      // The draw found that it was already too late for the job.
      if (isFinalError(error)) throw error;
      if (error instanceof WaitTooLongError) throw expiredFailure(job, clock.latestMs(), error);
      // The limits may have changed since the job was enqueued. Now the job's cost is too large, or its unit is no
      // longer limited.
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

  /** Returns undefined if it is too late for the job to start. */
  function waitOptions(job: Job<unknown>): WaitOptions | undefined {
    const { cost, priority, startByMs } = job;
    const key = keyTextOf(job);
    const maxWaitMs = startByMs === undefined ? undefined : startByMs - clock.latestMs();
    if (maxWaitMs !== undefined && maxWaitMs < 1) return undefined;
    // All jobs without a key count as one lane, which takes turns with the other lanes.
    const producer = producerOf(job);
    const common = { cost, priority, maxWaitMs, producer, waitsForBudgets: true };
    if (key === undefined) return { ...common, lane: NO_KEY };
    return { ...common, key, lane: key, laneWeights: weightsOf(key), patienceMs };
  }

  return {
    draw(job, waits) {
      // Not async and without a loop, because each additional promise would take about as long as the draw itself.
      if (isClosed || waits.isLeaving) return Promise.resolve(undefined);
      return drawOnce(job, waits).catch((error: unknown) => drawAgain(job, waits, error));
    },
    close() {
      isClosed = true;
    },
  };
}

/** A job fails for good if this many of its workers died while it ran, because the job may be the cause. */
const MOST_DEATHS = 10;
/** How long a job that may kill its worker waits for Redis to record the job's start. */
const NOTE_MS = 1_000;
/** How long a job with a deadline waits until the time of Redis is known. */
const CLOCK_MS = 1_000;

/**
 * Reads a fetched job, with its deadline if the job still has to meet it. A job that started in time has met its
 * deadline. If its worker then died, the job runs again and does not expire. BullMQ does not record such a start, so we
 * record it.
 *
 * @throws the failure of the job if too many workers died while it ran. We count these deaths because BullMQ would also
 * count workers in which the job only waited, and would never fail a run of a schedule.
 */
export function readFetched<Data>(
  { queue, connection, clock }: Pick<WorkerContext, "queue" | "connection" | "clock">,
  stored: Stored<Data>,
): Job<Data> | Promise<Job<Data>> {
  const job = readJob(stored);
  // Waits for the clock of Redis, which deadlines use, and which is unknown for a moment after an outage.
  const unknown = job.startByMs === undefined ? undefined : clock.ready();
  // If Redis becomes unreachable again, continues with the last known time.
  const known = unknown && connection.inTime(CLOCK_MS, unknown).catch(() => undefined);
  if (!isSuspect(stored)) return known === undefined ? job : known.then(() => job);
  return Promise.all([connection.recall({ queue, id: job.id }), known]).then(
    ([{ deaths, keptMs }]) => {
      // Adds 1, because the first death was not recorded, and the job may have caused it too.
      if (deaths + 1 >= MOST_DEATHS) throw deadlyFailure(deaths + 1);
      return keptMs === job.startByMs ? { ...job, startByMs: undefined } : job;
    },
  );
}

/**
 * Decodes the data of a fetched job, before it waits for its slot, so that a job that cannot be decoded uses no slot.
 * Returns a promise only if the data is encoded.
 *
 * @throws the failure of the attempt if the data cannot be decoded. The job is retried with its backoff, because the
 * codec or the key may come with the next deployment, or another worker may have it.
 */
export function decodeFetched<Data>(
  { payloads }: Pick<WorkerContext, "payloads">,
  stored: Stored<Data>,
  job: Job<Data>,
): Job<Data> | Promise<Job<Data>> {
  const decoding = decodeData(payloads, stored);
  if (!(decoding instanceof Promise)) return job;
  return decoding.then(({ data, unreadable }) => {
    if (unreadable === undefined) return Object.assign(job, { data });
    setRetryDelay(stored, unreadable, undefined);
    throw asFailure(unreadable);
  });
}

/** The data of a job. Undefined if this process cannot decode it: `unreadable` says why. */
type DecodedData<Data> = Pick<Job<Data>, "data" | "unreadable">;

const decoded = new WeakMap<object, DecodedData<unknown> | Promise<DecodedData<unknown>>>();

/** Decodes the data of BullMQ's job, only once. Returns a promise only while encoded data is being decoded. */
export function decodeData<Data>(
  payloads: Pick<WorkerContext["payloads"], "decode">,
  stored: Stored<Data>,
): DecodedData<Data> | Promise<DecodedData<Data>> {
  const known = decoded.get(stored);
  if (known !== undefined) return known as DecodedData<Data>;
  const data = payloads.decode(stored.data, { kind: "data", id: stored.id! });
  if (!isThenable(data)) return { data: data as Data };
  const decoding = Promise.resolve(data)
    .then(
      (plain) => ({ data: plain }),
      (error: unknown) => ({ data: undefined, unreadable: error as CodecError }),
    )
    .then((found) => {
      decoded.set(stored, found);
      return found as DecodedData<Data>;
    });
  decoded.set(stored, decoding);
  return decoding;
}

/**
 * True if a worker has died while it held the job. Only the starts of such jobs are recorded, because a record costs
 * each job a command.
 */
function isSuspect({ stalledCounter }: Stored<unknown>): boolean {
  return stalledCounter > 0;
}

/** True if a worker may have started the job before. */
export function mayHaveBegun(stored: Stored<unknown>): boolean {
  return stored.attemptsMade > 0 || isSuspect(stored);
}

/**
 * Records in Redis that a job starts now, if the job has a deadline or may kill its worker. Returns a promise if the
 * handler must not start before the start is recorded: a job may kill its worker at once.
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
    const problem = `Could not record that the job started; if its worker dies, ${mayKill ? "its death will not count against the job" : "the job may expire"}.`;
    logger.warn(facts, problem);
  });
  return mayKill ? noted : undefined;
}
