import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Deliver } from "./deliver.ts";

const DELIVERIES = 20;

/**
 * Delivers to a server of its own a few times. The first call of a process
 * takes about 50 ms longer than its later ones, while fetch is loaded; it would
 * arrive late, together with those that follow it, and overfill their second.
 */
export async function warmUp(deliver: Deliver): Promise<void> {
  const server = createServer((request, response) => {
    request.resume();
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const webhook = { url: `http://127.0.0.1:${port}`, payload: {} };
  const { signal } = new AbortController();
  for (let count = 0; count < DELIVERIES; count++) await deliver(webhook, signal);
  server.close();
  server.closeAllConnections();
}
