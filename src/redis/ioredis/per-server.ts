import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";

/** Does something with the connection to a server, or with each that a cluster's client will make to a node. */
export function onEachServer(client: Redis | Cluster, use: (server: Redis) => void): void {
  if ("isCluster" in client && client.isCluster) client.on("+node", use);
  else use(client as Redis);
}

/**
 * Sends what is asked of a server while one event is handled in one piece. ioredis writes each command by itself, and
 * a worker to which a piece of the server's answer brings fifty jobs ends fifty: each such write is a system call, and
 * a packet. They took a tenth of what a job costs the worker's process.
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

/** Until the event is handled, and all promises that it has settled are looked at. */
function hold(stream: Socket | undefined): void {
  if (stream === undefined || stream.writableCorked > 0) return;
  stream.cork();
  process.nextTick(uncork, stream);
}

function uncork(stream: Socket): void {
  stream.uncork();
}

/** Leaves a server that does not select the database that is asked for: ioredis would go on in database 0. */
export function insistOnDatabase(client: Redis | Cluster): void {
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
    // At once: the next thing that the server says has the connection pass for ready.
    server.stream.destroy(error);
    reject(error);
  };
}
