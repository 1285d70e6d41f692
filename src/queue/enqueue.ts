import type { Queue as StoredQueue } from "bullmq";
import { reasonOf } from "../core/describe-value.ts";
import { InvalidOptionError } from "../core/errors.ts";
import type { LaneStore } from "../core/lane-store.ts";
import type { Logger } from "../core/logger.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { afterOthers, confirmed } from "./confirmed.ts";
import { isRecurring, readEnqueueOptions, type EnqueueOptions } from "./enqueue-options.ts";
import { readJob, storedName, storedOptions, type Job, type Stored } from "./job.ts";
import { PARK_MS } from "./lane.ts";
import { tellWhenFull } from "./memory-full.ts";
import { queuedJob, type JobActions, type QueuedJob } from "./queued-job.ts";
import { storeSchedule } from "./recurring.ts";
import { readData, type DataRules } from "./schema.ts";

/** The options of each job, from its data and its place among those given. */
export type EnqueueOptionsOf<Input> = (data: Input, index: number) => EnqueueOptions;

/** Stores jobs, within the time that a producer is ready to wait. */
export interface Enqueuing<Data, Input> {
  /**
   * Stores a job; resolves when Redis has it. With a `dedupeId` that a job in the queue has already,
   * nothing is stored, and the job returned has that one's id. Of a recurring job, it is the next run.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is no JSON, too large, or refused by the schema.
   * @throws {@link CostTooLargeError} when the bucket could never give as much at once.
   * @throws {@link StoreUnavailableError} when Redis did not confirm it within `storeTimeoutMs`; `mayBeStored` tells whether it may have it.
   * @throws {@link ClosedError} when the sluice is closed.
   */
  enqueue(data: Input, options?: EnqueueOptions): Promise<QueuedJob<Data>>;
  /**
   * Stores many jobs, a thousand per round trip, each of which has `storeTimeoutMs`; the options are the same
   * for all, or come from a function of each job's data. All are checked before the first is stored.
   * Rejects as `enqueue` does; `storedCount` of a StoreUnavailableError tells how many are stored for certain.
   */
  enqueueMany(
    data: readonly Input[],
    options?: EnqueueOptions | EnqueueOptionsOf<Input>,
  ): Promise<QueuedJob<Data>[]>;
}

interface Entry<Data> {
  readonly data: Data;
  readonly options: EnqueueOptions;
}

const PER_ROUND_TRIP = 1_000;

export function createEnqueuing<Data, Input>(parts: {
  readonly name: string;
  readonly logger: Logger;
  readonly bucket: OwnedBucket;
  readonly lanes: LaneStore;
  /** The weight of a key's lane, if it is not 1. */
  readonly weightOf: (key: string | undefined) => number | undefined;
  readonly timeoutMs: number;
  readonly rules: DataRules<Data>;
  readonly actions: JobActions;
  /** @throws {@link StoreUnavailableError} when Redis does not answer in time. */
  readonly open: () => Promise<StoredQueue>;
}): Enqueuing<Data, Input> {
  const { name, logger, bucket, lanes, weightOf, timeoutMs, rules, actions, open } = parts;

  /** What can never pass is refused now, and not when its turn comes in a week. */
  function readOptions(where: string, given: unknown): EnqueueOptions {
    const options = readEnqueueOptions(where, given);
    bucket.assertDrawable({ key: options.key, cost: options.cost });
    weightOf(options.key);
    return options;
  }

  function readForMany(options: EnqueueOptions | EnqueueOptionsOf<Input>): EnqueueOptionsOf<Input> {
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

  async function store(entries: readonly Entry<Data>[]): Promise<QueuedJob<Data>[]> {
    const startedAtMs = performance.now();
    const queue = await open();
    const leftMs = timeoutMs - (performance.now() - startedAtMs);
    const [first] = entries;
    const isSchedule = first !== undefined && isRecurring(first.options);
    const storing = isSchedule
      ? storeSchedule(queue, first.data, first.options).then((job) => [job])
      : storeOnce(queue, entries);
    try {
      const jobs = await confirmed(storing, leftMs);
      return jobs.map((job) => queuedJob(job, actions));
    } catch (error) {
      throw tellWhenFull(error, entries.length);
    }
  }

  /** How many plain calls a job stands for in the turns of its lane. */
  function shareOf({ key, cost }: EnqueueOptions): number | undefined {
    if (key === undefined || cost === undefined) return undefined;
    const share = bucket.stepsOf({ key, cost }).sharedMs / bucket.stepsOf({ key }).sharedMs;
    return Number.isFinite(share) && share > 0 && share !== 1 ? share : undefined;
  }

  async function storeOnce(
    queue: StoredQueue,
    entries: readonly Entry<Data>[],
  ): Promise<Job<Data>[]> {
    const bulk = entries.map(({ data, options }) => {
      const opts = storedOptions(options, shareOf(options));
      const isParked = options.key !== undefined && opts.delay === undefined;
      const storedAs = storedName(options.key);
      return {
        name: storedAs,
        data,
        opts: isParked ? { ...opts, delay: PARK_MS } : opts,
        isParked,
      };
    });
    const jobs = (await queue.addBulk(bulk)) as Stored<Data>[];
    const parked = jobs.filter((_job, index) => bulk[index]!.isParked);
    if (parked.length > 0) await join(queue, parked);
    return jobs.map(readJob);
  }

  async function join(queue: StoredQueue, parked: readonly Stored<Data>[]): Promise<void> {
    try {
      const joining = await Promise.all(parked.map((job) => isOnItsWay(queue, job)));
      const ours = parked.filter((_job, index) => joining[index]).map(readJob);
      const laneJobs = ours.map(({ id, key }) => ({ id, weight: weightOf(key) }));
      if (laneJobs.length > 0) await lanes.join(name, laneJobs);
    } catch (error) {
      // They are stored: to say that they are not would have them stored twice.
      const reason = reasonOf(error);
      const problem = `Jobs of queue "${name}" join their lanes ${PARK_MS} ms late: ${reason}`;
      logger.warn({ queue: name, jobs: parked.length, reason }, problem);
    }
  }

  return {
    async enqueue(data, options = {}) {
      const where = "enqueue()";
      const read = readOptions(where, options);
      const [job] = await store([{ data: await readData(where, data, rules), options: read }]);
      return job!;
    },
    async enqueueMany(data, options = {}) {
      const where = "enqueueMany()";
      if (!Array.isArray(data)) {
        const remedy = "give an array with the data of each job";
        throw new InvalidOptionError({ where, option: "data", value: data, remedy });
      }
      const given: readonly Input[] = data;
      const optionsOf = readForMany(options);
      const entries: Entry<Data>[] = [];
      for (const [index, each] of given.entries()) {
        const reading = readData(where, each, rules);
        // Most queues have no schema, and need not wait for one.
        const value = reading instanceof Promise ? await reading : reading;
        entries.push({ data: value, options: optionsOf(each, index) });
      }
      const jobs: QueuedJob<Data>[] = [];
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

/** Whether a job is to join its lane; not if it stands for one of its `dedupeId` that waits for a later time. */
async function isOnItsWay(queue: StoredQueue, { id, opts }: Stored<unknown>): Promise<boolean> {
  if (opts.deduplication === undefined) return true;
  const client = await queue.getBackend().client;
  return (await client.hget(queue.toKey(id!), "delay")) === String(PARK_MS);
}
