import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { createReplier, type ReplyMode } from "../../support/servers/replier.ts";

/** The connection to the proxy. It makes the faults that break no stream; the proxy makes those that do. */
export interface Wire {
  readonly port: number;
  set(mode: ReplyMode): void;
  /** Makes all present connections dead without closing them; new ones work. */
  abandon(): void;
  /** Resets the dead connections, so that clients notice. */
  find(): void;
  close(): Promise<void>;
}

export async function startWire(toPort: number): Promise<Wire> {
  let mode: ReplyMode = "pass";
  const living = new Set<readonly [Socket, Socket]>();
  const dead = new Set<Socket>();

  const server = createServer((client) => {
    client.setNoDelay(true);
    const upstream = connect(toPort, "127.0.0.1").setNoDelay(true);
    const pair = [client, upstream] as const;
    living.add(pair);
    client.on("data", (bytes) => upstream.write(bytes));
    const reply = createReplier(client);
    upstream.on("data", (bytes) => reply(bytes, mode));
    for (const socket of pair) {
      // Broken connections are expected. The other side breaks too, unless the connection is meant to be dead.
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
