import type { Cluster, Redis } from "ioredis";
import type { RunStore } from "../../../core/stores/queue/runs.ts";
import type { OldestJob } from "../../../core/stores/queue/steering.ts";
import type { LanesSeen, LaneStore } from "../../../core/stores/queue/store.ts";
import type { SampledClock } from "./clock.ts";
import {
  headsLook,
  jobsCancel,
  jobsOrders,
  jobsReturn,
  jobsTake,
  laneOf,
  lanesBelow,
  lanesClear,
  lanesHeld,
  lanesJoin,
  lanesLook,
} from "../scripts/queue/lanes.ts";
import { jobsMove, jobsRemove, jobsUpdate } from "../scripts/queue/changes.ts";
import { jobsCount, jobsPage } from "../scripts/queue/pages.ts";
import { pausesLook, pausesSet, settingsLook, settingsSet } from "../scripts/queue/pauses.ts";
import { runsBegin, runsDeclare, runsDrop, runsEnd, runsSettle } from "../scripts/queue/runs.ts";
import { endedLook, oldestLook, workersLook, workersNote } from "../scripts/queue/workers.ts";
import { runScript } from "../scripts/script.ts";

/** A look returns at most this many lanes and deadlines, since Redis serves no other request meanwhile. */
const MOST_LANES = 500;
const MOST_DEADLINES = 1_000;
/** In how many lanes one script looks for the oldest job. */
const LANES_AT_ONCE = 50;

/**
 * The lanes of queues in Redis; BullMQ keeps the jobs themselves. Each answer with jobs also has the server's time, which
 * goes to the queue's clock.
 */
export function createRedisLanes(
  redis: Redis | Cluster,
  prefix: string,
  clockOf?: (queue: string) => Pick<SampledClock, "sample">,
): LaneStore {
  function look(queue: string, id?: string, counted = 0): Promise<LanesSeen> {
    const bounds = { mostLanes: MOST_LANES, mostDeadlines: MOST_DEADLINES, counted };
    return runScript(redis, lanesLook, { prefix, queue, id, ...bounds });
  }

  async function oldest(queue: string): Promise<OldestJob | undefined> {
    const keys = (await look(queue)).lanes.map(({ key }) => key);
    let found = await runScript(redis, oldestLook, { prefix, queue, ofKeys: [], others: true });
    for (let at = 0; at < keys.length; at += LANES_AT_ONCE) {
      const ofKeys = keys.slice(at, at + LANES_AT_ONCE);
      const next = await runScript(redis, oldestLook, { prefix, queue, ofKeys, others: false });
      if (next !== undefined && next.sinceMs < (found?.sinceMs ?? Infinity)) found = next;
    }
    return found;
  }

  return {
    join: (queue, jobs) => runScript(redis, lanesJoin, { prefix, queue, jobs }),
    orders: (queue, tokens) => runScript(redis, jobsOrders, { prefix, queue, tokens }),
    cancel: (queue, id) => runScript(redis, jobsCancel, { prefix, queue, id }),
    putBack: (queue, job) => runScript(redis, jobsReturn, { prefix, queue, ...job }),
    async take(request) {
      const sentMs = performance.now();
      const { nowMs, ...taken } = await runScript(redis, jobsTake, { prefix, ...request });
      // Whole ms: it was up to one later.
      const times = { sentMs, arrivedMs: performance.now(), fromMs: nowMs, toMs: nowMs + 1 };
      clockOf?.(request.queue).sample(times);
      return taken;
    },
    async reportFetched(queue, { worker, ids, forMs }) {
      const key = lanesHeld({ prefix, queue, worker });
      if (ids.length === 0) await redis.del(key);
      else await redis.set(key, JSON.stringify(ids), "PX", forMs);
    },
    look,
    pause: (queue, pause) => runScript(redis, pausesSet, { prefix, queue, ...pause }),
    setByHand: (queue, settings, since) =>
      runScript(redis, settingsSet, { prefix, queue, settings, since }),
    byHand: (queue) => runScript(redis, settingsLook, { prefix, queue }),
    pauses: (queue) => runScript(redis, pausesLook, { prefix, queue }),
    page: (queue, request) => runScript(redis, jobsPage, { prefix, queue, ...request }),
    move: (queue, ids, move) => runScript(redis, jobsMove, { prefix, queue, ids, ...move }),
    remove: (queue, state, ids) => runScript(redis, jobsRemove, { prefix, queue, state, ids }),
    update: (queue, id, json) => runScript(redis, jobsUpdate, { prefix, queue, id, json }),
    noteWorker: (queue, worker) => runScript(redis, workersNote, { prefix, queue, ...worker }),
    workers: (queue) => runScript(redis, workersLook, { prefix, queue }),
    ended: (queue) => runScript(redis, endedLook, { prefix, queue }),
    oldest,
    async waitingOf(queue, key) {
      const [own, below] = await Promise.all([
        redis.zcard(laneOf({ prefix, queue, key })),
        redis.hget(lanesBelow({ prefix, queue }), key),
      ]);
      return own + Number(below ?? 0);
    },
    lookAtHeads: (queue, ofKeys) => runScript(redis, headsLook, { prefix, queue, ofKeys }),
    counts: (queue) => runScript(redis, jobsCount, { prefix, queue }),
    async clear(queue) {
      let begins = true;
      while (await runScript(redis, lanesClear, { prefix, queue, begins })) begins = false;
    },
  };
}

/** The runs of recurring jobs in Redis, which BullMQ stores. */
export function createRedisRuns(redis: Redis | Cluster, prefix: string): RunStore {
  return {
    declare: (queue, declaration) =>
      runScript(redis, runsDeclare, { prefix, queue, ...declaration }),
    begin: (queue, step) => runScript(redis, runsBegin, { prefix, queue, ...step }),
    drop: (queue, run) => runScript(redis, runsDrop, { prefix, queue, ...run }),
    settle: (queue, run, hasBegun) =>
      runScript(redis, runsSettle, { prefix, queue, ...run, hasBegun }),
    end: (queue, name) => runScript(redis, runsEnd, { prefix, queue, name }),
  };
}
