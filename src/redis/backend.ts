import type { Cluster, Redis } from "ioredis";
import type { StoreEvent } from "../core/events.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueConnection } from "../core/queue-store.ts";
import type { Store } from "../core/store.ts";
import type { BreakerOptions } from "./breaker.ts";
import type { ConnectionUse } from "./connection-settings.ts";
import { connect, isCluster, type RedisInput } from "./connection.ts";
import { insistOnScripts } from "./defined-scripts.ts";
import { untilReady } from "./ready.ts";
import { createRedisLanes } from "./redis-lanes.ts";
import { createRedisStore } from "./redis-store.ts";
import { runScript } from "./script.ts";
import { BEGUN_FIELD, jobsBegin } from "./scripts/jobs-begin.ts";
import { jobsForget } from "./scripts/jobs-forget.ts";
import { baseOf } from "./scripts/queue-keys.ts";
import { runsDeclare } from "./scripts/runs-declare.ts";
import { createShardedStore } from "./sharded-store.ts";
import { createShards } from "./shards.ts";
import { withinMs } from "./time-limit.ts";

export interface BackendOptions {
  /** One server, or the URLs of several independent ones. */
  readonly redis: RedisInput | readonly string[];
  readonly prefix: string;
  /** How long a draw may wait for an answer. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** A server answers no more, or answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

/** All that Redis keeps for a sluice: buckets in a store, and queues on connections of their own. */
export interface Backend {
  readonly store: Store;
  /** Whether it is a cluster: each bucket lies on one of its nodes, by its name. */
  readonly isCluster: boolean;
  /** A connection to where this queue lives, for this use. */
  connectQueue(queue: string, use: ConnectionUse): QueueConnection<Redis | Cluster>;
}

export function createBackend(options: BackendOptions): Backend {
  const { redis, prefix } = options;
  const storeAt = (server: RedisInput): Store =>
    createRedisStore({
      ...options,
      redis: connect(server, "store"),
      connectListener: () => connect(server, "listener"),
    });
  if (!isList(redis)) {
    const connectQueue: Backend["connectQueue"] = (_queue, use) =>
      connectForQueue(redis, use, prefix);
    return { store: storeAt(redis), isCluster: isCluster(redis), connectQueue };
  }
  const stores = new Map(redis.map((url) => [url, storeAt(url)]));
  const urlOf = createShards(redis);
  return {
    store: createShardedStore([...stores.values()], (bucket) => stores.get(urlOf(bucket))!),
    isCluster: false,
    connectQueue: (queue, use) => connectForQueue(urlOf(queue), use, prefix),
  };
}

function connectForQueue(
  server: RedisInput,
  use: ConnectionUse,
  prefix: string,
): QueueConnection<Redis | Cluster> {
  const client = connect(server, use);
  insistOnScripts(client);
  return {
    client,
    untilReady: (ms) => untilReady(client, ms),
    inTime: (ms, question) => withinMs(ms, question, () => new Error("no answer in time")),
    isReady: () => client.status === "ready",
    lanes: createRedisLanes(client, prefix),
    async forgetDone(queue, { most, forMs }) {
      while (await runScript(client, jobsForget, { prefix, queue, most, forMs }));
    },
    noteBegun: (queue, id, startByMs) =>
      runScript(client, jobsBegin, { prefix, queue, id, startByMs }),
    async begunBy(queue, id) {
      const noted = await client.hget(baseOf({ prefix, queue }) + id, BEGUN_FIELD);
      return noted === null ? undefined : Number(noted);
    },
    declareRun: (queue, declaration) =>
      runScript(client, runsDeclare, { prefix, queue, ...declaration }),
    takeOut: async (key, member) => (await client.zrem(key, member)) === 1,
    setIfFree: async (key, value) => (await client.set(key, value, "NX")) === "OK",
    close: () => client.disconnect(),
  };
}

function isList(redis: BackendOptions["redis"]): redis is readonly string[] {
  return Array.isArray(redis);
}
