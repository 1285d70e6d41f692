import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** A downstream that answers each call 429, with a Retry-After that the call asks for in `x-ask`. */
export async function startRetryAfterServer(): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const ask = Buffer.from(String(request.headers["x-ask"]), "base64").toString();
    request.resume();
    // Past the checks of Node, which a hostile server does not make.
    response.socket?.end(
      `HTTP/1.1 429 Too Many Requests\r\nRetry-After: ${ask}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`,
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
