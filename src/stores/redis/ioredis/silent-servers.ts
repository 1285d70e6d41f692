/**
 * Patches ioredis to drop the connection to a silent server. ioredis then reconnects, and may reach
 * another server. In a cluster, only the connection to the silent node is dropped.
 *
 * Faults (ioredis 5.11.1): After a process was frozen, the timer of `commandTimeout` rejects a
 * command whose reply has already arrived. After a timeout, ioredis keeps the silent connection.
 * `socketTimeout` does not help: its timer outlives its connection and ends the next one.
 * Upstream: https://github.com/redis/ioredis/issues/2147, fixed in 6.0.0, is about `socketTimeout`.
 * No issue is known for `commandTimeout`. With ioredis 6, `socketTimeout` may replace the watch of
 * connections without `commandTimeout`, but it treats a blocking command as silence.
 */

import type { Socket } from "node:net";
import type { Cluster, Command, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";
import { startTimeLimit } from "./time-limit.ts";

const CHECK_MS = 1_000;
/** When a connection is at rest, so that occasional pings of its server are enough. */
interface Rest {
  readonly mayRest: () => boolean;
  /** At rest, the server is pinged after it has sent nothing for this many ms. */
  readonly pingAfterMs: number;
}

const rests = new WeakMap<Redis | Cluster, Rest>();

/**
 * Pings the servers of a client less often while `mayRest` returns true. Normal checks resume
 * within a second.
 */
export function restWhile(client: Redis | Cluster, rest: Rest): void {
  rests.set(client, rest);
}

/**
 * Drops the connection to a silent server.
 *
 * Without `silenceMs`, a server is silent if it does not reply to a command within the connection's
 * `commandTimeout`. Pass `silenceMs` for connections whose commands may block. The server is then
 * pinged after `pingAfterMs` without data, and is silent if it sends nothing for `silenceMs`.
 */
export function dropSilentServers(
  client: Redis | Cluster,
  silenceMs?: number,
  pingAfterMs: number = CHECK_MS,
): void {
  if (silenceMs !== undefined) {
    const bounds = { silenceMs, pingAfterMs, restMs: () => restMsOf(client) };
    return onEachServer(client, (server) => watchBytes(server, bounds));
  }
  /**
   * The connection on which each command was last sent, because a cluster may redirect a command.
   */
  const servers = new WeakMap<Command, Redis>();
  onEachServer(client, (server) => {
    watchCommands(server, servers);
    noteBytes(server);
  });
}

/** When each connection last received data, on `performance.now()`. */
const lastBytes = new WeakMap<Socket, number>();

function noteBytes(server: Redis): void {
  server.on("connect", () => {
    const { stream } = server;
    const note = (): void => void lastBytes.set(stream, performance.now());
    note();
    stream.on("data", note);
  });
}

/**
 * Drops connections that have unanswered commands and were silent for `silentMs`. After a freeze, a
 * cloud function still has connections that the network has dropped. This function lets its second
 * request use a new connection, long before `commandTimeout`.
 */
export function dropSilentFor(client: Redis | Cluster, silentMs: number): void {
  for (const server of isCluster(client) ? client.nodes() : [client]) {
    const { stream, commandQueue } = server;
    const lastMs = stream && lastBytes.get(stream);
    const isSilent = lastMs !== undefined && performance.now() - lastMs >= silentMs;
    if (isSilent && commandQueue.length > 0) drop(server);
  }
}

function isCluster(client: Redis | Cluster): client is Cluster {
  return "isCluster" in client && client.isCluster;
}

function watchCommands(server: Redis, servers: WeakMap<Command, Redis>): void {
  const send = server.sendCommand.bind(server);
  server.sendCommand = (command, ...rest) => {
    const isFirst = !servers.has(command);
    servers.set(command, server);
    if (isFirst) replaceTimeout(command, () => drop(servers.get(command)!));
    return send(command, ...rest);
  };
}

/**
 * Replaces the time limit that ioredis sets when it sends a command. The new time limit does not
 * expire while the process is frozen.
 */
function replaceTimeout(command: Command, whenLate: () => void): void {
  let stop: (() => void) | undefined;
  command.setTimeout = (timeoutMs) => {
    stop ??= startTimeLimit(timeoutMs, () => {
      command.reject(new Error("Command timed out"));
      whenLate();
    });
  };
  const stopIfAny = (): void => stop?.();
  command.promise.then(stopIfAny, stopIfAny);
}

/** Ends a connection. Of many late commands, only the first one has an effect. */
function drop(server: Redis): void {
  const isEnding = server.stream?.writable === false;
  if (!isEnding) server.disconnect(true);
}

/**
 * Returns how long the servers of a resting client may be silent before they are pinged, in ms.
 * Returns 0 for a client that is not at rest.
 */
function restMsOf(client: Redis | Cluster): number {
  const rest = rests.get(client);
  return rest?.mayRest() === true ? rest.pingAfterMs : 0;
}

interface WatchBounds {
  readonly silenceMs: number;
  readonly pingAfterMs: number;
  readonly restMs: () => number;
}

function watchBytes(server: Redis, { silenceMs, pingAfterMs, restMs }: WatchBounds): void {
  server.on("connect", () => {
    const { stream } = server;
    let { bytesRead } = stream;
    /**
     * The number of checks in a row without new data. Checks are counted instead of time, because
     * after a freeze the process has not yet read the data that arrived.
     */
    let silentChecks = 0;
    /** How long the server had been silent when it was pinged, in ms. 0 if it was not pinged. */
    let pingedMs = 0;
    const checking = setInterval(() => {
      silentChecks = stream.bytesRead === bytesRead ? silentChecks + 1 : 0;
      ({ bytesRead } = stream);
      const silentMs = silentChecks * CHECK_MS;
      if (silentMs < pingedMs) pingedMs = 0;
      if (pingedMs === 0 && silentMs < Math.max(pingAfterMs, restMs())) return;
      // Any reply proves that the server works, even an error. Behind a blocking command, the ping
      // waits.
      if (pingedMs === 0 && server.status === "ready") server.ping().catch(() => undefined);
      if (pingedMs === 0) pingedMs = silentMs;
      // The extra silence that is normal at rest does not count.
      if (silentMs - (pingedMs - pingAfterMs) > silenceMs) server.disconnect(true);
    }, CHECK_MS).unref();
    stream.once("close", () => clearInterval(checking));
  });
}
