import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { worstWindow } from "./worst-window.ts";

export interface FakeDownstreamOptions {
  /**
   * The most calls in any one second. Further calls get a 429 with `Retry-After: 1`. Defaults to no
   * cap.
   */
  readonly maxPerSecond?: number | undefined;
  /**
   * Returns by how many ms this process may notice a call late, for example because it was blocked.
   * The calls of one second may then be closer together by this much. `worst()` uses the times at
   * which calls were noticed. Defaults to 0.
   */
  readonly seenLateMs?: (() => number) | undefined;
  /** How long each response takes, in ms. Defaults to 0. */
  readonly latencyMs?: number | undefined;
  /**
   * Returns the response to a call, or only its status. Returns undefined to send the default
   * response.
   */
  readonly answer?: ((arrival: Arrival) => number | FakeAnswer | undefined) | undefined;
  /**
   * Whether the log stores the bodies of calls, which can need a lot of memory. Defaults to true.
   */
  readonly keepBodies?: boolean | undefined;
  /** The port on which the server listens. Defaults to a free port. */
  readonly port?: number | undefined;
}

/** The response to a call. */
export interface FakeAnswer {
  readonly status: number;
  /**
   * The response headers, such as `{ "retry-after": "7" }`. Defaults to no headers, and for a 429
   * to `Retry-After: 1`.
   */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The response body. Defaults to an empty body. */
  readonly body?: string | undefined;
}

/** One call that the fake downstream received. */
export interface Arrival {
  /** The time of arrival in ms, on the downstream's monotonic clock. */
  readonly atMs: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The request body. Empty if bodies are not stored. */
  readonly body: string;
  /** The status of the response. */
  readonly status: number;
}

/** An HTTP server that logs the arrival of each call, for testing a rate limiter. */
export interface FakeDownstream {
  readonly url: string;
  readonly arrivals: readonly Arrival[];
  /** The number of calls that were answered with 429. */
  readonly refused: number;
  /** Returns the most calls in any window of this length. */
  worst(windowMs: number): number;
  close(): Promise<void>;
}

/** Starts a fake downstream that listens on 127.0.0.1. */
export async function startFakeDownstream(
  options: FakeDownstreamOptions = {},
): Promise<FakeDownstream> {
  const { maxPerSecond = Infinity, latencyMs = 0, answer, keepBodies = true, port = 0 } = options;
  const { seenLateMs = () => 0 } = options;
  const arrivals: Arrival[] = [];
  const accepted: number[] = [];
  let refused = 0;

  function statusAt(atMs: number): number {
    const secondAgo = accepted.at(-maxPerSecond);
    if (secondAgo !== undefined && atMs - secondAgo < 1_000 - seenLateMs()) return 429;
    accepted.push(atMs);
    return 200;
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const atMs = performance.now();
    const capped = maxPerSecond === Infinity ? 200 : statusAt(atMs);
    const chunks: Buffer[] = [];
    for await (const chunk of request) if (keepBodies) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const { url: path = "/", headers } = request;
    const seen = { atMs, path, headers, body, status: capped };
    const { status, headers: given, body: text } = asAnswer(answer?.(seen) ?? capped);
    arrivals.push({ ...seen, status });
    if (status === 429) refused += 1;
    const reply = (): void => {
      response.writeHead(status, given ?? (status === 429 ? { "retry-after": "1" } : {})).end(text);
    };
    if (latencyMs > 0) setTimeout(reply, latencyMs);
    else reply();
  }

  const server = createServer((request, response) => {
    // If the caller disconnects during its request, no response is sent.
    handle(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const address = server.address() as AddressInfo;

  return {
    url: `http://127.0.0.1:${address.port}`,
    arrivals,
    get refused() {
      return refused;
    },
    worst: (windowMs) =>
      worstWindow(
        arrivals.map(({ atMs }) => atMs),
        windowMs,
      ),
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

function asAnswer(answer: number | FakeAnswer): FakeAnswer {
  return typeof answer === "number" ? { status: answer } : answer;
}
