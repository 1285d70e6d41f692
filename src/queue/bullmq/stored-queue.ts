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

/** BullMQ's queue behind ours. It is opened on first use, and each request has a time limit. */
export interface StoredAccess {
  /** The clock of the server that holds the queue. */
  readonly clock: RedisClock;
  /**
   * Resolves with BullMQ's queue, once Redis replies and listeners will receive all later events.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link StoreUnavailableError} when Redis is unreachable; its message contains `outcome`.
   */
  open(outcome?: string): Promise<StoredQueue>;
  /** Sends BullMQ's queue a request of one or two round trips. Rejects as `open` does, also when the reply is late. */
  ask<T>(question: Question<T>): Promise<T>;
  /** The same, without the wait for listeners. */
  askAtOnce<T>(question: Question<T>): Promise<T>;
  /** Resolves with a reply if it comes within the time limit, which began at `startedAtMs` on `performance.now()`. */
  inTimeSince<T>(startedAtMs: number, question: Promise<T>): Promise<T>;
  /** Gives a dedupeId to a job until the job ends, unless another job has it. Returns whether it was free. */
  holdDedupeId(dedupeId: string, id: string): Promise<boolean>;
  /** Makes `open` wait for this too. It must settle within the time limit and never reject. */
  waitFor(beginning: Promise<void>): void;
  close(): Promise<void>;
}

/** The least share of the time limit that a request has left once its queue is open. */
const LEAST_LEFT = 0.25;

type Question<T> = (stored: StoredQueue) => Promise<T>;

interface StoredSettings {
  readonly name: string;
  /** Closed together with the queue. */
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
}

export function createStoredAccess(settings: StoredSettings): StoredAccess {
  const { name, connection, prefix, timeoutMs, logger } = settings;
  // Loaded here rather than with the first request, because loading takes about 100 ms, in which no call could start.
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
   * BullMQ's queue asks its server for `INFO` once, and stays unusable if that fails (taskforcesh/bullmq#3341 is about
   * the request itself; checked with bullmq 6.7.0, `init` in redis-connection.js). After such a failure, the next
   * request creates another queue.
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
   * Creates BullMQ's queue only once Redis replies. Created earlier, it would wait for Redis without end
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
    // If this process was blocked, Redis still gets some time.
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
    // The name of BullMQ's key; checked with bullmq 6.7.0.
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

/** Lets `openStored` find BullMQ's queue behind ours. */
export function keepAccess(queue: object, access: StoredAccess): void {
  accesses.set(queue, access);
}

/**
 * Returns BullMQ's queue behind ours, for tools that show it. It uses our connection and is closed with ours. Rejects
 * as `open` does.
 */
export async function openStored(queue: object): Promise<StoredQueue> {
  return accesses.get(queue)!.open();
}

/**
 * Returns the job that holds a dedupeId, whose id is given if there is one; otherwise the next run of the schedule of
 * this name.
 */
export async function findDeduped<Data>(
  queue: StoredQueue,
  dedupeId: string,
  id: string | undefined,
): Promise<Stored<Data> | undefined> {
  const held =
    id === undefined ? undefined : ((await queue.getJob(id)) as Stored<Data> | undefined);
  // Without a dedupeMs, an ended job has given its dedupeId up.
  const holds = held?.finishedOn === undefined || held.opts.deduplication?.ttl !== undefined;
  if (held !== undefined && holds) return held;
  const next = (await queue.getJobScheduler(dedupeId))?.next;
  if (next === undefined) return undefined;
  return (await queue.getJob(`repeat:${dedupeId}:${next}`)) as Stored<Data> | undefined;
}

/** Returns when the oldest dead letter failed; undefined if there is none. Failed jobs are sorted by that time. */
export async function oldestFailedAtMs(queue: StoredQueue): Promise<number | undefined> {
  const client = await queue.getBackend().client;
  const [, atMs] = await client.zrange(queue.toKey("failed"), 0, 0, { WITHSCORES: true });
  return atMs === undefined ? undefined : Number(atMs);
}

/** A job to be stored. */
export interface NewJob<Data> {
  readonly name: string;
  /** The JSON to store as its data. */
  readonly json: string;
  /** Its data, as the producer gets it back. */
  readonly value: Data;
  readonly opts: StoredOptions;
  /** When its delay begins, in ms since 1970 on Redis' clock. */
  readonly storedAtMs: number;
}

/**
 * Stores jobs in one round trip. BullMQ would turn a job's data into JSON itself, but ours is made when `enqueue` is
 * called. So BullMQ gets a `Job` class whose `asJSON` returns that JSON: BullMQ has no option for it, and no upstream
 * issue is known; checked with bullmq 6.7.0 (`createBulk` and `asJSON` in job.js). The time of a job is set in the same
 * way, because as an option it would be stored twice.
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
  readonly own: Pick<AddedJob, "id" | "isParked" | "weights" | "dedupe">;
}

/** What is stored of a job, and whether that is the given job. */
interface Met<Data> {
  readonly stored: Stored<Data>;
  readonly isNew: boolean;
}

/** Stores jobs with one of our scripts, which first checks what exists. */
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
  // The short name that BullMQ stores. Our jobs use no other option that has one.
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
      // Without data, BullMQ makes the cheap JSON "{}", which is replaced below.
      this.data = undefined;
      const fields = super.asJSON();
      this.data = ready.value;
      return Object.assign(fields, { data: ready.json });
    }
  };
}
