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
import {
  createRedisFlows,
  createRedisJobs,
  createRedisLanes,
  createRedisRuns,
} from "./queue/store.ts";
import { jobScripts } from "./scripts/queue/jobs.ts";
import { runScript } from "./scripts/script.ts";
import { combineInsight, combineStores, createShards } from "./shards.ts";
import { createStreamReader, type StreamReader } from "./queue/stream-reader.ts";

export interface BackendOptions {
  /** One server or cluster, or the URLs of several independent servers. */
  readonly redis: RedisInput | readonly string[];
  readonly prefix: string;
  /** The maximum time that a draw waits for Redis's reply. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** Called when a server stops answering, and when it answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

type QueueUse = ConnectionUse & ("producer" | "worker");

/** The store for buckets, and the shared connections for queues. */
export interface Backend {
  readonly store: Store;
  readonly insight: InsightStore;
  /** True for a cluster. Each bucket is then stored on one node, which its name determines. */
  readonly isCluster: boolean;
  /**
   * Connects to the server that stores this queue. All queues on that server share the connection,
   * unless `own` is true.
   */
  connectQueue(queue: string, use: QueueUse, own?: boolean): QueueConnection;
}

export function createBackend(options: BackendOptions): Backend {
  const { redis, prefix, timeoutMs } = options;
  const warnOfEviction = createEvictionWarning(options.logger);
  const open = (server: RedisInput, use: ConnectionUse): Redis | Cluster => {
    const client = connect(server, use, timeoutMs);
    warnOfEviction(client);
    return client;
  };
  const storeAt = (server: RedisInput): RedisStore =>
    createRedisStore({
      ...options,
      redis: open(server, "store"),
      connectSubscriber: () => connect(server, "subscriber"),
    });
  const queuesAt = (server: RedisInput): ConnectQueueAt =>
    connectQueues(prefix, server, {
      open: (use) => (use === "events" ? connect(server, use, timeoutMs) : open(server, use)),
    });
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

type ConnectQueueAt = (use: QueueUse, own?: boolean) => QueueConnection;

/**
 * Returns the function that connects to the queues on one server. `open` opens a client for one
 * use. `wallMs` is the wall clock of this process.
 */
export function connectQueues(
  prefix: string,
  server: RedisInput,
  {
    open = (use) => connect(server, use),
    wallMs,
  }: {
    readonly open?: (use: ConnectionUse) => Redis | Cluster;
    readonly wallMs?: () => number;
  } = {},
): ConnectQueueAt {
  const openReader = (): StreamReader => createStreamReader(() => open("events"));
  const sharedReader = openReader();
  // A cluster's streams are stored on several nodes, so each stream needs its own reader.
  const readerOf = isCluster(server) ? openReader : (): StreamReader => sharedReader;
  const share = (use: QueueUse, reader = readerOf): SharedClient =>
    createSharedClient(
      (client) => forQueue(client, prefix, wallMs),
      reader,
      () => open(use),
    );
  const shared = { producer: share("producer"), worker: share("worker") };
  return (use, own = false) => (own ? share(use, openReader) : shared[use]).connect();
}

function isList(redis: BackendOptions["redis"]): redis is readonly string[] {
  return Array.isArray(redis);
}

/** A connection to the Redis of one queue. */
export interface QueueConnection extends ReturnType<typeof forQueue> {
  /** Runs `make`. If `make` copies the client, the copies are closed with this connection. */
  adoptCopies<Made>(make: () => Made): Made;
  /**
   * Calls `listener` each time that Redis becomes usable again, until this connection is closed.
   */
  onReady(listener: () => void): void;
  /**
   * Pings Redis less often while `mayRest` returns true for all connections that share the client.
   */
  restWhile(mayRest: () => boolean): void;
  /** Reads the entries of a stream after `lastId`. All streams of a server share one connection. */
  readonly readStream: StreamReader["read"];
  /** Closes this connection. The last connection that shares the client also closes the client. */
  close(): void;
}

/**
 * A client that is opened with the first connection that shares it, and closed with the last one.
 */
interface SharedClient {
  connect(): QueueConnection;
}

function createSharedClient(
  membersFor: (client: Redis | Cluster) => ReturnType<typeof forQueue>,
  readerOf: () => StreamReader,
  open: () => Redis | Cluster,
): SharedClient {
  let client: Redis | Cluster | undefined;
  /** All open connections, each with the function that says whether it may rest. */
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
        ...membersFor(used),
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

/**
 * The interval between pings at rest. It is above 5 s: a resting worker fetches every 5 s anyway,
 * and Redis's replies show that it works.
 */
const PING_AT_REST_MS = 6_000;

/**
 * When a request times out, its connection is dropped if the server was silent for 1.5 times the
 * timeout. A server that is busy for a moment keeps its connections.
 */
const SILENT_SHARE = 1.5;

/** Creates the members that all connections of one client have in common. */
function forQueue(client: Redis | Cluster, prefix: string, wallMs?: () => number) {
  const clockOf = clocksAt(client, prefix, wallMs);
  return {
    /** The client for BullMQ. Several queues or workers may share it. */
    client,
    /** Returns the clock of the server that stores a queue. Further calls return the same clock. */
    clockOf: clockOf as (queue: string) => RedisClock,
    /** Resolves when Redis is usable. Rejects if that takes longer than `timeoutMs`. */
    untilReady: (timeoutMs: number): Promise<void> => untilReady(client, timeoutMs),
    /** Resolves with Redis's reply. Rejects after `timeoutMs`, and ignores a later reply. */
    inTime: <Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer> =>
      withTimeout(timeoutMs, question, () => {
        dropSilentFor(client, timeoutMs * SILENT_SHARE);
        return new Error("no answer in time");
      }),
    isReady: (): boolean => client.status === "ready",
    /** Access to the lanes of queues, over this connection. */
    lanes: createRedisLanes(client, prefix, clockOf),
    ...createRedisJobs(client, prefix),
    /** Access to the runs of recurring jobs, over this connection. */
    runs: createRedisRuns(client, prefix),
    /** Access to the flows of queues, over this connection. */
    flows: createRedisFlows(client, prefix),
  };
}

const clocksOf = new WeakMap<Redis | Cluster, ReturnType<typeof createClocks>>();

/** Returns the clocks of a client. All connections of the client share them. */
function clocksAt(
  client: Redis | Cluster,
  prefix: string,
  wallMs?: () => number,
): ReturnType<typeof createClocks> {
  const known = clocksOf.get(client);
  if (known !== undefined) return known;
  const clocks = createClocks(client, prefix, wallMs);
  clocksOf.set(client, clocks);
  return clocks;
}

/**
 * Creates one clock for all queues. In a cluster, each queue gets its own clock, because queues are
 * stored on different nodes.
 */
function createClocks(
  client: Redis | Cluster,
  prefix: string,
  wallMs?: () => number,
): (queue: string) => SampledClock {
  const isSpread = isCluster(client);
  const clocks = new Map<string, SampledClock>();
  const distrust = (): void => {
    for (const clock of clocks.values()) clock.distrust();
  };
  // After a reconnect, the connection may reach another server, for example after a failover.
  onEachServer(client, (server) => server.on("close", distrust).on("ready", distrust));
  return (queue) => {
    const name = isSpread ? queue : "";
    const known = clocks.get(name);
    if (known !== undefined) return known;
    const ask = (): Promise<number> => runScript(client, jobScripts.clock, { prefix, queue });
    const clock = createClock(ask, wallMs);
    clocks.set(name, clock);
    return clock;
  };
}
