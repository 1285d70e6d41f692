import { randomUUID } from "node:crypto";
import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, inject } from "vitest";
import type { Fed, FeedRequest, LaneJob, LaneStore } from "../../../src/core/queue-store.ts";
import { createRedisLanes } from "../../../src/redis/queue-store.ts";

export const HOUR_MS = 3_600_000;

/** The lanes of a queue on a real Redis, without workers: jobs are stored, let out and sent back by hand. */
export function handFedLanes() {
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

  const join = (ids: readonly string[], weight?: number): Promise<void> =>
    lanes.join(
      "jobs",
      ids.map((id) => ({ id, weight })),
    );

  /** Stores jobs of a key as a producer does, and parks them; their ids begin with the key. */
  async function enqueue(
    key: string,
    count: number,
    {
      priority = 3,
      weight,
      ...sluice
    }: { priority?: number; weight?: number; share?: number; startByMs?: number } = {},
  ): Promise<string[]> {
    const ids: string[] = [];
    for (let n = 0; n < count; n++) {
      const opts = { jobId: `${key}-${randomUUID()}`, delay: 10_000, priority, sluice };
      const { id } = await stored.add(`key ${key}`, 0, opts);
      ids.push(id!);
    }
    await join(ids, weight);
    return ids;
  }

  /** So many jobs are to be out; the two beyond what workers want are taken off the first one's. */
  function feed({ worker = "w", want = 0, ...request }: Partial<FeedRequest> = {}): Promise<Fed> {
    const nothing = { forMs: HOUR_MS, arrived: [], probes: [], woken: [] };
    const wanted = worker === "w" ? want - 2 : want;
    return lanes.feed({ queue: "jobs", worker, want: wanted, ...nothing, ...request });
  }

  /** Fetches what was let out, in its order, as a worker does; tells of it, so that it is under way no more. */
  async function fetchFed(): Promise<string[]> {
    const wait = keyOf("wait");
    const fetched = (await redis.lrange(wait, 0, -1)).toReversed();
    await redis.del(wait);
    if (fetched.length > 0) await feed({ arrived: fetched });
    return fetched;
  }

  /** Has so many jobs let out, one by one, and says whose they were. */
  async function letOut(count: number): Promise<string> {
    const keys: string[] = [];
    for (let n = 0; n < count; n++) {
      await feed({ want: 1 });
      keys.push(...(await fetchFed()).map((id) => id.split("-")[0]!));
    }
    await feed();
    return keys.join("");
  }

  /** A worker puts a job back that it has fetched, since its key has no room for so long. */
  async function putBack(id: string, job: Partial<LaneJob>): Promise<void> {
    await redis.zadd(keyOf("delayed"), (Date.now() + 10_000) * 4_096, id);
    await lanes.join("jobs", [{ id, ...job }]);
  }

  async function placeOf(id: string): Promise<unknown> {
    return (await lanes.look("jobs", id)).place;
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
    join,
    enqueue,
    feed,
    fetchFed,
    letOut,
    putBack,
    placeOf,
  };
}
