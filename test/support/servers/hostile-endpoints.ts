/** Endpoints that do what they can to a sender of webhooks, each a server of its own on this machine. */
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { onTestFinished } from "vitest";
import { makeCertificate, type Certificate } from "./certificate.ts";

export interface HostileEndpoint {
  readonly port: number;
  /** How many connections came. */
  readonly came: number;
  /** How many bytes it could write in all. */
  readonly written: number;
  /** How many connections are open. */
  readonly open: number;
}

type Behave = (socket: Socket, end: AbortSignal) => void;

const OK = "HTTP/1.1 200 OK\r\n";
const CHUNK = "x".repeat(64 * 1_024);

/** Goes on with the same, some of it every few ms. */
function endless(head: string, more: string): Behave {
  return (socket, end) => {
    socket.write(head);
    const goOn = setInterval(() => socket.write(more.repeat(100)), 5);
    end.addEventListener("abort", () => clearInterval(goOn));
  };
}

const BEHAVIOURS: Readonly<Record<string, Behave>> = {
  "an endless body"(socket) {
    socket.write(`${OK}content-length: 999999999999\r\n\r\n`);
    const more = (): void => {
      while (socket.writable && socket.write(CHUNK));
    };
    socket.on("drain", more);
    more();
  },
  "a gzip bomb"(socket) {
    const bomb = gzipSync(Buffer.alloc(200_000_000));
    const head = `${OK}content-encoding: gzip\r\ncontent-length: ${bomb.length}\r\n\r\n`;
    socket.write(head);
    socket.write(bomb);
  },
  "a slow drip"(socket, end) {
    socket.write(`${OK}content-length: 1000\r\n\r\n`);
    const drip = setInterval(() => socket.write("x"), 20);
    end.addEventListener("abort", () => clearInterval(drip));
  },
  "a slow head"(socket, end) {
    socket.write(OK);
    const drip = setInterval(() => socket.write("x-a: b\r\n"), 20);
    end.addEventListener("abort", () => clearInterval(drip));
  },
  silence() {},
  "200 after the deadline"(socket, end) {
    const late = setTimeout(() => socket.end(`${OK}content-length: 0\r\n\r\n`), 600);
    end.addEventListener("abort", () => clearTimeout(late));
  },
  "10,000 headers"(socket) {
    const headers = Array.from({ length: 10_000 }, (_, at) => `x-${at}: ${at}\r\n`);
    socket.write(`${OK}${headers.join("")}\r\n`);
  },
  "a reset"(socket) {
    socket.resetAndDestroy();
  },
  "a reset in the middle of the answer"(socket) {
    socket.write(`${OK}content-length: 1000\r\n\r\nhalf`, () => socket.resetAndDestroy());
  },
  "an end without an answer"(socket) {
    socket.end();
  },
  "what is no HTTP"(socket) {
    socket.end("220 mail.example.com ESMTP\r\n");
  },
  "HTTP/1.0 without a length"(socket) {
    socket.end("HTTP/1.0 200 OK\r\n\r\nfine");
  },
  "204 and a body": (socket) => void socket.write(`HTTP/1.1 204 OK\r\ncontent-length: 2\r\n\r\nok`),
  "205 without an end": (socket) => void socket.write("HTTP/1.1 205 Reset\r\n\r\n"),
  "two answers": (socket) => void socket.end(`${OK}content-length: 0\r\n\r\n`.repeat(2)),
  "two lengths": (socket) =>
    void socket.write(`${OK}content-length: 2\r\ncontent-length: 5\r\n\r\nok`),
  "a length and chunks": (socket) =>
    void socket.write(`${OK}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`),
  "another protocol": (socket) =>
    void socket.write("HTTP/1.1 101 Other\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
  "100 Continue without end": endless("", "HTTP/1.1 100 Continue\r\n\r\n"),
  "103 Early Hints without end": endless("", "HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n"),
  "a header without end": endless(`${OK}x-a: `, "x"),
  "trailers without end": endless(
    `${OK}transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n`,
    "x-a: b\r\n",
  ),
  "a chunk's head without end": endless(`${OK}transfer-encoding: chunked\r\n\r\n1;`, "a=b;"),
};

/** Starts one; it ends after the test. */
export async function startHostile(name: string): Promise<HostileEndpoint> {
  return serve(createServer(), BEHAVIOURS[name]!);
}

/** One that answers each request with this text. */
export async function startAnswering(answer: string): Promise<HostileEndpoint> {
  return serve(createServer(), (socket) => void socket.end(answer));
}

/** One whose certificate is for 127.0.0.1 alone. */
export async function startTls(
  answer: string,
  { asks = false }: { readonly asks?: boolean } = {},
): Promise<HostileEndpoint & { readonly certificate: Certificate }> {
  const certificate = await makeCertificate();
  onTestFinished(() => certificate.remove());
  const { certFile, keyFile } = certificate;
  const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)]);
  const server = createTlsServer({ cert, key, ca: cert, requestCert: asks });
  const started = await serve(server, (socket) => void socket.end(answer), "secureConnection");
  return Object.assign(started, { certificate });
}

async function serve(
  server: Server,
  behave: Behave,
  event: "connection" | "secureConnection" = "connection",
): Promise<HostileEndpoint> {
  const sockets = new Set<Socket>();
  let came = 0;
  let writtenBefore = 0;
  server.on("connection", () => (came += 1));
  server.on(event, (socket: Socket) => {
    sockets.add(socket);
    const ending = new AbortController();
    socket.on("error", () => {});
    socket.on("close", () => {
      ending.abort();
      sockets.delete(socket);
      writtenBefore += socket.bytesWritten;
    });
    socket.once("data", () => behave(socket, ending.signal));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  });
  const { port } = server.address() as AddressInfo;
  return {
    port,
    get came() {
      return came;
    },
    get written() {
      return [...sockets].reduce((sum, { bytesWritten }) => sum + bytesWritten, writtenBefore);
    },
    get open() {
      return sockets.size;
    },
  };
}
