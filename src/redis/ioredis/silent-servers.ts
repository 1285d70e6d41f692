import type { Cluster, Command, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";
import { startTimeLimit } from "./readiness.ts";

/** How often a connection is looked at on which one may have to wait long for an answer. */
const LOOK_MS = 1_000;

/** Watches one connection, to a server or to a node of a cluster. */
type Watch = (server: Redis) => void;

/**
 * Gives up the connection to a server that is silent, as if it had been lost: the next one may find another
 * server there. Of a cluster, that is the connection to one node; the others go on. Not ioredis'
 * `socketTimeout`, whose timer outlives its connection and ends the next one.
 *
 * A server is silent that does not answer a command within its time limit; where commands have none, one that
 * sends nothing for `silenceMs`, though it was asked to say that it is there.
 */
export function dropSilentServers(client: Redis | Cluster, silenceMs?: number): void {
  const watch = silenceMs === undefined ? commandsInTime() : signsOfLife(silenceMs);
  onEachServer(client, watch);
}

function commandsInTime(): Watch {
  /** Where each command went last: a cluster's may be sent on. */
  const servers = new WeakMap<Command, Redis>();

  return (server) => {
    const send = server.sendCommand.bind(server);
    server.sendCommand = (command, ...rest) => {
      const isFirst = !servers.has(command);
      servers.set(command, server);
      if (isFirst) limitPatiently(command, () => drop(servers.get(command)!));
      return send(command, ...rest);
    };
  };
}

/** Has the time limit that ioredis gives a command, when it sends it, be one that knows of standstills. */
function limitPatiently(command: Command, whenLate: () => void): void {
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

/** Of many commands that have waited for too long, the first has ended the connection. */
function drop(server: Redis): void {
  const isEnding = server.stream?.writable === false;
  if (!isEnding) server.disconnect(true);
}

function signsOfLife(silenceMs: number): Watch {
  return (server) => {
    server.on("connect", () => {
      const { stream } = server;
      let { bytesRead } = stream;
      /** Looks, not time: a process that stood still has yet to read what came meanwhile. */
      let silentLooks = 0;
      const looking = setInterval(() => {
        silentLooks = stream.bytesRead === bytesRead ? silentLooks + 1 : 0;
        ({ bytesRead } = stream);
        // What it answers does not matter, and where it may not be asked it says so. Behind a command that blocks, it waits.
        if (silentLooks === 1 && server.status === "ready") server.ping().catch(() => undefined);
        if (silentLooks * LOOK_MS > silenceMs) server.disconnect(true);
      }, LOOK_MS).unref();
      stream.once("close", () => clearInterval(looking));
    });
  };
}
