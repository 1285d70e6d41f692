import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, inject } from "vitest";
import type { BucketOptions, Queue, QueueOptions, Sluice } from "sluice";
import { realSluices } from "../setup/real-sluice.ts";

export interface OpenedLanes {
  readonly sluice: Sluice;
  readonly queue: Queue<number>;
}

export interface Lanes {
  /** Redis, to look behind the queue. */
  readonly redis: Redis;
  readonly prefix: string;
  /** A replica with a queue whose keys may have limits of their own. */
  open(policy: BucketOptions, weights?: QueueOptions["weights"]): OpenedLanes;
  /** What the queue keeps in Redis beside BullMQ, by the ends of the keys' names. */
  keys(): Promise<string[]>;
  /** Those of them that are to be gone when all jobs are done. */
  rest(): Promise<string[]>;
  /** The data of the jobs that workers hold, or that lie where BullMQ has put them back. */
  heldByWorkers(): Promise<Set<number>>;
}

/** Queues with lanes on a real Redis, of a prefix of its own for each test. */
export function openLanes(): Lanes {
  const sluices = realSluices();
  let redis: Redis;
  let prefix = "";
  beforeAll(() => {
    redis = new Redis(inject("redisUrl"));
  });
  beforeEach(() => {
    prefix = sluices.prefix();
  });
  afterAll(async () => {
    await redis.quit();
  });

  async function keys(): Promise<string[]> {
    const own = `${prefix}:{jobs}:lanes:`;
    const found = await redis.keys(`${own}*`);
    return found.map((key) => key.slice(own.length));
  }

  return {
    get redis() {
      return redis;
    },
    get prefix() {
      return prefix;
    },
    open(policy, weights) {
      const sluice = sluices.open();
      const bucket = sluice.bucket("downstream", policy);
      return { sluice, queue: sluice.queue<number>("jobs", { bucket, weights }) };
    },
    keys,
    rest: async () => (await keys()).filter((name) => name !== "state"),
    async heldByWorkers() {
      const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
      const stored = new BullQueue<number>("{jobs}", { prefix, connection });
      const jobs = await stored.getJobs(["active", "wait"]);
      await stored.close();
      await connection.quit();
      return new Set(jobs.map(({ data }) => data));
    },
  };
}

export async function areAllDone({ queue }: OpenedLanes): Promise<boolean> {
  const { waiting, active, delayed } = await queue.counts();
  return waiting + active + delayed === 0;
}

/** A time that passes while others work: a queue of its own does so many jobs, at 20 a second. */
export async function whileOthersWork({ sluice }: OpenedLanes, count: number): Promise<void> {
  const bucket = sluice.bucket("clock", { rate: "20/s" });
  const queue = sluice.queue<number>(`clock-${count}`, { bucket });
  const worker = sluice.worker(queue, async () => {});
  const jobs = await queue.enqueueMany(upTo(count));
  await Promise.all(jobs.map((job) => job.finished()));
  await worker.close();
}

export const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

/** BullMQ fetches jobs side by side, so those that come to a worker together may change places. */
export const FETCHED_AT_ONCE = 5;

export function farthestFromPlace(order: readonly number[]): number {
  const places = order.toSorted((a, b) => a - b);
  return Math.max(...order.map((n, index) => Math.abs(places.indexOf(n) - index)));
}
