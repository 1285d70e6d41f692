/**
 * Patch of ioredis: why a server refuses a connection.
 *
 * Fault (ioredis 5.11.1): a server with too many clients, or in protected mode, sends the reason
 * and closes the connection. ioredis takes the reason for the reply to one of its own commands,
 * whose errors it ignores. It then emits the error of its next write: `write EPIPE`. Upstream: no
 * issue known.
 */
import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";

/** The reason that a server sends before any command. */
const REFUSAL = /^-((?:ERR max number of clients|DENIED )[^\r\n]*)/;

interface Connector {
  connect(respond: unknown): Promise<Socket>;
}

/** Makes a client emit the reason for which its server refuses a connection. */
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
  // Sends one write: a second one to a closed server would fail before the reason is read.
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
