/** Patches of the connection to each server; a cluster's client has one for each node. */
import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";

/** Calls `use` with the connection to a server, or with each one that a cluster's client makes to a node. */
export function onEachServer(client: Redis | Cluster, use: (server: Redis) => void): void {
  if ("isCluster" in client && client.isCluster) client.on("+node", use);
  else use(client as Redis);
}

/**
 * Writes all commands of one turn of the event loop in one piece.
 *
 * Fault: ioredis writes each command by itself, which is a system call and a packet each. A worker to which one
 * packet brings fifty jobs ends fifty; the writes took a tenth of the worker's processor time.
 * Upstream: no issue known; checked with ioredis 5.11.1. Its `enableAutoPipelining` gathers commands too, but forgets
 * what it has gathered when the connection is closed.
 */
export function gatherWrites(client: Redis | Cluster): void {
  onEachServer(client, (server) => {
    const send = server.sendCommand.bind(server);
    server.sendCommand = (command, stream) => {
      hold(server.stream);
      return send(command, stream);
    };
  });
}

/** Until the current event is handled, and all promises that it has settled. */
function hold(stream: Socket | undefined): void {
  if (stream === undefined || stream.writableCorked > 0) return;
  stream.cork();
  process.nextTick(uncork, stream);
}

function uncork(stream: Socket): void {
  stream.uncork();
}

/**
 * Leaves a server that refuses `SELECT` of the database that was asked for.
 *
 * Fault: ioredis emits the error and goes on in database 0.
 * Upstream: https://github.com/redis/ioredis/issues/1213, open, is about the same unhandled refusal; checked with
 * ioredis 5.11.1.
 */
export function requireDatabase(client: Redis | Cluster): void {
  onEachServer(client, (server) => {
    const send = server.sendCommand.bind(server);
    server.sendCommand = (command, ...rest) => {
      if (command.name === "select") leaveUnlessSelected(server, command);
      return send(command, ...rest);
    };
  });
}

function leaveUnlessSelected(server: Redis, command: Parameters<Redis["sendCommand"]>[0]): void {
  const { reject } = command;
  command.reject = (error) => {
    // At once: the next answer of the server makes the connection ready.
    server.stream.destroy(error);
    reject(error);
  };
}
