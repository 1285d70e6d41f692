/**
 * Patch of ioredis: drops a connection to a silent server as if it had been lost, since the next
 * one may reach another server. In a cluster, this concerns the connection to one node, and the
 * others stay.
 *
 * Faults (ioredis 5.11.1): after a process was frozen, the timer of `commandTimeout` rejects a
 * command whose reply has arrived. After a timeout, ioredis keeps the silent connection.
 * `socketTimeout` is no solution: its timer outlives its connection and ends the next one.
 * Upstream: https://github.com/redis/ioredis/issues/2147, mended in 6.0.0, is `socketTimeout`. No
 * issue is known for `commandTimeout`. With ioredis 6, `socketTimeout` may replace the watch of
 * connections without `commandTimeout`, but it takes a blocked command for silence.
 */

import type { Socket } from "node:net";
import type { Cluster, Command, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";
import { startTimeLimit } from "./time-limit.ts";

const CHECK_MS = 1_000;
/** Whether a connection is at rest, so that an occasional ping of its server is enough. */
interface Rest {
  readonly mayRest: () => boolean;
  /** At rest, the server is pinged after this many ms without a byte. */
  readonly pingAfterMs: number;
}

const rests = new WeakMap<Redis | Cluster, Rest>();

/** Lets the watch of a client rest while `mayRest` returns true. It resumes within a second. */
export function restWhile(client: Redis | Cluster, rest: Rest): void {
  rests.set(client, rest);
}

/**
 * Drops the connection to a silent server.
 *
 * Without `silenceMs`, a server is silent that does not answer a command within the connection's `commandTimeout`.
 * With it, for connections whose commands may block: a server that sends nothing for that long, although it was
 * pinged, after `pingAfterMs` without a byte.
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
  /** Where each command was sent last: a cluster may redirect it. */
  const servers = new WeakMap<Command, Redis>();
  onEachServer(client, (server) => {
    watchCommands(server, servers);
    noteBytes(server);
  });
}

/** When a server sent something last, on `performance.now()`. */
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
 * Drops connections that were silent for this long and owe an answer. A cloud function that was frozen wakes up with
 * connections that the network has forgotten. Its second request gets a new one, long before `commandTimeout`.
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

/** Replaces the time limit that ioredis sets when it sends a command by one that a frozen process does not use up. */
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

/** Of many late commands, the first one ends the connection. */
function drop(server: Redis): void {
  const isEnding = server.stream?.writable === false;
  if (!isEnding) server.disconnect(true);
}

/** For how long its servers may be silent before they are pinged, if it rests now; else 0. */
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
     * Counts checks instead of time: after a freeze, the process has not yet read the bytes that
     * arrived.
     */
    let silentChecks = 0;
    /** The silence, in ms, at which the server was pinged; 0 if it was not. */
    let pingedMs = 0;
    const checking = setInterval(() => {
      silentChecks = stream.bytesRead === bytesRead ? silentChecks + 1 : 0;
      ({ bytesRead } = stream);
      const silentMs = silentChecks * CHECK_MS;
      if (silentMs < pingedMs) pingedMs = 0;
      if (pingedMs === 0 && silentMs < Math.max(pingAfterMs, restMs())) return;
      // Any answer will do, a refusal too. Behind a command that blocks, the ping waits.
      if (pingedMs === 0 && server.status === "ready") server.ping().catch(() => undefined);
      if (pingedMs === 0) pingedMs = silentMs;
      // What it rested for longer than usual does not count.
      if (silentMs - (pingedMs - pingAfterMs) > silenceMs) server.disconnect(true);
    }, CHECK_MS).unref();
    stream.once("close", () => clearInterval(checking));
  });
}
