/** All that Redis keeps for a sluice: on one server, on a cluster, or on several independent servers. */

import type { Cluster, Redis } from "ioredis";
import type { StoreEvent } from "../core/events.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueConnection } from "../core/queue-store.ts";
import type { Store } from "../core/store.ts";
import type { BreakerOptions } from "./breaker.ts";
import { createRedisStore } from "./bucket-store.ts";
import { connect, isCluster, type ConnectionUse, type RedisInput } from "./connection.ts";
import { createEvictionWarning } from "./eviction.ts";
import { retryScripts } from "./ioredis/for-bullmq.ts";
import { restWhile } from "./ioredis/silent-servers.ts";
import { untilReady } from "./ioredis/readiness.ts";
import { withTimeout } from "./ioredis/time-limit.ts";
import { createRedisLanes } from "./queue-store.ts";
import {
  jobsAwait,
  jobsBegin,
  jobsForget,
  jobsHeld,
  jobsRecall,
  jobsTold,
  runsDeclare,
} from "./scripts/jobs.ts";
import { baseOf } from "./scripts/keys.ts";
import { runScript } from "./scripts/script.ts";
import { combineStores, createShards } from "./shards.ts";

export interface BackendOptions {
  /** One server or cluster, or the URLs of several independent servers. */
  readonly redis: RedisInput | readonly string[];
  readonly prefix: string;
  /** How long a draw may wait for an answer. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** A server stopped answering, or answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

/** Buckets in a store, and queues on connections of their own. */
export interface Backend {
  readonly store: Store;
  /** In a cluster each bucket lies on one node, by its name. */
  readonly isCluster: boolean;
  /** A new connection to the server that holds this queue. */
  connectQueue(queue: string, use: ConnectionUse): QueueConnection<Redis | Cluster>;
}

export function createBackend(options: BackendOptions): Backend {
  const { redis, prefix } = options;
  const warnOfEviction = createEvictionWarning(options.logger);
  const open = (server: RedisInput, use: ConnectionUse): Redis | Cluster => {
    const client = connect(server, use);
    warnOfEviction(client);
    return client;
  };
  const storeAt = (server: RedisInput): Store =>
    createRedisStore({
      ...options,
      redis: open(server, "store"),
      connectSubscriber: () => connect(server, "subscriber"),
    });
  const connectForQueue = (
    server: RedisInput,
    use: ConnectionUse,
  ): QueueConnection<Redis | Cluster> =>
    forQueue(use === "subscriber" ? connect(server, use) : open(server, use), prefix);
  if (!isList(redis)) {
    return {
      store: storeAt(redis),
      isCluster: isCluster(redis),
      connectQueue: (_queue, use) => connectForQueue(redis, use),
    };
  }
  const stores = new Map(redis.map((url) => [url, storeAt(url)]));
  const urlOf = createShards(redis);
  return {
    store: combineStores([...stores.values()], (bucket) => stores.get(urlOf(bucket))!),
    isCluster: false,
    connectQueue: (queue, use) => connectForQueue(urlOf(queue), use),
  };
}

function isList(redis: BackendOptions["redis"]): redis is readonly string[] {
  return Array.isArray(redis);
}

/** A worker at rest fetches every 5 s, and the answers show that Redis is there. */
const PING_AT_REST_MS = 6_000;

function forQueue(client: Redis | Cluster, prefix: string): QueueConnection<Redis | Cluster> {
  retryScripts(client);
  return {
    client,
    untilReady: (ms) => untilReady(client, ms),
    inTime: (ms, answer) => withTimeout(ms, answer, () => new Error("no answer in time")),
    isReady: () => client.status === "ready",
    onReady: (listener) => void client.on("ready", listener),
    restWhile: (mayRest) => restWhile(client, { mayRest, pingAfterMs: PING_AT_REST_MS }),
    lanes: createRedisLanes(client, prefix),
    async forgetDone(queue, { count, forMs }) {
      while (await runScript(client, jobsForget, { prefix, queue, count, forMs }));
    },
    awaitJobs: (queue, process, ids) =>
      runScript(client, jobsAwait, { prefix, queue, process, ids }),
    toldOf: (queue, process, ids) => runScript(client, jobsTold, { prefix, queue, process, ids }),
    noteBegun: (queue, job) => runScript(client, jobsBegin, { prefix, queue, ...job }),
    recall: (queue, id) => runScript(client, jobsRecall, { prefix, queue, id }),
    async wakeIdle(queue) {
      await client.zadd(`${baseOf({ prefix, queue })}marker`, 0, "0");
    },
    heldBy: (queue, tokens) => runScript(client, jobsHeld, { prefix, queue, tokens }),
    declareRun: (queue, declaration) =>
      runScript(client, runsDeclare, { prefix, queue, ...declaration }),
    takeOut: async (key, member) => (await client.zrem(key, member)) === 1,
    setIfFree: async (key, value) => (await client.set(key, value, "NX")) === "OK",
    close: () => client.disconnect(),
  };
}
