import { Cluster, Redis, type ClusterOptions, type RedisOptions } from "ioredis";
import { adoptCopies, closeWithNodes, refuseOnceClosed } from "./ioredis/closing.ts";
import { connectUntilClosed, pauseBetweenNodes } from "./ioredis/cluster.ts";
import { insistOnInfo } from "./ioredis/for-bullmq.ts";
import { gatherWrites, insistOnDatabase } from "./ioredis/per-server.ts";
import { PatientConnector, searchUntilClosed } from "./ioredis/sentinel.ts";
import { dropSilentServers } from "./ioredis/silent-servers.ts";

/** A client of ioredis, `Redis` or `Cluster`, of whatever version. */
export interface RedisClient {
  readonly status: string;
  readonly options: object;
  duplicate(...given: never[]): unknown;
}

/** Where Redis is: a URL, ioredis options, or a client of yours, which is copied and left as it is. */
export type RedisInput = string | RedisOptions | RedisClient;

/** How long a worker, or who only listens, believes in a server that says nothing. */
const SILENCE_MS = 5_000;
/** BullMQ blocks for as long as this at most, on connections that it copies from ours. */
const LONGEST_BLOCK_MS = 10_000;

/** A connection of Sluice's own, with the settings that its use demands. */
export function connect(input: RedisInput, use: ConnectionUse): Redis | Cluster {
  const client = open(input, SETTINGS[use]);
  // One listener for each bucket or question that waits for the connection. Not 0, to which BullMQ would add its own few.
  client.setMaxListeners(Infinity);
  // A failed attempt is told here as well as to the command that waited for it, which passes it on to its caller.
  client.on("error", () => undefined);
  lastUntilClosed(client);
  if (use === "worker") gatherWrites(client);
  if (use === "store" || use === "producer") dropSilentServers(client);
  else waitForAnswers(client);
  return client;
}

/** Keeps ioredis from giving a connection up for good, from leaving some of it open, from doing nothing but connect, and from going on in another database. */
function lastUntilClosed(client: Redis | Cluster): void {
  searchUntilClosed(client);
  connectUntilClosed(client);
  pauseBetweenNodes(client);
  closeWithNodes(client);
  insistOnDatabase(client);
}

/** A worker blocks on Redis while its queue is empty: a time limit that it inherits would end that each time. */
function waitForAnswers(client: Redis | Cluster): void {
  const settings = isCluster(client) ? client.options.redisOptions : client.options;
  delete settings?.commandTimeout;
  waitNoLonger(client, SILENCE_MS);
  const told = new Set<string>();
  insistOnInfo(client, told);
  // BullMQ blocks on these.
  adoptCopies(client, (copy) => {
    lastUntilClosed(copy);
    insistOnInfo(copy, told);
    waitNoLonger(copy, LONGEST_BLOCK_MS + SILENCE_MS);
  });
}

/** Ends a wait for an answer where none can come, since no command has a time limit there. */
function waitNoLonger(client: Redis | Cluster, silenceMs: number): void {
  dropSilentServers(client, silenceMs);
  refuseOnceClosed(client);
}

/** Whether ioredis can read an address. It cannot if a `%` in its password was not encoded, and throws then what tells the password. */
export function canRead(url: string): boolean {
  try {
    const probe = new Redis(url, { lazyConnect: true });
    const isLazy = probe.status === "wait";
    // The query of a URL wins over options, and can have it connect at once.
    if (!isLazy) probe.disconnect();
    return isLazy;
  } catch {
    return false;
  }
}

function open(input: RedisInput, settings: RedisOptions): Redis | Cluster {
  // By way of a copy, since ioredis lets the query of a URL win over options.
  if (typeof input === "string") return new Redis(input, { lazyConnect: true }).duplicate(settings);
  if (isCluster(input)) {
    const cluster = input.duplicate([], clusterSettings(input, settings));
    if (settings.enableOfflineQueue === false) refuseWhileAway(cluster);
    return cluster;
  }
  // Made by the ioredis that is known here, whichever made the client.
  const options: RedisOptions = isClient(input) ? input.options : input;
  return new Redis({ ...options, ...settings, ...finder(options) });
}

/** How the primary is found, where sentinels know it. */
function finder({ sentinels, Connector }: RedisOptions): RedisOptions {
  return sentinels && Connector === undefined ? { Connector: PatientConnector } : {};
}

/** A command may wait until one node is connected, which its time limit ends, but not until the whole cluster is. */
function refuseWhileAway(cluster: Cluster): void {
  const send = cluster.sendCommand.bind(cluster);
  cluster.sendCommand = (command, ...rest) => {
    // What ioredis asks itself, to find out whether the cluster is ready.
    if (cluster.status === "ready" || command.name === "cluster") return send(command, ...rest);
    command.reject(new Error("Stream isn't writeable: the cluster is not connected"));
    return command.promise;
  };
}

export function isCluster(input: RedisInput): input is Cluster {
  return typeof input === "object" && "isCluster" in input && input.isCluster === true;
}

function isClient(input: RedisOptions | RedisClient): input is RedisClient {
  return "duplicate" in input && typeof input.duplicate === "function";
}

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

const SETTINGS: Readonly<Record<ConnectionUse, RedisOptions>> = {
  store: STORE_SETTINGS,
  listener: { ...WORKER_SETTINGS, lazyConnect: true },
  producer: PRODUCER_SETTINGS,
  worker: WORKER_SETTINGS,
};

/** A cluster has settings of its own beside those of the connections to its nodes. */
function clusterSettings(
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
