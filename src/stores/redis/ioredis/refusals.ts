/**
 * Patch of ioredis: why a server refuses a connection.
 *
 * Fault (ioredis 5.11.1): a server that has too many clients, or runs in protected mode, says so and closes the connection.
 * ioredis takes those words for the answer to a command of its own, whose errors it ignores, and emits what its next write
 * met: `write EPIPE`. Upstream: no issue known.
 */
import type { Socket } from "node:net";
import type { Cluster, Redis } from "ioredis";
import { onEachServer } from "./per-server.ts";

/** What a server says of the connection as a whole, before any command. */
const REFUSAL = /^-((?:ERR max number of clients|DENIED )[^\r\n]*)/;

interface Connector {
  connect(respond: unknown): Promise<Socket>;
}

/** Has a client emit what its server refuses a connection with. */
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
  // One write: a second one to a server that has closed fails before its words are read.
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
