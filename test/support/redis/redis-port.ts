import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";

const ANSWER_LIMIT_MS = 1_000;

/** A port that was free a moment ago; whoever listens on it next must be ready to find it taken. */
export async function freePort(host: string): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/**
 * Whether the Redis with this process id answers on the port and has loaded its
 * data. The id matters: on a port that was snatched, a stranger would answer too.
 */
export async function redisAnswers(host: string, port: number, pid: number): Promise<boolean> {
  const socket = connect({ host, port, timeout: ANSWER_LIMIT_MS });
  socket.on("timeout", () => socket.destroy());
  socket.setEncoding("utf8");
  socket.write("PING\r\nINFO server\r\nQUIT\r\n");
  let answer = "";
  try {
    for await (const chunk of socket) answer += chunk;
  } catch {
    return false;
  }
  return answer.startsWith("+PONG") && answer.includes(`\nprocess_id:${pid}\r`);
}
