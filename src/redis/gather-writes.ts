import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";
import { onEachServer } from "./servers.ts";

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
  process.nextTick(letGo, stream);
}

function letGo(stream: Socket): void {
  stream.uncork();
}
