import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach } from "vitest";
import { worstWindow } from "sluice/testing";

/** One request, as the API saw it. */
export interface ApiCall {
  /** On this process's monotonic clock. */
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export interface ApiAnswer {
  /** Defaults to 200. */
  readonly status?: number | undefined;
  readonly headers?: Readonly<Record<string, string | string[]>> | undefined;
  readonly body?: string | undefined;
  /** Writes the body by itself, instead of `body`, and ends the response. */
  readonly stream?: ((response: ServerResponse) => void) | undefined;
}

interface LoggedCall extends ApiCall {
  readonly status: number;
}

/** An HTTP server that answers as a test says, and logs each call's arrival. */
export interface FakeApi {
  readonly url: string;
  readonly calls: readonly LoggedCall[];
  /** Those that were answered so. */
  withStatus(status: number): readonly LoggedCall[];
  /** The most calls that any window of this length saw. */
  worst(windowMs: number): number;
}

export interface FakeApis {
  start(answer: (call: ApiCall, number: number) => ApiAnswer): Promise<FakeApi>;
}

/** APIs of this test file; they end with their test. */
export function fakeApis(): FakeApis {
  const closers: (() => Promise<void>)[] = [];
  afterEach(async () => {
    await Promise.all(closers.splice(0).map((close) => close()));
  });

  return {
    async start(answer) {
      const calls: LoggedCall[] = [];
      const server = createServer((request, response) => {
        // A caller that hangs up in the middle of its request has nobody left to answer.
        handle(request, response).catch(() => response.destroy());
      });

      async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
        const atMs = performance.now();
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const { method = "", url: path = "", headers } = request;
        const call = { atMs, method, path, headers, body: Buffer.concat(chunks).toString() };
        const { status = 200, headers: given = {}, body = "", stream } = answer(call, calls.length);
        calls.push({ ...call, status });
        response.writeHead(status, given);
        if (stream === undefined) response.end(body);
        else stream(response);
      }

      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      closers.push(async () => {
        server.closeAllConnections();
        await new Promise<void>((resolve) => server.close(() => resolve()));
      });
      return {
        url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
        calls,
        withStatus: (status) => calls.filter((call) => call.status === status),
        worst: (windowMs) =>
          worstWindow(
            calls.map(({ atMs }) => atMs),
            windowMs,
          ),
      };
    },
  };
}

/** Says of each call whether it is above so many in the last second; those that are do not count. */
export function secondCap(most: number): (call: ApiCall) => boolean {
  const acceptedMs: number[] = [];
  return ({ atMs }) => {
    const before = acceptedMs.at(-most);
    if (before !== undefined && atMs - before < 1_000) return true;
    acceptedMs.push(atMs);
    return false;
  };
}
