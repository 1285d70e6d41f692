import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

/** What happens to what Redis answers: all of it comes, in order; late, or in single bytes. */
export type WireMode = "pass" | "latency" | "slices";

/** The way to the proxy. What breaks no stream is done here, what breaks one there. */
export interface Wire {
  readonly port: number;
  set(mode: WireMode): void;
  /** All connections that there are go dead, and nobody hears of it; new ones work. */
  abandon(): void;
  /** Those that went dead are found to be so. */
  find(): void;
  close(): Promise<void>;
}

/** How late replies are, in ms. */
export const LATENCY_MS = 200;

export async function startWire(toPort: number): Promise<Wire> {
  let mode: WireMode = "pass";
  const living = new Set<readonly [Socket, Socket]>();
  const dead = new Set<Socket>();

  /** Writes what comes in its order, whatever the mode was when it came. */
  function replier(client: Socket): (bytes: Buffer) => void {
    let last = Promise.resolve();
    let left = 0;
    async function write(bytes: Buffer, how: WireMode, dueMs: number): Promise<void> {
      if (how === "latency") await pause(Math.max(0, dueMs - performance.now()));
      const step = how === "slices" ? 1 : bytes.length;
      for (let at = 0; at < bytes.length; at += step) {
        client.write(bytes.subarray(at, at + step));
        if (how === "slices") await new Promise(setImmediate);
      }
      left -= 1;
    }
    return (bytes) => {
      if (mode === "pass" && left === 0) return void client.write(bytes);
      const how = mode;
      const dueMs = performance.now() + LATENCY_MS;
      left += 1;
      last = last.then(() => write(bytes, how, dueMs));
    };
  }

  const server = createServer((client) => {
    client.setNoDelay(true);
    const upstream = connect(toPort, "127.0.0.1").setNoDelay(true);
    const pair = [client, upstream] as const;
    living.add(pair);
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", replier(client));
    for (const socket of pair) {
      // A broken connection is what this is for; the other side is broken with it, unless it is not to hear of it.
      socket.on("error", () => undefined);
      socket.on("close", () => {
        living.delete(pair);
        upstream.destroy();
        if (socket === client) dead.delete(client);
        else if (!dead.has(client)) client.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  function find(): void {
    for (const client of dead) client.resetAndDestroy();
    dead.clear();
  }

  return {
    port: (server.address() as AddressInfo).port,
    set(next) {
      mode = next;
    },
    abandon() {
      for (const [client, upstream] of living) {
        dead.add(client);
        upstream.removeAllListeners("data").destroy();
      }
    },
    find,
    async close() {
      find();
      for (const [client] of living) client.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
