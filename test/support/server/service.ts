import { request, type IncomingHttpHeaders } from "node:http";
import { afterEach } from "vitest";
import type { Sluice } from "sluice";
import { createServer, type ServerOptions, type SluiceServer } from "sluice/server";

/** What a server answered. */
interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** What the body says, as JSON. */
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any;
  readonly text: string;
}

interface Asking {
  readonly answer: Promise<Answered>;
  hangUp(): void;
}

export interface Service {
  readonly url: string;
  /** Where gRPC is; empty without it. */
  readonly grpc: string;
  readonly server: SluiceServer;
  ask(path: string, body?: unknown, headers?: Record<string, string>): Asking;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answered>;
  get(path: string, headers?: Record<string, string>): Promise<Answered>;
}

/** Servers of this test file, on ports of their own; they end with their test. */
export function services(): {
  start(sluice: Sluice, options?: ServerOptions): Promise<Service>;
} {
  const started: SluiceServer[] = [];
  afterEach(async () => {
    await Promise.all(started.splice(0).map((server) => server.close()));
  });
  return {
    async start(sluice, options = {}) {
      const own = options.tokens === undefined ? { insecureLocal: true } : {};
      const server = await createServer(sluice, { port: 0, logger: false, ...own, ...options });
      started.push(server);
      const { url, grpc = "" } = await server.listen();
      const ask: Service["ask"] = (path, body, headers) =>
        askHttp(`${url}${path}`, "POST", body, headers);
      return {
        url,
        grpc,
        server,
        ask,
        post: (path, body, headers) => ask(path, body, headers).answer,
        get: (path, headers) => askHttp(`${url}${path}`, "GET", undefined, headers).answer,
      };
    },
  };
}

/** Posts to a server of another process. */
export function postTo(url: string): Service["post"] {
  return (path, body, headers) => askHttp(`${url}${path}`, "POST", body, headers).answer;
}

/** A request on a connection of its own, which can be hung up. */
function askHttp(
  url: string,
  method: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Asking {
  const text = typeof body === "string" ? body : body === undefined ? "" : JSON.stringify(body);
  const type: Record<string, string> =
    body === undefined ? {} : { "content-type": "application/json" };
  const sent = request(url, { method, agent: false, headers: { ...type, ...headers } });
  const answer = new Promise<Answered>((resolve, reject) => {
    sent.on("error", reject);
    sent.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("error", reject);
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => {
        const all = Buffer.concat(chunks).toString();
        const isJson = /json/.test(response.headers["content-type"] ?? "");
        const json: unknown = isJson ? JSON.parse(all) : undefined;
        const { statusCode: status = 0, headers: got } = response;
        resolve({ status, headers: got, json, text: all });
      });
    });
  });
  sent.end(text);
  return { answer, hangUp: () => void sent.destroy() };
}
