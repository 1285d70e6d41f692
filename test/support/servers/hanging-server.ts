import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A downstream that answers nobody until it is told to, and counts who waits. */
export interface HangingServer {
  readonly url: string;
  /** How many calls came in all. */
  readonly came: number;
  /** How many are open now, by the process that they came from. */
  readonly open: ReadonlyMap<string, number>;
  /** The most that were ever open at once. */
  readonly most: number;
  /** Answers all that wait, and from now on at once. */
  release(): void;
  close(): Promise<void>;
}

/** Calls name their process in the header `x-pid`. */
export async function startHangingServer(): Promise<HangingServer> {
  const open = new Map<string, number>();
  const held = new Set<ServerResponse>();
  let came = 0;
  let most = 0;
  let isReleased = false;

  const server = createServer((request, response) => {
    const pid = String(request.headers["x-pid"]);
    came += 1;
    held.add(response);
    open.set(pid, (open.get(pid) ?? 0) + 1);
    most = Math.max(most, held.size);
    response.once("close", () => {
      held.delete(response);
      open.set(pid, open.get(pid)! - 1);
    });
    if (isReleased) response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get came() {
      return came;
    },
    open,
    get most() {
      return most;
    },
    release() {
      isReleased = true;
      for (const response of held) response.end();
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
