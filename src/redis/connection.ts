import { Cluster, Redis, type RedisOptions } from "ioredis";
import { adoptCopies, closeWithNodes, refuseOnceClosed } from "./closing.ts";
import { connectUntilClosed } from "./cluster-attempts.ts";
import { pauseBetweenNodes } from "./cluster-listening.ts";
import { clusterSettings, SETTINGS, type ConnectionUse } from "./connection-settings.ts";
import { gatherWrites } from "./gather-writes.ts";
import { PatientConnector, searchUntilClosed } from "./sentinel.ts";
import { insistOnInfo } from "./server-info.ts";
import { insistOnDatabase } from "./database.ts";
import { dropSilentServers } from "./silent-servers.ts";

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
