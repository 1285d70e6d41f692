import { randomUUID } from "node:crypto";
import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, inject } from "vitest";
import type { LaneJob, Taken, TakeRequest } from "../../../src/stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../../src/stores/redis/queue/store.ts";
import { createRedisLanes } from "../../../src/stores/redis/queue/store.ts";

export const HOUR_MS = 3_600_000;
/** What stands for the key of jobs that have none. */
export const NO_KEY = "_";

export interface JobSettings {
  readonly priority?: number;
  /** Of its lane; or of the heads of its path and its lane. */
  readonly weight?: number | readonly number[];
  readonly share?: number;
  readonly startByMs?: number;
}

/** The lanes of a queue on a real Redis, without workers: jobs are stored, taken and sent back by hand. */
export function lanesByHand() {
  let redis: Redis;
  let prefix: string;
  let stored: BullQueue;
  let lanes: LaneStore;
  beforeAll(() => {
    redis = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  });
  beforeEach(() => {
    prefix = `t${randomUUID()}`;
    stored = new BullQueue("{jobs}", { prefix, connection: redis });
    lanes = createRedisLanes(redis, prefix);
  });
  afterEach(async () => {
    await stored.close();
  });
  afterAll(async () => {
    await redis.quit();
  });

  const keyOf = (name: string): string => `${prefix}:{jobs}:${name}`;

  /** How many jobs are in lanes. */
  const parked = async (): Promise<number> =>
    Number((await redis.hget(keyOf("lanes:state"), "parked")) ?? 0);

  const join = (ids: readonly string[], weight?: JobSettings["weight"]): Promise<void> => {
    const weights = typeof weight === "number" ? [weight] : weight;
    return lanes.join({ queue: "jobs", jobs: ids.map((id) => ({ id, weights })) });
  };

  /** Stores jobs of a key as BullMQ does, and in no lane; their ids begin with the key. */
  async function store(
    key: string,
    count: number,
    { priority = 3, delayMs = 0, ...sluice }: JobSettings & { readonly delayMs?: number } = {},
  ): Promise<string[]> {
    const name = key === NO_KEY ? "job" : `key ${key}`;
    const jobs = Array.from({ length: count }, () => {
      const opts = { jobId: `${key}-${randomUUID()}`, delay: delayMs, priority, sluice };
      return { name, data: 0, opts };
    });
    return (await stored.addBulk(jobs)).map(({ id }) => id!);
  }

  /** Stores jobs as a producer does, and parks those that have a key. */
  async function enqueue(
    key: string,
    count: number,
    { weight, ...settings }: JobSettings = {},
  ): Promise<string[]> {
    if (key === NO_KEY) return store(key, count, settings);
    const ids = await store(key, count, { ...settings, delayMs: 10_000 });
    await join(ids, weight);
    return ids;
  }

  /** Takes nothing unless it is told how many. */
  function take(request: Partial<TakeRequest> = {}): Promise<Taken> {
    const nothing = { most: 0, mostExpired: 0, probes: [], woken: [], ended: [] };
    const lock = { lockMs: HOUR_MS, token: `${randomUUID()}:` };
    return lanes.take({ queue: "jobs", ...lock, ...nothing, ...request });
  }

  async function takeIds(most: number, request: Partial<TakeRequest> = {}): Promise<string[]> {
    return (await take({ most, ...request })).jobs.map(({ id }) => id);
  }

  /** Takes so many jobs, one by one, and says whose they were. */
  async function takeKeys(count: number): Promise<string> {
    const keys: string[] = [];
    for (let n = 0; n < count; n++) {
      keys.push(...(await takeIds(1)).map((id) => id.split("-")[0]!));
    }
    return keys.join("");
  }

  /** A worker puts a job back that it has taken, since its key has no room for so long. */
  async function putBack(id: string, job: Partial<LaneJob>): Promise<void> {
    await redis.lrem(keyOf("active"), 1, id);
    await redis.zadd(keyOf("delayed"), (Date.now() + 10_000) * 4_096, id);
    await lanes.join({ queue: "jobs", jobs: [{ id, ...job }] });
  }

  async function placeOf(id: string): Promise<unknown> {
    return (await lanes.look({ queue: "jobs", id })).jobPosition;
  }

  /** What is kept of lanes. */
  async function kept(): Promise<string[]> {
    const keys = await redis.keys(keyOf("lanes:*"));
    return keys.map((key) => key.slice(keyOf("").length)).toSorted();
  }

  return {
    get redis() {
      return redis;
    },
    get stored() {
      return stored;
    },
    get lanes() {
      return lanes;
    },
    keyOf,
    parked,
    join,
    store,
    enqueue,
    take,
    takeIds,
    takeKeys,
    putBack,
    placeOf,
    kept,
  };
}
