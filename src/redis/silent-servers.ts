import type { Cluster, Command, Redis } from "ioredis";

/**
 * Gives up the connection to a server that takes a command and does not answer it in time, as if it had
 * been lost: the next one may find another server there. Of a cluster, that is the connection to one node;
 * the others go on. Not ioredis' `socketTimeout`, whose timer outlives its connection and ends the next one.
 */
export function dropSilentServers(client: Redis | Cluster): void {
  /** Where each command went last: a cluster's may be sent on. */
  const servers = new WeakMap<Command, Redis>();

  function watch(server: Redis): void {
    const send = server.sendCommand.bind(server);
    server.sendCommand = (command, ...rest) => {
      const isFirst = !servers.has(command);
      servers.set(command, server);
      if (isFirst) command.promise.catch((error: unknown) => drop(command, error));
      return send(command, ...rest);
    };
  }

  function drop(command: Command, error: unknown): void {
    if (isSilence(error)) servers.get(command)?.disconnect(true);
  }

  if ("isCluster" in client && client.isCluster) client.on("+node", watch);
  else watch(client as Redis);
}

function isSilence(error: unknown): boolean {
  return error instanceof Error && error.message === "Command timed out";
}
