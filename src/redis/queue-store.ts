import type { Cluster, Redis } from "ioredis";
import type { LaneStore } from "../core/queue-store.ts";
import {
  jobsCancel,
  jobsOrders,
  jobsReturn,
  jobsTake,
  lanesClear,
  lanesHeld,
  lanesJoin,
  lanesLeave,
  lanesLook,
  lanesState,
} from "./scripts/lanes.ts";
import { runScript } from "./scripts/script.ts";

/** A look returns at most this many lanes and deadlines, since Redis serves no other request meanwhile. */
const MOST_LANES = 500;
const MOST_DEADLINES = 1_000;

/** The lanes of queues in Redis; BullMQ keeps the jobs themselves. */
export function createRedisLanes(redis: Redis | Cluster, prefix: string): LaneStore {
  return {
    join: (queue, jobs) => runScript(redis, lanesJoin, { prefix, queue, jobs }),
    take: (request) => runScript(redis, jobsTake, { prefix, ...request }),
    orders: (queue) => runScript(redis, jobsOrders, { prefix, queue }),
    cancel: (queue, id) => runScript(redis, jobsCancel, { prefix, queue, id }),
    putBack: (queue, job) => runScript(redis, jobsReturn, { prefix, queue, ...job }),
    async reportFetched(queue, { worker, ids, forMs }) {
      const key = lanesHeld({ prefix, queue, worker });
      if (ids.length === 0) await redis.del(key);
      else await redis.set(key, JSON.stringify(ids), "PX", forMs);
    },
    look(queue, id, counted = 0) {
      const bounds = { mostLanes: MOST_LANES, mostDeadlines: MOST_DEADLINES, counted };
      return runScript(redis, lanesLook, { prefix, queue, id, ...bounds });
    },
    leave: (queue, id) => runScript(redis, lanesLeave, { prefix, queue, id }),
    async parked(queue) {
      return Number((await redis.hget(lanesState({ prefix, queue }), "parked")) ?? 0);
    },
    async clear(queue) {
      let begins = true;
      while (await runScript(redis, lanesClear, { prefix, queue, begins })) begins = false;
    },
  };
}
