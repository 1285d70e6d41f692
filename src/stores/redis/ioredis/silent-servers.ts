/**
 * Patch of ioredis: a connection to a server that is silent is given up as if it had been lost, since the next one may
 * reach another server. In a cluster, that is the connection to one node; the others go on.
 *
 * Faults (ioredis 5.11.1): the timer of `commandTimeout` rejects a command whose answer has arrived, when the process
 * was frozen; and after a time-out ioredis keeps the silent connection. `socketTimeout` is no way out: its timer
 * outlives its connection and ends the next one.
 * Upstream: https://github.com/redis/ioredis/issues/2147, mended in 6.0.0, is `socketTimeout`; for `commandTimeout` no
 * issue is known. With ioredis 6, `socketTimeout` may replace the watch of connections without `commandTimeout`,
 * but it takes a blocked command for silence.
 */

import type { Socket } from "node:net";
import type { Cluster, Command, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";
import { startTimeLimit } from "./time-limit.ts";

const CHECK_MS = 1_000;
/** When nobody needs a connection soon, so that it is enough to ping its server now and then. */
interface Rest {
  readonly mayRest: () => boolean;
  /** After how many ms without an answer it is pinged then. */
  readonly pingAfterMs: number;
}

const rests = new WeakMap<Redis | Cluster, Rest>();

/** Lets the watch of a client rest while it may; it resumes within a second. */
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
    /** Checks are counted instead of time: a process that was frozen has not read yet what arrived meanwhile. */
    let silentChecks = 0;
    /** After how many ms without a byte it was pinged; 0: not yet. */
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
