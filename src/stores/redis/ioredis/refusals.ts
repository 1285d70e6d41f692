/**
 * Patches ioredis to report why a server refuses a connection.
 *
 * Fault (ioredis 5.11.1): A server with too many clients, or in protected mode, sends the reason
 * and closes the connection. ioredis takes the reason for the reply to one of its own commands, and
 * ignores errors of these commands. Then ioredis emits only the error of its next write: `write
 * EPIPE`.
 * Upstream: no issue known.
 */
import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";

/** Matches the refusal that a server sends before it receives any command. */
const REFUSAL = /^-((?:ERR max number of clients|DENIED )[^\r\n]*)/;

interface Connector {
  connect(respond: unknown): Promise<Socket>;
}

/** Makes a client emit the server's reason for refusing a connection. */
export function nameRefusals(client: Redis | Cluster): void {
  onEachServer(client, (server) => {
    const { connector } = server as unknown as { readonly connector: Connector };
    const connect = connector.connect.bind(connector);
    connector.connect = async (respond) => {
      const stream = await connect(respond);
      hear(stream);
      return stream;
    };
  });
}

function hear(stream: Socket): void {
  const event = "encrypted" in stream ? "secureConnect" : "connect";
  // Sends everything in one write. A second write to a closed connection would fail before the
  // reason is read.
  stream.once(event, () => {
    stream.cork();
    setImmediate(() => stream.uncork());
  });
  stream.once("data", (chunk: Buffer) => {
    const [, words] = REFUSAL.exec(chunk.toString("latin1")) ?? [];
    if (words !== undefined)
      stream.destroy(Object.assign(new Error(words), { name: "ReplyError" }));
  });
}
