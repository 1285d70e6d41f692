import { request as httpRequest } from "node:http";
import { afterEach } from "vitest";
import type { Sluice } from "sluice";
import { createServer, type ServerOptions, type SluiceServer } from "sluice/server";

export const VIEW = "view-token-of-this-test";
export const ACT = "act-token-of-this-test";
export const CALL = "call-token-of-this-test";
const TOKENS: NonNullable<ServerOptions["tokens"]> = [
  { token: VIEW, role: "view" },
  { token: ACT, role: "act", name: "ann" },
  { token: CALL, role: "call" },
];

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly text: string;
  /** What the body says, as JSON. */
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any;
}

export interface Asking {
  readonly method?: string;
  readonly token?: string;
  readonly body?: unknown;
  /** Whatever a browser would not let a page set, too. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly socketPath?: string;
}

/** Asks through a socket; `fetch` would not send all of these headers. */
export async function ask(url: string, given: Asking = {}): Promise<Answer> {
  const { token, body, socketPath } = given;
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const headers = {
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { "content-type": "application/json" }),
    ...given.headers,
  };
  const method = given.method ?? (body === undefined ? "GET" : "POST");
  return new Promise((resolve, reject) => {
    const options = { method, headers, agent: false, ...(socketPath && { socketPath }) };
    const asking = httpRequest(url, options, (answer) => {
      let received = "";
      answer.setEncoding("utf8");
      answer.on("data", (chunk: string) => (received += chunk));
      answer.on("error", reject);
      answer.on("end", () => {
        const isJson = /json/.test(answer.headers["content-type"] ?? "");
        const json: unknown = isJson ? JSON.parse(received) : undefined;
        resolve({ status: answer.statusCode!, headers: answer.headers, text: received, json });
      });
    });
    asking.on("error", reject);
    asking.end(text);
  });
}

export interface OpenServers {
  open(sluice: Sluice, options?: ServerOptions): Promise<{ server: SluiceServer; url: string }>;
}

/** Servers on free ports; they are closed after the test, before its sluices are. */
export function openServers(): OpenServers {
  let opened: SluiceServer[] = [];
  afterEach(async () => {
    await Promise.all(opened.map((server) => server.close()));
    opened = [];
  });
  return {
    async open(sluice, options = {}) {
      const tokens = options.insecureLocal === true ? undefined : TOKENS;
      const server = await createServer(sluice, { port: 0, tokens, logger: false, ...options });
      opened.push(server);
      return { server, url: (await server.listen()).url };
    },
  };
}
