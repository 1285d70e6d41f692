import { createHash } from "node:crypto";
import type { Cluster, Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import type { StoreEvent } from "../core/events.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueConnection } from "../core/queue-store.ts";
import type { Store } from "../core/store.ts";
import type { BreakerOptions } from "./breaker.ts";
import { createRedisStore } from "./bucket-store.ts";
import { connect, isCluster, type ConnectionUse, type RedisInput } from "./connection.ts";
import { insistOnScripts } from "./ioredis/for-bullmq.ts";
import { untilReady, withinMs } from "./ioredis/readiness.ts";
import { createRedisLanes } from "./queue-store.ts";
import { BEGUN_FIELD, jobsBegin, jobsForget, runsDeclare } from "./scripts/jobs.ts";
import { baseOf } from "./scripts/keys.ts";
import { runScript } from "./scripts/script.ts";

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

/** Several stores as one: each bucket lives in the one that its name tells. */
function createShardedStore(stores: readonly Store[], storeOf: (bucket: string) => Store): Store {
  return {
    draw: (request) => storeOf(request.bucket).draw(request),
    giveBack: (request) => storeOf(request.bucket).giveBack(request),
    settle: (request) => storeOf(request.bucket).settle(request),
    renew: (request) => storeOf(request.bucket).renew(request),
    release: (request) => storeOf(request.bucket).release(request),
    steer: (request) => storeOf(request.bucket).steer(request),
    peek: (request) => storeOf(request.bucket).peek(request),
    listen(asker, wake) {
      for (const store of stores) store.listen(asker, wake);
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
    },
  };
}

/** A point of the ring. Its server holds the names whose hashes lie between the point before and this one. */
interface Point {
  readonly value: number;
  readonly url: string;
}

/** How many hashes each server has: so that a fourth one takes about a quarter of what three had. */
const HASHES = 150;
/** How many points an MD5 hash gives, of 4 bytes each. */
const POINTS_OF_HASH = 4;
/** For so many names the server is remembered: it is looked up with each draw. */
const NAMES_REMEMBERED = 5_000;

/**
 * Tells by name which of several independent servers holds it. A server that comes or goes moves no more than its
 * own part of the names. The points are those of ketama, as libmemcached and others have them. They are as fixed as
 * the layout of the state: with others, names are looked for on the wrong servers.
 */
export function createShards(urls: readonly string[]): (name: string) => string {
  const ring = urls.flatMap(pointsOf).toSorted((a, b) => a.value - b.value);
  const servers = new LRUCache<string, string>({
    max: NAMES_REMEMBERED,
    memoMethod: (name) => (ring[firstFrom(ring, hashOf(name).readUInt32LE())] ?? ring[0]!).url,
  });
  return (name) => servers.memo(name);
}

/** Where a server is: another password for it moves nothing. */
export function serverId(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "6379" : port}${pathname === "/" ? "" : pathname}`;
}

function pointsOf(url: string): Point[] {
  const id = serverId(url);
  const hashes = Array.from({ length: HASHES }, (_, index) => hashOf(`${id}-${index}`));
  return hashes.flatMap((hash) =>
    Array.from({ length: POINTS_OF_HASH }, (_, part) => ({
      value: hash.readUInt32LE(part * 4),
      url,
    })),
  );
}

/** The index of the first point that is no less than the value; the ring's length if all are less. */
function firstFrom(ring: readonly Point[], value: number): number {
  let low = 0;
  let high = ring.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ring[middle]!.value < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function hashOf(text: string): Buffer {
  return createHash("md5").update(text).digest();
}
