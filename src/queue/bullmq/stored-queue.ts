import type { Queue as StoredQueue, Job as StoredJob, Queue } from "bullmq";
import { messageOf } from "../../core/describe.ts";
import {
  ClosedError,
  redisRefusalOf,
  SluiceError,
  StoreUnavailableError,
} from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import type { AddedJob, JobMet } from "../../stores/redis/scripts/queue/jobs.ts";
import {
  createErrorReports,
  storedQueueName,
  type QueueConnection,
  onRedisTime,
} from "./connection.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { type Stored, readFields, type StoredOptions } from "./stored-job.ts";

/**
 * Access to the BullMQ queue that stores our queue. The BullMQ queue is opened on first use, and each request has a
 * time limit.
 */
export interface StoredAccess {
  /** The clock of the server that holds the queue. */
  readonly clock: RedisClock;
  /**
   * Resolves with BullMQ's queue, once Redis has replied and event listeners will receive all later events.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link StoreUnavailableError} when Redis is unreachable. The error message contains `outcome`.
   */
  open(outcome?: string): Promise<StoredQueue>;
  /**
   * Sends a request of one or two round trips with BullMQ's queue. Rejects as `open` does, and also when the reply is
   * late.
   */
  ask<T>(question: Question<T>): Promise<T>;
  /** Like `ask`, but does not wait until listeners receive events. */
  askAtOnce<T>(question: Question<T>): Promise<T>;
  /**
   * Resolves with a reply that comes within the time limit. The time limit began at `startedAtMs`, on
   * `performance.now()`.
   */
  inTimeSince<T>(startedAtMs: number, question: Promise<T>): Promise<T>;
  /**
   * Assigns a dedupeId to a job until the job ends, unless another job has this dedupeId. Returns whether the dedupeId
   * was free.
   */
  holdDedupeId(dedupeId: string, id: string): Promise<boolean>;
  /** Makes `open` also wait for `beginning`, which must settle within the time limit and never reject. */
  waitFor(beginning: Promise<void>): void;
  close(): Promise<void>;
}

/** A request gets at least this share of the time limit, even if opening the queue took longer. */
const LEAST_LEFT = 0.25;

type Question<T> = (stored: StoredQueue) => Promise<T>;

interface StoredSettings {
  readonly name: string;
  /** The connection, which is closed together with the queue. */
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
}

export function createStoredAccess(settings: StoredSettings): StoredAccess {
  const { name, connection, prefix, timeoutMs, logger } = settings;
  // Loads BullMQ now and not with the first request, because loading blocks the process for about 100 ms.
  const { Queue, createRedisBackend } = loadBullmq();
  const clock = connection.clockOf(name);
  const backends = onRedisTime(createRedisBackend, clock);
  let stored: StoredQueue | undefined;
  let beginning: Promise<void> | undefined;
  let isClosed = false;
  const reports = createErrorReports(`Queue "${name}"`, logger);

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Queue "${name}"`);
  }

  /**
   * Creates BullMQ's queue. BullMQ's queue sends `INFO` to Redis once, and stays unusable if that fails
   * (taskforcesh/bullmq#3341 is about the request itself; checked with bullmq 6.7.0, `init` in redis-connection.js).
   * After such a failure, the next request creates another queue.
   */
  function create(): StoredQueue {
    const options = { connection: connection.client, prefix };
    const queue: StoredQueue = new Queue(storedQueueName(name), options, backends);
    reports.watch(queue);
    queue.waitUntilReady().catch(() => {
      if (stored === queue) stored = undefined;
      queue.close().catch(() => undefined);
    });
    return queue;
  }

  /**
   * Creates BullMQ's queue once Redis replies. If the queue were created earlier, it would wait for Redis without end
   * (taskforcesh/bullmq#995).
   */
  async function reach(outcome = "nothing was changed"): Promise<StoredQueue> {
    assertOpen();
    try {
      await connection.untilReady(timeoutMs);
    } catch (cause) {
      assertOpen();
      const refusal = redisRefusalOf(cause);
      const problem = refusal === undefined ? "could not be reached" : "refused it";
      const met = cause instanceof Error ? ` (${messageOf(cause)})` : "";
      const what = `Redis ${problem} within ${timeoutMs} ms${met}; ${outcome}`;
      const text = `${what}. ${refusal?.remedy ?? "See that Redis runs"}, and try again.`;
      throw new StoreUnavailableError(text, cause);
    }
    assertOpen();
    stored ??= create();
    return stored;
  }

  async function open(outcome?: string): Promise<StoredQueue> {
    const queue = await reach(outcome);
    await beginning;
    assertOpen();
    return queue;
  }

  function inTimeSince<T>(startedAtMs: number, question: Promise<T>): Promise<T> {
    const leftMs = timeoutMs - (performance.now() - startedAtMs);
    // Leaves Redis some time to reply, even if this process was blocked until now.
    return connection.inTime(Math.max(leftMs, timeoutMs * LEAST_LEFT), question);
  }

  async function answer<T>(opening: Promise<StoredQueue>, question: Question<T>): Promise<T> {
    const startedAtMs = performance.now();
    const queue = await opening;
    try {
      return await inTimeSince(startedAtMs, question(queue));
    } catch (cause) {
      assertOpen();
      if (cause instanceof SluiceError) throw cause;
      const refusal = redisRefusalOf(cause);
      const problem =
        refusal === undefined
          ? `Redis gave no answer within ${timeoutMs} ms; it may or may not have done what it was asked`
          : `Redis refused it: ${refusal.reason}`;
      const remedy = refusal?.remedy ?? "See that Redis runs, and try again";
      throw new StoreUnavailableError(`${problem}. ${remedy}.`, cause);
    }
  }

  const ask: StoredAccess["ask"] = (question) => answer(open(), question);

  return {
    clock,
    open,
    ask,
    askAtOnce: (question) => answer(reach(), question),
    inTimeSince,
    // BullMQ uses this key for a dedupeId; checked with bullmq 6.7.0.
    holdDedupeId: (dedupeId, id) =>
      ask((queue) => connection.setIfFree(queue.toKey(`de:${dedupeId}`), id)),
    waitFor(begun) {
      beginning = begun;
    },
    async close() {
      if (isClosed) return;
      isClosed = true;
      await stored?.close();
      connection.close();
    },
  };
}

const accesses = new WeakMap<object, StoredAccess>();

/** Registers the access of our queue, so that `openStored` can return BullMQ's queue. */
export function keepAccess(queue: object, access: StoredAccess): void {
  accesses.set(queue, access);
}

/**
 * Returns the BullMQ queue that stores our queue, for tools such as dashboards. It uses our connection and is closed
 * with our queue. Rejects as `open` does.
 */
export async function openStored(queue: object): Promise<StoredQueue> {
  return accesses.get(queue)!.open();
}

/**
 * Returns the job that holds a dedupeId. `id` is the id of this job, if there is such a job. Otherwise, returns the
 * next run of the schedule with this name.
 */
export async function findDeduped<Data>(
  queue: StoredQueue,
  dedupeId: string,
  id: string | undefined,
): Promise<Stored<Data> | undefined> {
  const held =
    id === undefined ? undefined : ((await queue.getJob(id)) as Stored<Data> | undefined);
  // Without a `dedupeMs`, an ended job no longer holds its dedupeId.
  const holds = held?.finishedOn === undefined || held.opts.deduplication?.ttl !== undefined;
  if (held !== undefined && holds) return held;
  const next = (await queue.getJobScheduler(dedupeId))?.next;
  if (next === undefined) return undefined;
  return (await queue.getJob(`repeat:${dedupeId}:${next}`)) as Stored<Data> | undefined;
}

/**
 * Returns when the oldest dead letter failed, in ms since 1970. Undefined without dead letters. Redis sorts failed jobs
 * by that time.
 */
export async function oldestFailedAtMs(queue: StoredQueue): Promise<number | undefined> {
  const client = await queue.getBackend().client;
  const [, atMs] = await client.zrange(queue.toKey("failed"), 0, 0, { WITHSCORES: true });
  return atMs === undefined ? undefined : Number(atMs);
}

/** A job to be stored. */
export interface NewJob<Data> {
  readonly name: string;
  /** The JSON to store as the job's data. */
  readonly json: string;
  /** The job's data, as `enqueue` returns it to the producer. */
  readonly value: Data;
  readonly opts: StoredOptions;
  /** When the job's delay begins, in ms since 1970 on the clock of Redis. */
  readonly storedAtMs: number;
}

/**
 * Stores jobs in one round trip. BullMQ would convert a job's data to JSON itself, but `enqueue` has already done so.
 * BullMQ has no option for data that is already JSON, so this passes a `Job` class whose `asJSON` returns the existing
 * JSON. No upstream issue is known; checked with bullmq 6.7.0 (`createBulk` and `asJSON` in job.js). The class also
 * sets the job's time, because BullMQ would store the time twice if it were an option.
 */
export async function addJobs<Data>(
  queue: Queue,
  jobs: readonly NewJob<Data>[],
): Promise<Stored<Data>[]> {
  readyJob ??= createReadyJob();
  const given = jobs.map(({ name, opts, ...job }) => ({ name, data: new ReadyData(job), opts }));
  return (await readyJob.createBulk(queue, given)) as unknown as Stored<Data>[];
}

/** A job to store, unless another job already has its id or its dedupeId. */
interface LookedUpJob<Data> extends NewJob<Data> {
  readonly own: Pick<
    AddedJob,
    "id" | "isParked" | "weights" | "dedupe" | "keep" | "row" | "flow" | "children"
  >;
}

/** The stored job, and whether this call has stored it. */
interface Met<Data> {
  readonly stored: Stored<Data>;
  readonly isNew: boolean;
}

/** Stores jobs with one of our scripts, which first checks for existing jobs with the same id or dedupeId. */
export async function addLookedUpJobs<Data>(
  queue: Queue,
  jobs: readonly LookedUpJob<Data>[],
  add: (jobs: readonly AddedJob[]) => Promise<readonly JobMet[]>,
): Promise<Met<Data>[]> {
  const { Job } = loadBullmq();
  const made = jobs.map(({ name, value, opts, storedAtMs }) =>
    Object.assign(new Job(queue, name, value, opts), { timestamp: storedAtMs }),
  );
  const met = await add(made.map((job, index) => addedJob(job as Stored<Data>, jobs[index]!)));
  const stored: Met<Data>[] = [];
  for (const [index, { id, isNew, fields }] of met.entries()) {
    const found =
      fields === undefined
        ? await Job.fromId(queue, id)
        : fields.length > 0 && Job.fromJSON(queue, readFields(fields, id), id);
    const job = found || Object.assign(made[index]!, { id });
    stored.push({ stored: job as unknown as Stored<Data>, isNew });
  }
  return stored;
}

function addedJob<Data>(
  { name, opts, timestamp, priority }: Stored<Data>,
  { json, own }: LookedUpJob<Data>,
): AddedJob {
  const { deduplication, ...others } = opts;
  // BullMQ stores `deduplication` under the short name `de`. Our jobs use no other option with a short name.
  const storedOpts = JSON.stringify({ ...others, de: deduplication });
  return { ...own, name, json, opts: storedOpts, timestamp, delay: opts.delay ?? 0, priority };
}

type Ready = Pick<NewJob<unknown>, "json" | "value" | "storedAtMs">;

class ReadyData implements Ready {
  readonly json: string;
  readonly value: unknown;
  readonly storedAtMs: number;

  constructor({ json, value, storedAtMs }: Ready) {
    this.json = json;
    this.value = value;
    this.storedAtMs = storedAtMs;
  }
}

let readyJob: Pick<typeof StoredJob, "createBulk"> | undefined;

function createReadyJob(): Pick<typeof StoredJob, "createBulk"> {
  const { Job } = loadBullmq();
  return class ReadyJob extends Job {
    override asJSON(): ReturnType<StoredJob["asJSON"]> {
      const ready: unknown = this.data;
      if (!(ready instanceof ReadyData)) return super.asJSON();
      this.timestamp = ready.storedAtMs;
      // Without data, BullMQ creates the JSON "{}", which takes little time. It is replaced below.
      this.data = undefined;
      const fields = super.asJSON();
      this.data = ready.value;
      return Object.assign(fields, { data: ready.json });
    }
  };
}
