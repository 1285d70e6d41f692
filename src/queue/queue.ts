import { Queue as StoredQueue } from "bullmq";
import { z } from "zod";
import { ClosedError, InvalidOptionError, StoreUnavailableError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { KEY, LONGEST_MS, PRIORITY, readOptions, wholeNumber } from "../core/options.ts";
import type { Bucket } from "../throttle/bucket.ts";
import { storedQueueName, type ConnectQueue } from "./connection.ts";
import {
  readJob,
  storedName,
  storedOptions,
  type EnqueueOptions,
  type Job,
  type Stored,
} from "./job.ts";
import { reportErrors } from "./report-errors.ts";

/** Durable work for one bucket; it waits in Redis until a worker's slot comes. */
export interface Queue<Data> {
  readonly name: string;
  readonly bucket: Bucket;
  /**
   * Stores a job; resolves when Redis has it.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is no JSON.
   * @throws {@link StoreUnavailableError} when Redis did not take it in time.
   */
  enqueue(data: Data, options?: EnqueueOptions): Promise<Job<Data>>;
  /** Stores many jobs of the same options, a thousand per round trip; a failure may leave the first thousands stored. */
  enqueueMany(data: readonly Data[], options?: EnqueueOptions): Promise<Job<Data>[]>;
  /** How many jobs wait, run, wait for a later time, and have failed for good. */
  counts(): Promise<QueueCounts>;
}

export interface QueueCounts {
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly failed: number;
}

/** A queue, and the end of it. */
export interface OwnedQueue<Data> extends Queue<Data> {
  close(): Promise<void>;
}

export interface QueueSettings {
  readonly name: string;
  readonly bucket: Bucket;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
}

const PER_ROUND_TRIP = 1_000;

const ENQUEUE_OPTIONS = z.strictObject({
  key: KEY.optional(),
  priority: PRIORITY.optional(),
  delayMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
  attempts: wholeNumber(1, 1_000, "attempts").optional(),
  backoff: z.strictObject({ baseMs: wholeNumber(1, LONGEST_MS, "milliseconds") }).optional(),
});

export function createQueue<Data>(settings: QueueSettings): OwnedQueue<Data> {
  const { name, bucket, connect, prefix, timeoutMs, logger } = settings;
  const connection = connect("producer");
  let stored: StoredQueue | undefined;
  let isClosed = false;

  /** BullMQ's queue is made once Redis answers: made before, it would wait for it without end. */
  async function open(): Promise<StoredQueue> {
    if (isClosed) throw new ClosedError(`Queue "${name}"`);
    try {
      await connection.untilReady(timeoutMs);
    } catch (cause) {
      const problem = `Redis could not be reached within ${timeoutMs} ms; nothing was stored`;
      throw new StoreUnavailableError(`${problem}. See that Redis runs, and try again.`, cause);
    }
    if (stored === undefined) {
      stored = new StoredQueue(storedQueueName(name), { connection: connection.client, prefix });
      reportErrors(stored, `Queue "${name}"`, logger);
    }
    return stored;
  }

  async function store(data: readonly Data[], options: EnqueueOptions): Promise<Job<Data>[]> {
    const opts = storedOptions(options);
    const jobName = storedName(options.key);
    const bulk = data.map((each) => ({ name: jobName, data: asJson(each), opts }));
    const queue = await open();
    try {
      const jobs = await queue.addBulk(bulk);
      return jobs.map((job) => readJob(job as Stored<Data>));
    } catch (cause) {
      const problem = "Redis did not confirm the job; it may or may not be stored";
      throw new StoreUnavailableError(`${problem}. See that Redis runs.`, cause);
    }
  }

  return {
    name,
    bucket,
    async enqueue(data, options = {}) {
      const [job] = await store([data], readOptions("enqueue()", ENQUEUE_OPTIONS, options));
      return job!;
    },
    async enqueueMany(data, options = {}) {
      const read = readOptions("enqueueMany()", ENQUEUE_OPTIONS, options);
      if (!Array.isArray(data)) {
        const remedy = "give an array with the data of each job";
        throw new InvalidOptionError({
          where: "enqueueMany()",
          option: "data",
          value: data,
          remedy,
        });
      }
      const jobs: Job<Data>[] = [];
      for (let start = 0; start < data.length; start += PER_ROUND_TRIP) {
        jobs.push(...(await store(data.slice(start, start + PER_ROUND_TRIP), read)));
      }
      return jobs;
    },
    async counts() {
      const queue = await open();
      const counts = await queue.getJobCounts("wait", "prioritized", "active", "delayed", "failed");
      const { wait = 0, prioritized = 0, active = 0, delayed = 0, failed = 0 } = counts;
      return { waiting: wait + prioritized, active, delayed, failed };
    },
    async close() {
      if (isClosed) return;
      isClosed = true;
      await stored?.close();
      connection.close();
    },
  };
}

/** @throws {@link InvalidOptionError} for data that JSON cannot hold, since it would be lost on the way. */
function asJson<Data>(data: Data): Data {
  try {
    if (JSON.stringify(data) !== undefined) return data;
  } catch {
    // Reported below with what JSON cannot hold for another reason: a cycle, a BigInt.
  }
  const remedy = "give data that JSON can hold";
  throw new InvalidOptionError({ where: "enqueue()", option: "data", value: data, remedy });
}
