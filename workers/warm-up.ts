import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const CALLS = 20;

/**
 * Makes a few calls to a server of its own, which answers `{}`; how they end does not matter.
 * The first call of a process takes about 50 ms longer than its later ones, while fetch is loaded;
 * it would arrive late, together with those that follow it, and overfill their second.
 */
export async function warmUp(call: (url: string) => Promise<unknown>): Promise<void> {
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("content-type", "application/json").end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  for (let count = 0; count < CALLS; count++) await call(url).catch(() => undefined);
  server.close();
  server.closeAllConnections();
}
