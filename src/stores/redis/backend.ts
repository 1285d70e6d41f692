import type { Cluster, Redis } from "ioredis";
import type { StoreEvent } from "../../core/events/events.ts";
import type { Logger } from "../../core/logger.ts";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import type { Store } from "../../core/store.ts";
import type { BreakerOptions } from "./requests/breaker.ts";
import { createRedisStore, type RedisStore } from "./bucket-store.ts";
import { createClock, type RedisClock, type SampledClock } from "./queue/clock.ts";
import { connect, isCluster, type ConnectionUse, type RedisInput } from "./connection.ts";
import { createEvictionWarning } from "./eviction.ts";
import { retryScripts } from "./ioredis/for-bullmq.ts";
import { withCopies } from "./ioredis/closing.ts";
import { onEachServer } from "./ioredis/per-server.ts";
import { restWhile } from "./ioredis/silent-servers.ts";
import { untilReady } from "./ioredis/readiness.ts";
import { dropSilentFor } from "./ioredis/silent-servers.ts";
import { withTimeout } from "./ioredis/time-limit.ts";
import { createRedisJobs, createRedisLanes, createRedisRuns } from "./queue/store.ts";
import { jobScripts } from "./scripts/queue/jobs.ts";
import { runScript } from "./scripts/script.ts";
import { combineInsight, combineStores, createShards } from "./shards.ts";
import { createStreamReader, type StreamReader } from "./queue/stream-reader.ts";

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

type QueueUse = ConnectionUse & ("producer" | "worker");

/** Buckets in a store, and queues on connections that they share. */
export interface Backend {
  readonly store: Store;
  readonly insight: InsightStore;
  /** In a cluster each bucket lies on one node, by its name. */
  readonly isCluster: boolean;
  /** A connection to the server that holds this queue, shared with all other queues there unless it is `own`. */
  connectQueue(queue: string, use: QueueUse, own?: boolean): QueueConnection;
}

export function createBackend(options: BackendOptions): Backend {
  const { redis, prefix } = options;
  const warnOfEviction = createEvictionWarning(options.logger);
  const open = (server: RedisInput, use: ConnectionUse): Redis | Cluster => {
    const client = connect(server, use);
    warnOfEviction(client);
    return client;
  };
  const storeAt = (server: RedisInput): RedisStore =>
    createRedisStore({
      ...options,
      redis: open(server, "store"),
      connectSubscriber: () => connect(server, "subscriber"),
    });
  const queuesAt = (server: RedisInput): ((use: QueueUse, own?: boolean) => QueueConnection) => {
    const openReader = (): StreamReader => createStreamReader(() => connect(server, "events"));
    const sharedReader = openReader();
    // A cluster's streams lie on several nodes.
    const readerOf = isCluster(server) ? openReader : (): StreamReader => sharedReader;
    const share = (use: QueueUse, reader = readerOf): SharedClient =>
      createSharedClient(prefix, reader, () => open(server, use));
    const shared = { producer: share("producer"), worker: share("worker") };
    return (use, own = false) => (own ? share(use, openReader) : shared[use]).connect();
  };
  if (!isList(redis)) {
    const connectAt = queuesAt(redis);
    const store = storeAt(redis);
    return {
      store,
      insight: store.insight,
      isCluster: isCluster(redis),
      connectQueue: (_queue, ...how) => connectAt(...how),
    };
  }
  const stores = new Map(redis.map((url) => [url, storeAt(url)]));
  const connectors = new Map(redis.map((url) => [url, queuesAt(url)]));
  const urlOf = createShards(redis);
  return {
    store: combineStores([...stores.values()], (bucket) => stores.get(urlOf(bucket))!),
    insight: combineInsight(
      [...stores.values()].map(({ insight }) => insight),
      (bucket) => stores.get(urlOf(bucket))!.insight,
    ),
    isCluster: false,
    connectQueue: (queue, ...how) => connectors.get(urlOf(queue))!(...how),
  };
}

function isList(redis: BackendOptions["redis"]): redis is readonly string[] {
  return Array.isArray(redis);
}

/** A connection to the Redis of one queue. */
export interface QueueConnection extends ReturnType<typeof forQueue> {
  /** Runs `make`, which may copy the client; the copies that it makes are closed with this connection. */
  adoptCopies<Made>(make: () => Made): Made;
  /** Calls back each time that Redis can be used again, until this is closed. */
  onReady(listener: () => void): void;
  /** Looks less often whether Redis is still there while `mayRest` says so, and that of all who share the client. */
  restWhile(mayRest: () => boolean): void;
  /** Reads the entries of a stream that come after `lastId`, on one connection for all streams of a server. */
  readonly readStream: StreamReader["read"];
  /** Closes the client with the last of those who share it. */
  close(): void;
}

/** A client that is opened with the first connection which shares it, and closed with the last. */
interface SharedClient {
  connect(): QueueConnection;
}

function createSharedClient(
  prefix: string,
  readerOf: () => StreamReader,
  open: () => Redis | Cluster,
): SharedClient {
  let client: Redis | Cluster | undefined;
  /** Whether each connection may rest. */
  const users = new Map<QueueConnection, () => boolean>();
  const mayAllRest = (): boolean => [...users.values()].every((mayRest) => mayRest());

  function openClient(): Redis | Cluster {
    const opened = open();
    retryScripts(opened);
    restWhile(opened, { mayRest: mayAllRest, pingAfterMs: PING_AT_REST_MS });
    return opened;
  }

  return {
    connect() {
      const used = (client ??= openClient());
      const listeners: (() => void)[] = [];
      const closeCopies: (() => void)[] = [];
      const connection: QueueConnection = {
        ...forQueue(used, prefix),
        adoptCopies(make) {
          const { made, close } = withCopies(used, make);
          closeCopies.push(close);
          return made;
        },
        onReady(listener) {
          listeners.push(listener);
          used.on("ready", listener);
        },
        restWhile: (mayRest) => void users.set(connection, mayRest),
        readStream: (...stream) => readerOf().read(...stream),
        close() {
          if (!users.delete(connection)) return;
          for (const listener of listeners) used.off("ready", listener);
          for (const close of closeCopies) close();
          if (users.size > 0) return;
          used.disconnect();
          client = undefined;
        },
      };
      users.set(connection, () => true);
      return connection;
    },
  };
}

/** A worker at rest fetches every 5 s, and the answers show that Redis is there. */
const PING_AT_REST_MS = 6_000;

/**
 * When a request gets no answer in time, its connection is dropped if it was silent for this many times as long. A server that
 * is busy for a moment keeps its connections.
 */
const SILENT_SHARE = 1.5;

/** What all connections that share a client have in common. */
function forQueue(client: Redis | Cluster, prefix: string) {
  const clockOf = clocksAt(client, prefix);
  return {
    /** The client for BullMQ, which queues or workers may share. */
    client,
    /** The clock of the server that holds a queue; the same one each time. */
    clockOf: clockOf as (queue: string) => RedisClock,
    /** Resolves when Redis can be used; rejects if that takes longer than `timeoutMs`. */
    untilReady: (timeoutMs: number): Promise<void> => untilReady(client, timeoutMs),
    /** Resolves with the answer of Redis; rejects if it takes longer than `timeoutMs`. A late answer is dropped. */
    inTime: <Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer> =>
      withTimeout(timeoutMs, question, () => {
        dropSilentFor(client, timeoutMs * SILENT_SHARE);
        return new Error("no answer in time");
      }),
    isReady: (): boolean => client.status === "ready",
    /** The lanes of queues, on this connection. */
    lanes: createRedisLanes(client, prefix, clockOf),
    ...createRedisJobs(client, prefix),
    /** The runs of recurring jobs, on this connection. */
    runs: createRedisRuns(client, prefix),
  };
}

const clocksOf = new WeakMap<Redis | Cluster, ReturnType<typeof createClocks>>();

/** The clocks of a client, which all its connections share. */
function clocksAt(client: Redis | Cluster, prefix: string): ReturnType<typeof createClocks> {
  const known = clocksOf.get(client);
  if (known !== undefined) return known;
  const clocks = createClocks(client, prefix);
  clocksOf.set(client, clocks);
  return clocks;
}

/** One clock for all queues; in a cluster, where they lie on different nodes, one for each. */
function createClocks(client: Redis | Cluster, prefix: string): (queue: string) => SampledClock {
  const isSpread = isCluster(client);
  const clocks = new Map<string, SampledClock>();
  const distrust = (): void => {
    for (const clock of clocks.values()) clock.distrust();
  };
  // A node of a cluster that fails is replaced by another.
  onEachServer(client, (server) => server.on("close", distrust).on("ready", distrust));
  return (queue) => {
    const name = isSpread ? queue : "";
    const known = clocks.get(name);
    if (known !== undefined) return known;
    const clock = createClock(() => runScript(client, jobScripts.clock, { prefix, queue }));
    clocks.set(name, clock);
    return clock;
  };
}
