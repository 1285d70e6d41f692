import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";

/** What happens to bytes on their way: pass, or are kept for good in one or both directions. */
export type ProxyMode = "pass" | "lose replies" | "stall";

export interface TcpProxy {
  readonly port: number;
  /** Bytes that were kept since the mode was set. */
  readonly kept: number;
  set(mode: ProxyMode): void;
  /** Breaks every connection. */
  cut(): void;
  close(): Promise<void>;
}

/** A proxy in this process, between a client and a server on this machine, that breaks what it is told to. */
export async function startTcpProxy(serverPort: number): Promise<TcpProxy> {
  let mode: ProxyMode = "pass";
  let kept = 0;
  const sockets = new Set<Socket>();

  function keep(bytes: Buffer): void {
    kept += bytes.length;
  }

  const server = createServer((client) => {
    const upstream = connect(serverPort, "127.0.0.1");
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      // A broken connection is what this proxy is for; the other side is broken with it.
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on("data", (bytes) => (mode === "stall" ? keep(bytes) : upstream.write(bytes)));
    upstream.on("data", (bytes) => (mode === "pass" ? client.write(bytes) : keep(bytes)));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  function cut(): void {
    for (const socket of sockets) socket.destroy();
  }

  return {
    port: (server.address() as AddressInfo).port,
    get kept() {
      return kept;
    },
    set(next) {
      mode = next;
      kept = 0;
    },
    cut,
    async close() {
      cut();
      server.close();
      await once(server, "close");
    },
  };
}
