import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";
import { createReplier, type ReplyMode } from "./replier.ts";

/**
 * What happens to bytes on their way: they pass, or are kept for good in one or both directions; replies come
 * late, come byte by byte, or end in their middle with a reset of their connection.
 */
type ProxyMode = ReplyMode | "lose replies" | "stall" | "reset";

export interface TcpProxy {
  readonly port: number;
  /** Bytes that were kept since the mode was set. */
  readonly kept: number;
  /** The connections that clients have open. */
  readonly clients: ReadonlySet<Socket>;
  /** `delayMs` is how late delayed replies are. */
  set(mode: ProxyMode, delayMs?: number): void;
  /** Every connection that there is goes dead, in both directions, and neither end is told; new ones work. */
  abandon(): void;
  /** Breaks every connection. */
  cut(): void;
  /** Breaks the next connection as soon as it opens. */
  refuseNext(): void;
  close(): Promise<void>;
}

/** A proxy in this process, between a client and a server on this machine, that breaks what it is told to. */
export async function startTcpProxy(serverPort: number): Promise<TcpProxy> {
  let mode: ProxyMode = "pass";
  let delayMs: number | undefined;
  let kept = 0;
  let isRefusing = false;
  const clients = new Set<Socket>();
  const sockets = new Set<Socket>();
  const dead = new WeakSet<Socket>();

  function keep(bytes: Buffer): void {
    kept += bytes.length;
  }

  function breakWithin(reply: Buffer, client: Socket): void {
    const half = Math.floor(reply.length / 2);
    keep(reply.subarray(half));
    client.write(reply.subarray(0, half), () => client.resetAndDestroy());
  }

  const server = createServer((client) => {
    if (isRefusing) {
      isRefusing = false;
      client.resetAndDestroy();
      return;
    }
    client.setNoDelay(true);
    clients.add(client);
    client.once("close", () => clients.delete(client));
    const reply = createReplier(client);
    function answer(bytes: Buffer): void {
      if (dead.has(client) || mode === "stall" || mode === "lose replies") keep(bytes);
      else if (mode === "reset") breakWithin(bytes, client);
      else reply(bytes, mode, delayMs);
    }

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
    client.on("data", (bytes) => {
      if (mode === "stall" || dead.has(client)) keep(bytes);
      else upstream.write(bytes);
    });
    upstream.on("data", answer);
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
    clients,
    set(next, nextDelayMs) {
      mode = next;
      delayMs = nextDelayMs;
      kept = 0;
    },
    abandon() {
      for (const socket of sockets) dead.add(socket);
    },
    cut,
    refuseNext: () => void (isRefusing = true),
    async close() {
      cut();
      server.close();
      await once(server, "close");
    },
  };
}
