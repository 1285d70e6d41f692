import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface StandInCall {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export interface StandInAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** The parts of the body; the server sends each in a separate write. */
  readonly body: readonly string[];
}

/** A local server that replaces a remote API. */
export interface StandIn {
  readonly url: string;
  close(): Promise<void>;
}

export function json(status: number, value: unknown): StandInAnswer {
  const headers = { "content-type": "application/json" };
  return { status, headers, body: [JSON.stringify(value)] };
}

export async function startStandIn(answer: (call: StandInCall) => StandInAnswer): Promise<StandIn> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      return; // The caller has hung up.
    }
    const { method = "", url: path = "", headers } = request;
    const reply = answer({ method, path, headers, body: Buffer.concat(chunks).toString() });
    response.writeHead(reply.status, reply.headers);
    for (const piece of reply.body) response.write(piece);
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
