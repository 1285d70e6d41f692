import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";

/** A sentinel of its own mind: it knows one primary, and tells when it is told to. */
export interface FakeSentinel {
  readonly port: number;
  /** How many ask for the primary and were not answered yet. */
  readonly asking: number;
  /** How many listen for a failover. */
  readonly listening: number;
  /** From now on who asks for the primary is kept waiting. */
  hold(): void;
  /** Answers all who wait, and from now on at once. */
  answer(): void;
  /** Tells who listens that there is a new primary. */
  announce(): void;
  close(): Promise<void>;
}

const CHANNEL = "+switch-master";

export async function startFakeSentinel(primaryPort: number): Promise<FakeSentinel> {
  const primary = bulks(["127.0.0.1", String(primaryPort)]);
  const sockets = new Set<Socket>();
  const listeners = new Set<Socket>();
  const asking = new Set<Socket>();
  let isHolding = false;

  function reply(socket: Socket, command: string): void {
    if (/get-master-addr/i.test(command)) {
      if (isHolding) asking.add(socket);
      else socket.write(primary);
    } else if (/subscribe/i.test(command)) {
      listeners.add(socket);
      socket.write(`*3\r\n${bulk("subscribe")}${bulk(CHANNEL)}:1\r\n`);
    } else if (/sentinels/i.test(command)) socket.write("*0\r\n");
    else socket.write("+OK\r\n");
  }

  const server = createServer((socket) => {
    sockets.add(socket);
    // Clients break connections as they like.
    socket.on("error", () => undefined);
    socket.once("close", () => {
      for (const each of [sockets, listeners, asking]) each.delete(socket);
    });
    socket.setEncoding("utf8");
    socket.on("data", (text: string) => {
      // Each command is a list, which begins so.
      for (const command of text.split(/\*\d+\r\n/).slice(1)) reply(socket, command);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    port: (server.address() as AddressInfo).port,
    get asking() {
      return asking.size;
    },
    get listening() {
      return listeners.size;
    },
    hold: () => void (isHolding = true),
    answer() {
      isHolding = false;
      for (const socket of asking) socket.write(primary);
      asking.clear();
    },
    announce() {
      for (const socket of listeners) socket.write(bulks(["message", CHANNEL, "a new primary"]));
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

function bulk(text: string): string {
  return `$${text.length}\r\n${text}\r\n`;
}

function bulks(texts: readonly string[]): string {
  return `*${texts.length}\r\n${texts.map(bulk).join("")}`;
}
