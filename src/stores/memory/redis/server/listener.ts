import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { createMemoryServer, type MemoryServer } from "./server.ts";

export interface MemoryListener {
  readonly url: string;
  readonly server: MemoryServer;
  readonly close: () => Promise<void>;
}

/** Only processes of this machine may connect, because the server asks for no password. */
const HOST = "127.0.0.1";

/** Serves a Redis in memory on a port of this machine. Port 0 means a free port. */
export async function listenInMemory(port: number = 0): Promise<MemoryListener> {
  const server = createMemoryServer();
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    socket.setNoDelay(true);
    sockets.add(socket);
    const { receive, close } = server.connect({
      write: (bytes) => void socket.write(bytes),
      end: () => socket.destroySoon(),
      address: `${socket.remoteAddress}:${socket.remotePort}`,
    });
    socket.on("data", receive);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      close();
    });
  });
  listener.listen(port, HOST);
  await once(listener, "listening");
  const { port: taken } = listener.address() as AddressInfo;
  return {
    url: `redis://${HOST}:${taken}`,
    server,
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      listener.close();
      await once(listener, "close");
    },
  };
}
