import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** How a downstream is away: nobody listens, it resets connections, it never answers, or its proxy says so. */
export type Outage = "refused" | "reset" | "hanging" | 502 | 503 | 504;

/** A downstream that may be away, on a port of its own. */
export interface OutageServer {
  readonly url: string;
  /** The jobs that it has served, by their header `x-job`. */
  readonly served: ReadonlySet<string>;
  /** How many requests came while it was away; of refused connections it knows nothing. */
  readonly missed: number;
  leave(outage: Outage): Promise<void>;
  comeBack(): Promise<void>;
  close(): Promise<void>;
}

export async function startOutageServer(): Promise<OutageServer> {
  const sockets = new Set<Socket>();
  const served = new Set<string>();
  let missed = 0;
  let outage: Outage | undefined;
  let server: Server | undefined;
  let port = 0;

  async function open(): Promise<void> {
    server = createServer((request, response) => {
      if (outage === undefined) {
        served.add(String(request.headers["x-job"]));
        response.end("ok");
        return;
      }
      missed += 1;
      if (outage === "reset") request.socket.resetAndDestroy();
      else if (typeof outage === "number") response.writeHead(outage).end();
    });
    server.on("connection", (socket: Socket) => {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    });
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    ({ port } = server.address() as AddressInfo);
  }

  async function shut(): Promise<void> {
    if (server === undefined) return;
    const closing = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closing;
    server = undefined;
  }

  await open();
  return {
    get url() {
      return `http://127.0.0.1:${port}`;
    },
    served,
    get missed() {
      return missed;
    },
    async leave(how) {
      outage = how;
      if (how === "refused") await shut();
    },
    async comeBack() {
      outage = undefined;
      if (server === undefined) await open();
      // Those who hang must not wait for their own time limit.
      for (const socket of sockets) socket.destroy();
    },
    close: shut,
  };
}
