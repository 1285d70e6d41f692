import type { Cluster, Redis } from "ioredis";
import { baseOf, type QueueName } from "../scripts/keys.ts";
import { childrenKey, flowScripts, parentKeys } from "../scripts/queue/flows.ts";
import { dedupeKeys, jobScripts, outboxRowsKey, REPLAYING } from "../scripts/queue/jobs.ts";
import { laneOf, lanesHeld, laneScripts } from "../scripts/queue/lanes.ts";
import { runScripts } from "../scripts/queue/runs.ts";
import { steeringScripts, type JobsLeft } from "../scripts/queue/steering.ts";
import { bindScripts } from "../scripts/script.ts";
import type { SampledClock } from "./clock.ts";

/** The maximum number of lanes that one script searches for the oldest job. */
const LANES_AT_ONCE = 50;
/**
 * How long one request protects dead letters from removal during a replay. This is longer than a
 * request for many jobs takes.
 */
const REPLAYING_MS = 60_000;

type OfQueue = Pick<QueueName, "queue">;

/** Access to the lanes of queues over one connection. */
export type LaneStore = ReturnType<typeof createRedisLanes>;
/** Access to the runs of recurring jobs over one connection. */
export type RunStore = ReturnType<typeof createRedisRuns>;

/**
 * Creates access to the lanes of queues in Redis. BullMQ stores the jobs themselves. Each reply
 * with jobs also contains the server's time, which updates the queue's clock.
 */
export function createRedisLanes(
  redis: Redis | Cluster,
  prefix: string,
  clockOf?: (queue: string) => Pick<SampledClock, "sample">,
) {
  const scripts = bindScripts(redis, { prefix }, { ...laneScripts, ...steeringScripts });
  return {
    ...scripts,
    /** Fetches the next jobs for a worker, in fair turns. */
    async take(request: Parameters<typeof scripts.take>[0]) {
      const sentMs = performance.now();
      const { nowMs, ...taken } = await scripts.take(request);
      // The reply has whole ms, so the real time was up to 1 ms later.
      const times = { sentMs, arrivedMs: performance.now(), fromMs: nowMs, toMs: nowMs + 1 };
      clockOf?.(request.queue).sample(times);
      return taken;
    },
    /**
     * Stores the list of jobs that a worker has fetched but not started, in the order of fetching.
     * `look` reads this list.
     */
    async reportFetched({
      queue,
      worker,
      ids,
      forMs,
    }: OfQueue & {
      readonly worker: string;
      readonly ids: readonly string[];
      /** How long this report is valid, in ms. A later report replaces it. */
      readonly forMs: number;
    }) {
      const key = lanesHeld({ prefix, queue, worker });
      if (ids.length === 0) await redis.del(key);
      else await redis.set(key, JSON.stringify(ids), "PX", forMs);
    },
    /** Finds the oldest job that is due but not started, in up to 500 lanes and outside lanes. Undefined if no job waits. */
    async oldest({ queue }: OfQueue) {
      const keys = (await scripts.look({ queue })).lanes.map(({ key }) => key);
      let found = await scripts.oldest({ queue, ofKeys: [], others: true });
      for (let at = 0; at < keys.length; at += LANES_AT_ONCE) {
        const ofKeys = keys.slice(at, at + LANES_AT_ONCE);
        const next = await scripts.oldest({ queue, ofKeys, others: false });
        if (next !== undefined && next.sinceMs < (found?.sinceMs ?? Infinity)) found = next;
      }
      return found;
    },
    /** Counts the jobs that could run now or within `soonMs`, those that are blocked, and those that are due later. */
    async left(about: OfQueue & { readonly soonMs: number }): Promise<JobsLeft> {
      let blockedSoFar = 0;
      for (let page = ""; ;) {
        const { others, parked, delayed, ...found } = await scripts.leftOnPage({ ...about, page });
        blockedSoFar += found.blocked;
        page = found.nextPage;
        if (page !== "") continue;
        // A lane may be counted twice if others join it during the look.
        const blocked = Math.min(parked, blockedSoFar);
        return { runnable: others + parked - blocked, blocked, delayed };
      }
    },
    /** Counts the parked jobs in the lane of a key, and in the lanes of the keys below it. */
    async waitingOf({ queue, key }: OfQueue & { readonly key: string }) {
      const [own, below] = await Promise.all([
        redis.zcard(laneOf({ prefix, queue, key })),
        redis.hget(`${baseOf({ prefix, queue })}lanes:below`, key),
      ]);
      return own + Number(below ?? 0);
    },
    /**
     * Takes all removed jobs out of their lanes. Jobs that join a lane in the meantime keep their
     * positions.
     */
    async clear({ queue }: OfQueue) {
      let begins = true;
      while (await scripts.clear({ queue, begins })) begins = false;
    },
  };
}

/** Creates access to the runs of recurring jobs. BullMQ stores the runs in Redis. */
export function createRedisRuns(redis: Redis | Cluster, prefix: string) {
  return bindScripts(redis, { prefix }, runScripts);
}

/** Access to the flows of queues over one connection. */
export type FlowStore = ReturnType<typeof createRedisFlows>;

/** Creates access to the flows of queues. */
export function createRedisFlows(redis: Redis | Cluster, prefix: string) {
  return {
    ...bindScripts(redis, { prefix }, flowScripts),
    /** True if jobs of the queue have ever had parents or children. */
    isUsed: async ({ queue }: OfQueue) =>
      (await redis.hexists(`${baseOf({ prefix, queue })}lanes:state`, "flows")) === 1,
    /** Reserves ids for new jobs: returns the last of `count` consecutive numbers. */
    reserveIds: ({ queue, count }: OfQueue & { readonly count: number }) =>
      redis.incrby(`${baseOf({ prefix, queue })}id`, count),
    /** Reads the outcomes of a job's parents as stored, by the names of the parents. */
    outcomes: ({ queue, id }: OfQueue & { readonly id: string }) =>
      redis.hgetall(parentKeys({ prefix, queue, id })[1]),
    /** Keeps the children of a dead letter until they are notified again. */
    async keepChildren({ queue, id }: OfQueue & { readonly id: string }) {
      await redis.persist(childrenKey({ prefix, queue, id }));
    },
    /** Counts the parents that a job still waits for, and reads the first of them. */
    async awaited({ queue, id, most }: OfQueue & { readonly id: string; readonly most: number }) {
      const [key] = parentKeys({ prefix, queue, id });
      const [count, first] = await Promise.all([redis.zcard(key), redis.zrange(key, 0, most - 1)]);
      return { count, first };
    },
    /**
     * Counts the parents of a job that have ended, and the children that wait for the job. Reads some of the outcomes as
     * stored, and the first children.
     */
    async links({ queue, id, most }: OfQueue & { readonly id: string; readonly most: number }) {
      const [, outcomes] = parentKeys({ prefix, queue, id });
      const children = childrenKey({ prefix, queue, id });
      const [endedCount, [, fields], childCount, first] = await Promise.all([
        redis.hlen(outcomes),
        // Redis may return more, and the results of the parents are part of the outcomes.
        redis.hscan(outcomes, 0, "COUNT", most),
        redis.zcard(children),
        redis.zrange(children, 0, most - 1),
      ]);
      const pairs = Array.from(
        { length: Math.min(most, fields.length / 2) },
        (_, at) => [fields[at * 2]!, fields[at * 2 + 1]!] as const,
      );
      return {
        ended: { count: endedCount, first: pairs },
        children: { count: childCount, first },
      };
    },
  };
}

/** A page of the rows of an outbox whose jobs were stored, the oldest first. */
export interface StoredRowsPage {
  readonly outbox: string;
  readonly beforeMs: number;
  readonly offset: number;
  readonly limit: number;
}

/** The most jobs that retention passes over at once, because they must stay for now. */
const MOST_SKIPPED = 10_000;

/** Creates access to the jobs of queues, as BullMQ stores them in Redis. */
export function createRedisJobs(redis: Redis | Cluster, prefix: string) {
  const scripts = bindScripts(redis, { prefix }, jobScripts);
  return {
    ...scripts,
    /** Finds the job that has this dedupeId, or the last job that had it. */
    async holderOf({ queue, dedupeId }: OfQueue & { readonly dedupeId: string }) {
      const [holder, pair] = dedupeKeys({ prefix, queue }, dedupeId);
      return (await redis.get(holder)) ?? (await redis.hget(pair, "of")) ?? undefined;
    },
    /**
     * Removes the done jobs that exceed the queue's limits for kept jobs. Returns jobs that stay because their children
     * were not notified.
     */
    async forgetDone(kept: Omit<Parameters<typeof scripts.forgetDone>[0], "skip">) {
      const unsettled: string[] = [];
      for (;;) {
        const { needed, isMore } = await scripts.forgetDone({ ...kept, skip: unsettled.length });
        unsettled.push(...needed);
        if (!isMore || unsettled.length >= MOST_SKIPPED) return unsettled;
      }
    },
    /**
     * Removes the dead letters that exceed the queue's limits, and returns their number. Removes
     * none during a replay of dead letters. Also returns dead letters that stay because their children were not
     * notified.
     */
    async forgetFailed(kept: Omit<Parameters<typeof scripts.forgetFailed>[0], "skip">) {
      const unsettled: string[] = [];
      for (let total = 0, skip = 0; ;) {
        const { removed, stayed, needed, isMore } = await scripts.forgetFailed({ ...kept, skip });
        total += removed;
        skip += stayed;
        unsettled.push(...needed);
        if (!isMore || skip >= MOST_SKIPPED) return { removed: total, unsettled };
      }
    },
    /**
     * Protects all dead letters of a queue from removal for a minute, because a replay is running.
     */
    async keepAllFailed({ queue }: OfQueue) {
      await redis.set(baseOf({ prefix, queue }) + REPLAYING, "1", "PX", REPLAYING_MS);
    },
    /**
     * Wakes an idle worker so that it fetches jobs immediately. Otherwise it would fetch within 5
     * s.
     */
    async wakeIdle({ queue }: OfQueue) {
      await redis.zadd(`${baseOf({ prefix, queue })}marker`, 0, "0");
    },
    /** Lists rows of an outbox whose jobs were stored before `beforeMs`, on the clock of Redis. */
    rowsStored({ queue, outbox, beforeMs, offset, limit }: OfQueue & StoredRowsPage) {
      const key = outboxRowsKey({ prefix, queue }, outbox);
      return redis.zrangebyscore(key, "-inf", beforeMs, "LIMIT", offset, limit);
    },
    /** Forgets rows of an outbox that no longer exist. */
    async forgetRows({
      queue,
      outbox,
      rows,
    }: OfQueue & { outbox: string; rows: readonly string[] }) {
      await redis.zrem(outboxRowsKey({ prefix, queue }, outbox), ...rows);
    },
    /** Sets a key if it has no value. Returns true if the key was set. */
    setIfFree: async (key: string, value: string) => (await redis.set(key, value, "NX")) === "OK",
  };
}
