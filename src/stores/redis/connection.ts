import { Cluster, Redis, type ClusterOptions, type RedisOptions } from "ioredis";
import { adoptCopies, closeWithNodes, rejectWhenClosed } from "./ioredis/closing.ts";
import { connectUntilClosed, pauseBetweenNodes, refuseWhileAway } from "./ioredis/cluster.ts";
import { retryInfo } from "./ioredis/for-bullmq.ts";
import { gatherWrites, requireDatabase } from "./ioredis/per-server.ts";
import { nameRefusals } from "./ioredis/refusals.ts";
import { PatientConnector, searchUntilClosed } from "./ioredis/sentinel.ts";
import { dropSilentServers } from "./ioredis/silent-servers.ts";

/** An ioredis client, `Redis` or `Cluster`, of any ioredis version. */
export interface RedisClient {
  readonly status: string;
  readonly options: object;
  duplicate(...given: never[]): unknown;
}

/** How to reach Redis: a URL, ioredis options, or your own client. Sluice copies the client and does not change it. */
export type RedisInput = string | RedisOptions | RedisClient;

/**
 * What a connection is used for: the state of buckets, notifications from other replicas, adding
 * jobs, fetching jobs for a worker, or reading events of queues.
 */
export type ConnectionUse = "store" | "subscriber" | "producer" | "worker" | "events";

/** A worker or subscriber drops its connection if the server sends nothing for this long. */
const SILENCE_MS = 5_000;
/** The longest time that a blocking command of BullMQ waits, on copies of our connections. */
const LONGEST_BLOCK_MS = 10_000;
/** The longest time that a blocking read waits for the next event. */
export const EVENTS_BLOCK_MS = 5_000;

/**
 * Opens a connection with the settings and patches that its use requires. `timeoutMs` is how long a request may take,
 * with all its attempts.
 */
export function connect(
  input: RedisInput,
  use: ConnectionUse,
  timeoutMs: number = 2 * COMMAND_TIMEOUT_MS,
): Redis | Cluster {
  const client = open(input, patient(SETTINGS[use], timeoutMs));
  // Each bucket or request that waits for the connection adds a listener, so there is no maximum.
  // The value is not 0, because BullMQ would add its own few listeners to 0 and set that as the
  // maximum.
  client.setMaxListeners(Infinity);
  // The listener ignores errors. A failed attempt also rejects the command that waited for it, and
  // the caller handles that rejection.
  client.on("error", () => undefined);
  keepConnecting(client);
  if (use === "worker") gatherWrites(client);
  if (use === "store" || use === "producer") dropSilentServers(client);
  else if (use === "events") boundBlocks(client, EVENTS_BLOCK_MS);
  else allowBlocking(client);
  return client;
}

/**
 * Applies the patches that every connection needs. The connection reconnects until it is closed. In
 * a cluster, closing it also closes the connections to all nodes.
 */
function keepConnecting(client: Redis | Cluster): void {
  searchUntilClosed(client);
  connectUntilClosed(client);
  pauseBetweenNodes(client);
  closeWithNodes(client);
  requireDatabase(client);
  nameRefusals(client);
}

/**
 * Applies the patches for connections whose commands may block, such as a worker's while its queue
 * is empty. A `commandTimeout` in the user's options would end each blocking command, so this
 * function removes it (https://github.com/redis/ioredis/issues/1630). Instead, a blocking command
 * ends if the server is silent or the connection is closed.
 */
function allowBlocking(client: Redis | Cluster): void {
  dropTimeLimit(client);
  boundBlocking(client, SILENCE_MS);
  const reported = new Set<string>();
  retryInfo(client, reported);
  // BullMQ sends blocking commands on copies of the client, so the copies need the patches too.
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

/**
 * Applies the patches for connections that only send blocking commands. Each such command ends
 * within `longestMs`, so the server is pinged one second later at the earliest.
 */
function boundBlocks(client: Redis | Cluster, longestMs: number): void {
  dropTimeLimit(client);
  boundBlocking(client, longestMs + SILENCE_MS, longestMs + 1_000);
}

function boundBlocking(client: Redis | Cluster, silenceMs: number, pingAfterMs?: number): void {
  dropSilentServers(client, silenceMs, pingAfterMs);
  rejectWhenClosed(client);
}

/**
 * Returns true if ioredis can parse a URL. This check keeps the password out of logs: on an
 * unencoded `%` in the password, ioredis throws an error that contains the password.
 */
export function canRead(url: string): boolean {
  try {
    const probe = new Redis(url.trim(), { lazyConnect: true });
    const isLazy = probe.status === "wait";
    // The query of a URL overrides the options and may disable `lazyConnect`. The probe then
    // connects immediately and must be closed.
    if (!isLazy) probe.disconnect();
    return isLazy;
  } catch {
    return false;
  }
}

function open(input: RedisInput, settings: RedisOptions): Redis | Cluster {
  // The query of a URL overrides options, so the settings are applied to a copy of the client.
  if (typeof input === "string") {
    return new Redis(input.trim(), { lazyConnect: true }).duplicate(settings);
  }
  if (isCluster(input)) {
    const cluster = input.duplicate([], clusterSettings(input, settings));
    if (settings.enableOfflineQueue === false) refuseWhileAway(cluster);
    return cluster;
  }
  // Creates the client with our version of ioredis, because the user's client may come from another
  // version.
  const options: RedisOptions = isClient(input) ? input.options : input;
  return new Redis({ ...options, ...settings, ...finder(options), ...passwordsOf(options) });
}

/**
 * Removes line breaks at the end of passwords. A password that was read from a file often ends with
 * a line break.
 */
function passwordsOf({ password, sentinelPassword }: RedisOptions): RedisOptions {
  const trimmed = (text: string): string => text.replace(/[\r\n]+$/, "");
  return {
    ...(typeof password === "string" && { password: trimmed(password) }),
    ...(typeof sentinelPassword === "string" && { sentinelPassword: trimmed(sentinelPassword) }),
  };
}

/**
 * Returns the option with the class that finds the primary through Sentinel, unless the user has
 * set one.
 */
function finder({ sentinels, Connector }: RedisOptions): RedisOptions {
  return sentinels && Connector === undefined ? { Connector: PatientConnector } : {};
}

export function isCluster(input: RedisInput): input is Cluster {
  return typeof input === "object" && "isCluster" in input && input.isCluster === true;
}

function isClient(input: RedisOptions | RedisClient): input is RedisClient {
  return "duplicate" in input && typeof input.duplicate === "function";
}

/**
 * The least time limit for the store's commands. A command that takes longer ends its connection, and three such
 * commands in a row open the server's breaker.
 */
const COMMAND_TIMEOUT_MS = 1_000;
/** No command waits longer than this, so that a server that hangs is left soon. */
const LONGEST_COMMAND_MS = 5_000;
/**
 * How often a cluster's client refreshes its list of nodes. Without refreshes, a subscriber would
 * stay on a hanging node.
 */
const CLUSTER_REFRESH_MS = 5_000;

const COMMON_SETTINGS: RedisOptions = {
  keyPrefix: "",
  stringNumbers: false,
  // Without this check, a connection that is closed while it connects still becomes ready:
  // https://github.com/redis/ioredis/issues/2099, fixed after 5.11.1.
  enableReadyCheck: true,
  // With auto-pipelining, ioredis would drop the gathered commands when the connection is closed.
  enableAutoPipelining: false,
  retryStrategy: reconnectAfterMs,
  reconnectOnError: needsReconnect,
  // A new connection is not ready until the server has loaded its data. The server itself reports
  // how long loading takes.
  maxLoadingRetryTime: 1_000,
  // Detects failovers behind Sentinel. Otherwise subscribers and pending requests would stay
  // connected to a hanging primary.
  failoverDetector: true,
  // If a sentinel does not answer in time, ioredis asks the next one. A sentinel on the primary's
  // machine may hang together with the primary.
  sentinelCommandTimeout: COMMAND_TIMEOUT_MS,
  sentinelRetryStrategy: reconnectAfterMs,
  // A hanging server never closes its side of the connection. By default, ioredis waits 2 s for
  // that before it reconnects.
  disconnectTimeout: 200,
};

/**
 * Disables resending and queueing in ioredis. A draw whose reply was lost must not be sent again,
 * because it would book twice. A draw must also not wait in ioredis' queue while Redis is
 * unreachable. It would hang, and all waiting draws would be sent at once later.
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

/**
 * A producer's commands are not resent either, because a job that was sent twice would run twice.
 */
const PRODUCER_SETTINGS: RedisOptions = {
  ...STORE_SETTINGS,
  commandTimeout: LONGEST_COMMAND_MS,
};

/**
 * BullMQ requires that a worker's commands wait for Redis, even if Redis is unreachable for a long
 * time.
 */
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
  // A lost read is not resent, because the next read may be for different streams.
  events: STORE_SETTINGS,
};

/** Lets commands take half of the time of a request, so that a second attempt is possible. */
function patient(settings: RedisOptions, timeoutMs: number): RedisOptions {
  const { commandTimeout, connectTimeout } = settings;
  if (commandTimeout === undefined || connectTimeout === undefined) return settings;
  const halfMs = Math.min(Math.ceil(timeoutMs / 2), LONGEST_COMMAND_MS);
  return {
    ...settings,
    commandTimeout: Math.max(commandTimeout, halfMs),
    connectTimeout: Math.max(connectTimeout, halfMs),
  };
}

/** Returns the settings of a cluster's client, and of the client's connections to nodes. */
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
    // Reads go to masters, because a replica may not have the latest writes yet.
    scaleReads: "master",
    clusterRetryStrategy: reconnectAfterMs,
    slotsRefreshInterval: CLUSTER_REFRESH_MS,
    // With a value other than 0, ioredis resends the pending commands of a lost connection to any
    // node.
    retryDelayOnFailover: isSentOnce ? 0 : 100,
    redisOptions: { ...options.redisOptions, ...settings },
  };
}

function reconnectAfterMs(times: number): number {
  return Math.min(times * 50, 1_000);
}

/**
 * Returns true for errors that end a connection after a failover. The old primary answers READONLY,
 * and later LOADING while it copies the new primary's data. The next connection reaches the new
 * primary, or waits until the old one has loaded the data.
 */
function needsReconnect(error: Error): boolean {
  return /^(READONLY|LOADING) /.test(error.message);
}
