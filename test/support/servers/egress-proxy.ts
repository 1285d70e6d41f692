/** An HTTP proxy that opens tunnels, and can be told to refuse them. */
import { createServer } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";

export interface EgressProxy {
  readonly url: string;
  /** Where tunnels were asked for. */
  readonly asked: string[];
  /** The status that it refuses with; undefined to open tunnels. */
  refuses: number | undefined;
}

/** Starts one; it ends after the test. */
export async function startEgressProxy(): Promise<EgressProxy> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => sockets.delete(socket));
  };
  const proxy: EgressProxy = { url: "", asked: [], refuses: undefined };
  const server = createServer((_request, response) => {
    // Only tunnels hide a request from who runs the proxy.
    response.writeHead(405).end();
  });
  server.on("connection", keep);
  server.on("connect", (request, client: Socket) => {
    proxy.asked.push(request.url!);
    if (proxy.refuses !== undefined) {
      client.end(`HTTP/1.1 ${proxy.refuses} Refused\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const { hostname, port } = new URL(`http://${request.url!}`);
    const target = connect(Number(port || 80), hostname, () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      target.pipe(client);
      client.pipe(target);
    });
    keep(target);
    target.on("error", () => {
      client.end("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n");
    });
    client.on("close", () => target.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return Object.assign(proxy, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  });
}
