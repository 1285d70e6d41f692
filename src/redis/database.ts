import type { Cluster, Redis } from "ioredis";
import { onEachServer } from "./servers.ts";

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
