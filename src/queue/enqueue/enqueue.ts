import type { Queue as StoredQueue } from "bullmq";
import {
  InvalidOptionError,
  redisRefusalOf,
  StoreUnavailableError,
  type RedisRefusal,
} from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { RunDeclaration } from "../../core/queue-store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { QueueConnection } from "../bullmq/connection.ts";
import { readJob, storedName, storedOptions, PARK_MS } from "../bullmq/stored-job.ts";
import { addJobs } from "../bullmq/add-jobs.ts";
import { storeSchedule } from "../bullmq/stored-schedule.ts";
import type { Job } from "../job.ts";
import { parkFromProducer, type ParkParts } from "../lanes/park.ts";
import {
  isRecurring,
  readEnqueueOptions,
  withDefaults,
  type EnqueueOptions,
  type JobDefaults,
} from "../options.ts";
import { checkCopy, copyOf, takeData, type DataRules, type TakenData } from "./data.ts";
import { queuedJob, type JobSource, type QueuedJob } from "./job-handle.ts";

/** Returns the options of one job, from its data and its index. */
export type EnqueueOptionsOf<Input> = (data: Input, index: number) => EnqueueOptions;

/** Stores jobs, within `storeTimeoutMs`. */
export interface Enqueuing<Data, Result, Input> {
  /**
   * Stores a job; resolves when Redis has it. With a `dedupeId` that a job in the queue has already,
   * nothing is stored, and the job returned has that one's id. For a recurring job, it is the next run.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, too large, or refused by the schema.
   * @throws {@link CostTooLargeError} when the bucket could never give as much at once.
   * @throws {@link StoreUnavailableError} when Redis did not confirm it within `storeTimeoutMs`; `mayBeStored` says whether Redis may have it.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  enqueue(data: Input, options?: EnqueueOptions): Promise<QueuedJob<Data, Result>>;
  /**
   * Stores many jobs, a thousand per round trip, each of which has `storeTimeoutMs`; the options are the same
   * for all, or come from a function of each job's data. All are checked before the first is stored.
   * Rejects as `enqueue` does; `storedCount` of a StoreUnavailableError says how many are stored for certain.
   */
  enqueueMany(
    data: readonly Input[],
    options?: EnqueueOptions | EnqueueOptionsOf<Input>,
  ): Promise<QueuedJob<Data, Result>[]>;
}

interface Entry<Data> extends TakenData<Data> {
  readonly options: EnqueueOptions;
}

/** A job of many: its data is there, or comes of a call. */
interface Taken<Data> {
  readonly data: TakenData<Data> | (() => TakenData<Data> | Promise<TakenData<Data>>);
  readonly options: EnqueueOptions;
}

const PER_ROUND_TRIP = 1_000;

export interface EnqueuingParts<Data> extends DataRules<Data> {
  readonly name: string;
  readonly bucket: OwnedBucket;
  readonly connection: QueueConnection;
  readonly logger: Logger;
  /** The weight of a key's lane; undefined without a key. */
  readonly weightOf: (key: string | undefined) => number | undefined;
  readonly defaults: JobDefaults | undefined;
  readonly jobs: JobSource;
}

export function createEnqueuing<Data, Result, Input>(
  parts: EnqueuingParts<Data>,
): Enqueuing<Data, Result, Input> {
  const { name, bucket, connection, logger, weightOf, defaults, jobs: source } = parts;
  const { access } = source;
  const open = (): Promise<StoredQueue> => access.open("nothing was stored");
  const parking: ParkParts = { name, logger, lanes: connection.lanes, weightOf, open };

  function readOptions(where: string, given: unknown): EnqueueOptions {
    const own = readEnqueueOptions(where, given);
    const options = defaults === undefined ? own : withDefaults(own, defaults);
    weightOf(options.key);
    return options;
  }

  /** Refuses now what can never start, and not when its turn comes in a week. */
  function checkDrawable(where: string, { key, cost }: EnqueueOptions): Promise<void> | undefined {
    return bucket.checkDrawable(where, { key, cost });
  }

  function readForMany(
    options: EnqueueOptions | EnqueueOptionsOf<Input>,
  ): (data: Input, index: number) => EnqueueOptions {
    const where = "enqueueMany()";
    if (typeof options !== "function") {
      const forAll = readOptions(where, options);
      assertForMany(where, forAll, true);
      return () => forAll;
    }
    return (data, index) => {
      const own = readOptions(where, options(data, index));
      assertForMany(where, own, false);
      return own;
    };
  }

  /** Async, so that it rejects where it would throw: another answer may be awaited beside it. */
  async function takeOne(where: string, data: Input): Promise<TakenData<Data>> {
    return takeData(where, data, parts);
  }

  /** Takes the jobs as they are now. Those of an asynchronous schema are checked later, one after another. */
  function takeMany(
    where: string,
    data: readonly Input[],
    optionsOf: (data: Input, index: number) => EnqueueOptions,
  ): Taken<Data>[] {
    let isLate = false;
    return [...data].map((each, index) => {
      const copy = isLate ? copyOf(where, each) : undefined;
      const taken = isLate ? () => checkCopy(where, copy, parts) : takeData(where, each, parts);
      const options = optionsOf(each, index);
      if (!(taken instanceof Promise)) return { data: taken, options };
      isLate = true;
      // Another job may be refused before this one's answer is awaited.
      taken.catch(() => undefined);
      return { data: () => taken, options };
    });
  }

  async function store(entries: readonly Entry<Data>[]): Promise<QueuedJob<Data, Result>[]> {
    const startedAtMs = performance.now();
    const queue = await open();
    const [first] = entries;
    const isSchedule = first !== undefined && isRecurring(first.options);
    const storing = isSchedule
      ? storeRecurring(queue, first).then((job) => [job])
      : storeOnce(queue, entries);
    try {
      const jobs = await confirmed(access.inTimeSince(startedAtMs, storing));
      return jobs.map((job) => queuedJob(job, source));
    } catch (error) {
      throw asMemoryFull(error, entries.length);
    }
  }

  async function storeRecurring(queue: StoredQueue, entry: Entry<Data>): Promise<Job<Data>> {
    const { json, value: data } = entry;
    const declare = (run: RunDeclaration) => connection.runs.declare(name, run);
    const job = await storeSchedule<Data>(queue, { declare, clock: access.clock }, entry);
    // One that a worker holds keeps its own.
    return JSON.stringify(job.data) === json ? { ...job, data } : job;
  }

  /** How many plain calls a job counts as, in its lane's turns and in forecasts; undefined for 1. */
  function shareOf({ key, cost }: EnqueueOptions): number | undefined {
    if (cost === undefined) return undefined;
    const share = bucket.stepsOf({ key, cost }).sharedMs / bucket.stepsOf({ key }).sharedMs;
    return Number.isFinite(share) && share > 0 && share !== 1 ? share : undefined;
  }

  async function storeOnce(
    queue: StoredQueue,
    entries: readonly Entry<Data>[],
  ): Promise<Job<Data>[]> {
    const { clock } = access;
    await clock.ready();
    const bulk = entries.map(({ json, value, options }) => {
      const { opts, storedAtMs } = storedOptions(options, clock, shareOf(options));
      const isParked = options.key !== undefined && opts.delay === undefined;
      return {
        name: storedName(options.key),
        json,
        value,
        opts: isParked ? { ...opts, delay: PARK_MS } : opts,
        storedAtMs,
        isParked,
      };
    });
    const jobs = await addJobs(queue, bulk);
    const parked = jobs.filter((_job, index) => bulk[index]!.isParked);
    if (parked.length > 0) await parkFromProducer(parking, queue, parked);
    return jobs.map(readJob);
  }

  return {
    // All that is given is read before the first `await`: the caller may use its objects again.
    async enqueue(data, options = {}) {
      const where = "enqueue()";
      const read = readOptions(where, options);
      const checking = checkDrawable(where, read);
      const [taken] = await Promise.all([takeOne(where, data), checking]);
      const [job] = await store([{ ...taken, options: read }]);
      return job!;
    },
    async enqueueMany(data, options = {}) {
      const where = "enqueueMany()";
      if (!Array.isArray(data)) {
        const remedy = "give an array with the data of each job";
        throw new InvalidOptionError({ where, option: "data", value: data, remedy });
      }
      const entries: Entry<Data>[] = [];
      let checked: EnqueueOptions | undefined;
      for (const taken of takeMany(where, data, readForMany(options))) {
        const { options: own } = taken;
        const reading = typeof taken.data === "function" ? taken.data() : taken.data;
        // Mostly there is nothing to wait for.
        const read = reading instanceof Promise ? await reading : reading;
        const checking = own === checked ? undefined : checkDrawable(where, own);
        if (checking !== undefined) await checking;
        checked = own;
        entries.push({ ...read, options: own });
      }
      const jobs: QueuedJob<Data, Result>[] = [];
      for (let start = 0; start < entries.length; start += PER_ROUND_TRIP) {
        const some = entries.slice(start, start + PER_ROUND_TRIP);
        jobs.push(
          ...(await store(some).catch((error) => Promise.reject(afterOthers(jobs, error)))),
        );
      }
      return jobs;
    },
  };
}

function assertForMany(where: string, options: EnqueueOptions, isForAll: boolean): void {
  const wrong = (option: keyof EnqueueOptions, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value: options[option], remedy });
  if (isRecurring(options)) {
    throw wrong(options.cron === undefined ? "every" : "cron", "give recurring jobs to enqueue()");
  }
  if (!isForAll || options.dedupeId === undefined) return;
  throw wrong("dedupeId", "give a function of the data, so that each job has one of its own");
}

/** How ioredis refuses a command that it has not begun to send. */
const UNSENT = "Stream isn't writeable";

/** The reply of Redis to jobs that were sent to be stored, or why it is missing. */
async function confirmed<Answer>(storing: Promise<Answer>): Promise<Answer> {
  try {
    return await storing;
  } catch (cause) {
    const isUnsent = cause instanceof Error && cause.message.startsWith(UNSENT);
    const refusal = redisRefusalOf(cause);
    const problem = isUnsent
      ? "Redis could not be reached; nothing was stored"
      : `${whatRedisDid(refusal)}; it may or may not be stored. With a dedupeId, a retry is safe`;
    const remedy = `${refusal?.remedy ?? "See that Redis runs"}, and try again.`;
    throw new StoreUnavailableError(`${problem}. ${remedy}`, cause, { mayBeStored: !isUnsent });
  }
}

function whatRedisDid(refusal: RedisRefusal | undefined): string {
  if (refusal === undefined) return "Redis did not confirm the job";
  return `Redis refused the job: ${refusal.reason}`;
}

/** The error of one round trip, after others that succeeded. */
function afterOthers(stored: readonly unknown[], error: unknown): unknown {
  if (!(error instanceof StoreUnavailableError) || stored.length === 0) return error;
  const message = `The first ${stored.length} jobs are stored. For the next ones: ${error.message}`;
  const facts = { mayBeStored: error.mayBeStored, storedCount: stored.length };
  return new StoreUnavailableError(message, error.cause, facts);
}

/** A better error when Redis refused the jobs because its memory is full; any other error as it is. */
function asMemoryFull(error: unknown, jobs: number): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  const { cause } = error;
  if (!(cause instanceof Error) || !/\bOOM /.test(cause.message)) return error;
  // Each job is stored by its own script, and Redis runs a script whole or not at all.
  const mayBeStored = jobs > 1;
  const outcome = mayBeStored ? "some of the jobs may be stored" : "nothing was stored";
  const remedy = "Give it more (maxmemory), or let workers drain its queues, and try again.";
  return new StoreUnavailableError(`The memory of Redis is full; ${outcome}. ${remedy}`, cause, {
    mayBeStored,
  });
}
