import type { ClusterOptions, RedisOptions } from "ioredis";

/** How long one command of the store may take before its connection is given up. */
const COMMAND_TIMEOUT_MS = 1_000;
/** How often a client of a cluster looks who serves what: a node that stands still would keep those who only listen. */
const CLUSTER_LOOK_MS = 5_000;

/** What holds for every connection. */
const COMMON_SETTINGS: RedisOptions = {
  keyPrefix: "",
  stringNumbers: false,
  // Without it a connection that is closed while it connects becomes ready after all.
  enableReadyCheck: true,
  // What ioredis gathers by itself it forgets when the connection is closed.
  enableAutoPipelining: false,
  retryStrategy: reconnectAfterMs,
  reconnectOnError: isNoUse,
  // Until a server has loaded its data, a new connection to it is not ready; it says itself how long that takes.
  maxLoadingRetryTime: 1_000,
  // With Sentinel: a primary that stands still would keep those who only listen, or wait for an answer.
  failoverDetector: true,
  // A sentinel on the same machine may stand still with it; the next one is asked then.
  sentinelCommandTimeout: COMMAND_TIMEOUT_MS,
  sentinelRetryStrategy: reconnectAfterMs,
  // A server that stands still never closes its side; ioredis would wait for that for 2 s before it reconnects.
  disconnectTimeout: 200,
};

/**
 * What a draw needs of its connection. A command whose reply was lost must not
 * be sent again (it would book twice), and must not wait in a queue of
 * ioredis' own while Redis is away (it would hang, and then fire all at once).
 */
const STORE_SETTINGS: RedisOptions = {
  ...COMMON_SETTINGS,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  commandTimeout: COMMAND_TIMEOUT_MS,
  connectTimeout: 2_000,
  lazyConnect: true,
};

/** A job that was sent twice would be done twice, so a producer's commands are not sent again either. */
const PRODUCER_SETTINGS: RedisOptions = { ...STORE_SETTINGS, commandTimeout: 5_000 };

/** BullMQ demands that a worker's commands wait for Redis, however long it is away. */
const WORKER_SETTINGS: RedisOptions = {
  ...COMMON_SETTINGS,
  maxRetriesPerRequest: null,
  enableOfflineQueue: true,
  autoResendUnfulfilledCommands: true,
  lazyConnect: false,
};

export type ConnectionUse = "store" | "listener" | "producer" | "worker";

export const SETTINGS: Readonly<Record<ConnectionUse, RedisOptions>> = {
  store: STORE_SETTINGS,
  listener: { ...WORKER_SETTINGS, lazyConnect: true },
  producer: PRODUCER_SETTINGS,
  worker: WORKER_SETTINGS,
};

/** A cluster has settings of its own beside those of the connections to its nodes. */
export function clusterSettings(
  { options }: { readonly options: ClusterOptions },
  settings: RedisOptions,
): ClusterOptions {
  const { lazyConnect = false } = settings;
  const isSentOnce = settings.autoResendUnfulfilledCommands === false;
  return {
    ...options,
    enableAutoPipelining: false,
    // For the first command to a node, which connects to it, and those that come meanwhile.
    enableOfflineQueue: true,
    lazyConnect,
    keyPrefix: "",
    // What was just written may not have come to a replica yet.
    scaleReads: "master",
    clusterRetryStrategy: reconnectAfterMs,
    slotsRefreshInterval: CLUSTER_LOOK_MS,
    // ioredis sends what was under way on a lost connection again, to whatever node, unless this is 0.
    retryDelayOnFailover: isSentOnce ? 0 : 100,
    redisOptions: { ...options.redisOptions, ...settings },
  };
}

function reconnectAfterMs(times: number): number {
  return Math.min(times * 50, 1_000);
}

/**
 * After a failover the old primary answers READONLY, and LOADING while it takes over the data of the
 * new one. The next connection finds the new one, or is ready as soon as this one has its data.
 */
function isNoUse(error: Error): boolean {
  return /^(READONLY|LOADING) /.test(error.message);
}
