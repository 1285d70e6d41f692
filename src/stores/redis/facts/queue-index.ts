/** Which queues and workers processes have told of: `lua/insight/queues-report.lua` writes it. */
import type { Cluster, Redis } from "ioredis";
import {
  REPLICA_ALIVE_MS,
  type InsightStore,
  type QueueFacts,
  type WorkerActivity,
} from "../../../core/stores/insight/store.ts";
import { baseOf } from "../scripts/keys.ts";

export function createQueueIndex(
  redis: Redis | Cluster,
  base: string,
  use: {
    readonly prefix: string;
    readonly send: <T>(run: () => Promise<T>) => Promise<T>;
    readonly nowMs: () => Promise<number>;
  },
): Pick<InsightStore, "queues" | "queue" | "workers" | "liveWorkers"> {
  const { prefix, send, nowMs } = use;

  /** The workers of a queue that count as alive: those that `queue.status()` counts. */
  async function liveOf(queue: string, atMs: number): Promise<string[]> {
    const found = await redis.hgetall(`${baseOf({ prefix, queue })}workers:live`);
    const live = Object.entries(found).filter(([, until]) => Number.parseInt(until, 10) > atMs);
    return live.map(([worker]) => worker);
  }

  return {
    queues: ({ after, limit }) =>
      send(async () => {
        const from = after === "" ? "-" : `(${after}`;
        const names = await redis.zrangebylex(`${base}:queues`, from, "+", "LIMIT", 0, limit);
        const texts = names.length === 0 ? [] : await redis.hmget(`${base}:of-queues`, ...names);
        const queues = names.flatMap((name, at) => readQueue(name, texts[at]) ?? []);
        return { queues, errors: [] };
      }),
    queue: (name) => send(async () => readQueue(name, await redis.hget(`${base}:of-queues`, name))),
    workers: () =>
      send(async () => {
        const sinceMs = (await nowMs()) - REPLICA_ALIVE_MS;
        const [alive, reports] = await Promise.all([
          redis.zrangebyscore(`${base}:replicas`, sinceMs, "+inf"),
          redis.hgetall(`${base}:workers`),
        ]);
        return alive.flatMap((replica) => {
          const text = reports[replica];
          if (text === undefined) return [];
          return (JSON.parse(text) as WorkerActivity[]).map((worker) => ({ ...worker, replica }));
        });
      }),
    liveWorkers: async (queues) => {
      if (queues.length === 0) return [];
      return send(async () => {
        const atMs = await nowMs();
        const live = await Promise.all(queues.map((queue) => liveOf(queue, atMs)));
        return live.flat();
      });
    },
  };
}

function readQueue(name: string, text: string | null | undefined): QueueFacts | undefined {
  if (text === null || text === undefined) return undefined;
  return { ...(JSON.parse(text) as Omit<QueueFacts, "name">), name };
}
