import { Cluster, Redis, type ClusterOptions, type RedisOptions } from "ioredis";
import { adoptCopies, closeWithNodes, rejectWhenClosed } from "./ioredis/closing.ts";
import { connectUntilClosed, pauseBetweenNodes, refuseWhileAway } from "./ioredis/cluster.ts";
import { retryInfo } from "./ioredis/for-bullmq.ts";
import { gatherWrites, requireDatabase } from "./ioredis/per-server.ts";
import { nameRefusals } from "./ioredis/refusals.ts";
import { PatientConnector, searchUntilClosed } from "./ioredis/sentinel.ts";
import { dropSilentServers } from "./ioredis/silent-servers.ts";

/** A client of ioredis, `Redis` or `Cluster`, of any version. */
export interface RedisClient {
  readonly status: string;
  readonly options: object;
  duplicate(...given: never[]): unknown;
}

/** How to reach Redis: a URL, ioredis options, or your own client. Sluice copies the client and does not change it. */
export type RedisInput = string | RedisOptions | RedisClient;

/**
 * The use of a connection: the state of buckets, notifications from other replicas, new jobs, the jobs of a worker, or the
 * events of queues.
 */
export type ConnectionUse = "store" | "subscriber" | "producer" | "worker" | "events";

/** A worker or subscriber gives up the connection to a server that sends nothing for this long. */
const SILENCE_MS = 5_000;
/** BullMQ blocks for at most this long, on copies of our connections. */
const LONGEST_BLOCK_MS = 10_000;
/** How long a blocking read of events waits for the next event. */
export const EVENTS_BLOCK_MS = 5_000;

/** A connection of Sluice's own, with the settings and patches that its use demands. */
export function connect(input: RedisInput, use: ConnectionUse): Redis | Cluster {
  const client = open(input, SETTINGS[use]);
  // One listener for each bucket or request that waits for the connection. Not 0, to which BullMQ would add its own few.
  client.setMaxListeners(Infinity);
  // A failed attempt also rejects the command that waited for it; the caller handles that.
  client.on("error", () => undefined);
  keepConnecting(client);
  if (use === "worker") gatherWrites(client);
  if (use === "store" || use === "producer") dropSilentServers(client);
  else if (use === "events") boundBlocks(client, EVENTS_BLOCK_MS);
  else allowBlocking(client);
  return client;
}

/** Applies the patches that every connection needs: it reconnects until it is closed, and a close ends all parts of it. */
function keepConnecting(client: Redis | Cluster): void {
  searchUntilClosed(client);
  connectUntilClosed(client);
  pauseBetweenNodes(client);
  closeWithNodes(client);
  requireDatabase(client);
  nameRefusals(client);
}

/**
 * Applies the patches for connections whose commands may block, such as a worker's while its queue is empty. A
 * `commandTimeout` in the user's options would end each block, so this function removes it
 * (https://github.com/redis/ioredis/issues/1630). A silent server or a close ends the wait instead.
 */
function allowBlocking(client: Redis | Cluster): void {
  dropTimeLimit(client);
  boundBlocking(client, SILENCE_MS);
  const reported = new Set<string>();
  retryInfo(client, reported);
  // BullMQ blocks on copies.
  adoptCopies(client, (copy) => {
    keepConnecting(copy);
    retryInfo(copy, reported);
    boundBlocks(copy, LONGEST_BLOCK_MS);
  });
}

function dropTimeLimit(client: Redis | Cluster): void {
  const settings = isCluster(client) ? client.options.redisOptions : client.options;
  delete settings?.commandTimeout;
}

/** For connections that only block. Each block ends within `longestMs`, so the server is pinged only a second after that. */
function boundBlocks(client: Redis | Cluster, longestMs: number): void {
  dropTimeLimit(client);
  boundBlocking(client, longestMs + SILENCE_MS, longestMs + 1_000);
}

function boundBlocking(client: Redis | Cluster, silenceMs: number, pingAfterMs?: number): void {
  dropSilentServers(client, silenceMs, pingAfterMs);
  rejectWhenClosed(client);
}

/** True if ioredis can parse a URL. On an unencoded `%` in the password, ioredis throws an error with the password in it. */
export function canRead(url: string): boolean {
  try {
    const probe = new Redis(url.trim(), { lazyConnect: true });
    const isLazy = probe.status === "wait";
    // The query of a URL wins over options, and can make it connect at once.
    if (!isLazy) probe.disconnect();
    return isLazy;
  } catch {
    return false;
  }
}

function open(input: RedisInput, settings: RedisOptions): Redis | Cluster {
  // Through a copy, since the query of a URL wins over options.
  if (typeof input === "string") {
    return new Redis(input.trim(), { lazyConnect: true }).duplicate(settings);
  }
  if (isCluster(input)) {
    const cluster = input.duplicate([], clusterSettings(input, settings));
    if (settings.enableOfflineQueue === false) refuseWhileAway(cluster);
    return cluster;
  }
  // Made by our version of ioredis, whichever made the client.
  const options: RedisOptions = isClient(input) ? input.options : input;
  return new Redis({ ...options, ...settings, ...finder(options), ...passwordsOf(options) });
}

/** A password that was read from a file ends with a line break. */
function passwordsOf({ password, sentinelPassword }: RedisOptions): RedisOptions {
  const trimmed = (text: string): string => text.replace(/[\r\n]+$/, "");
  return {
    ...(typeof password === "string" && { password: trimmed(password) }),
    ...(typeof sentinelPassword === "string" && { sentinelPassword: trimmed(sentinelPassword) }),
  };
}

/** The class with which ioredis finds the primary through Sentinel. */
function finder({ sentinels, Connector }: RedisOptions): RedisOptions {
  return sentinels && Connector === undefined ? { Connector: PatientConnector } : {};
}

export function isCluster(input: RedisInput): input is Cluster {
  return typeof input === "object" && "isCluster" in input && input.isCluster === true;
}

function isClient(input: RedisOptions | RedisClient): input is RedisClient {
  return "duplicate" in input && typeof input.duplicate === "function";
}

/** A command of the store that takes longer ends its connection. */
const COMMAND_TIMEOUT_MS = 1_000;
/** How often a cluster's client refreshes its list of nodes. Without this, a subscriber would stay on a hanging node. */
const CLUSTER_REFRESH_MS = 5_000;

const COMMON_SETTINGS: RedisOptions = {
  keyPrefix: "",
  stringNumbers: false,
  // Without it, a connection that is closed while it connects becomes ready after all:
  // https://github.com/redis/ioredis/issues/2099, mended after 5.11.1.
  enableReadyCheck: true,
  // With auto-pipelining, ioredis would drop the gathered commands when the connection is closed.
  enableAutoPipelining: false,
  retryStrategy: reconnectAfterMs,
  reconnectOnError: needsReconnect,
  // A new connection is not ready until the server has loaded its data; the server itself says how long that takes.
  maxLoadingRetryTime: 1_000,
  // Behind Sentinel: a primary that hangs would keep subscribers and pending requests.
  failoverDetector: true,
  // A sentinel on the primary's machine may hang with it; the next one is asked then.
  sentinelCommandTimeout: COMMAND_TIMEOUT_MS,
  sentinelRetryStrategy: reconnectAfterMs,
  // A server that hangs never closes its side; ioredis would wait for that for 2 s before it reconnects.
  disconnectTimeout: 200,
};

/**
 * A draw whose reply was lost must not be sent again, because it would book twice. It must not wait
 * in ioredis' own queue while Redis is unreachable: it would hang, and all draws would be sent at
 * once later.
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

/** BullMQ requires that a worker's commands wait for Redis, however long it is unreachable. */
const WORKER_SETTINGS: RedisOptions = {
  ...COMMON_SETTINGS,
  maxRetriesPerRequest: null,
  enableOfflineQueue: true,
  autoResendUnfulfilledCommands: true,
  lazyConnect: false,
};

const SETTINGS: Readonly<Record<ConnectionUse, RedisOptions>> = {
  store: STORE_SETTINGS,
  subscriber: { ...WORKER_SETTINGS, lazyConnect: true },
  producer: PRODUCER_SETTINGS,
  worker: WORKER_SETTINGS,
  // A read that was lost is not sent again: the next one may be for other streams.
  events: STORE_SETTINGS,
};

/** The settings of a cluster's client, and of its connections to nodes. */
function clusterSettings(
  { options }: { readonly options: ClusterOptions },
  settings: RedisOptions,
): ClusterOptions {
  const { lazyConnect = false } = settings;
  const isSentOnce = settings.autoResendUnfulfilledCommands === false;
  return {
    ...options,
    enableAutoPipelining: false,
    // The first command to a node connects to it. That command and later ones wait for the
    // connection.
    enableOfflineQueue: true,
    lazyConnect,
    keyPrefix: "",
    // A replica may not have yet what was just written.
    scaleReads: "master",
    clusterRetryStrategy: reconnectAfterMs,
    slotsRefreshInterval: CLUSTER_REFRESH_MS,
    // Unless this is 0, ioredis resends what was under way on a lost connection, to any node.
    retryDelayOnFailover: isSentOnce ? 0 : 100,
    redisOptions: { ...options.redisOptions, ...settings },
  };
}

function reconnectAfterMs(times: number): number {
  return Math.min(times * 50, 1_000);
}

/**
 * After a failover the old primary answers READONLY, and LOADING while it takes over the data of the new one. The next
 * connection reaches the new one, or is ready as soon as this one has its data.
 */
function needsReconnect(error: Error): boolean {
  return /^(READONLY|LOADING) /.test(error.message);
}
