import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { worstWindow } from "./worst-window.ts";

export interface FakeDownstreamOptions {
  /** Calls above this many in any one second are answered 429 with `Retry-After: 1`. Defaults to no cap. */
  readonly maxPerSecond?: number | undefined;
  /**
   * How many ms late this process may see a call, as after it stood still. Calls of one second are then
   * allowed to come within that much less. `worst()` reports the times that were seen. Defaults to 0.
   */
  readonly seenLateMs?: (() => number) | undefined;
  /** How long each answer takes, in ms. Defaults to 0. */
  readonly latencyMs?: number | undefined;
  /** Answers a call if it returns an answer, or the status of one. */
  readonly answer?: ((arrival: Arrival) => number | FakeAnswer | undefined) | undefined;
  /** Whether the log keeps the bodies of calls; many calls need a lot of memory. Defaults to true. */
  readonly keepBodies?: boolean | undefined;
  /** The port to listen on. Defaults to a free one. */
  readonly port?: number | undefined;
}

/** The answer to a call. */
export interface FakeAnswer {
  readonly status: number;
  /** `{ "retry-after": "7" }`. Defaults to none, and for a 429 to `Retry-After: 1`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Defaults to an empty one. */
  readonly body?: string | undefined;
}

/** One call, as the downstream saw it. */
export interface Arrival {
  /** On the downstream's monotonic clock. */
  readonly atMs: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Empty when bodies are not kept. */
  readonly body: string;
  /** The status of the answer. */
  readonly status: number;
}

/** An HTTP server that logs the arrival of each call, to check what a limiter promises. */
export interface FakeDownstream {
  readonly url: string;
  readonly arrivals: readonly Arrival[];
  /** How many calls were answered with 429. */
  readonly refused: number;
  /** The most calls that any window of this length saw. */
  worst(windowMs: number): number;
  close(): Promise<void>;
}

/** Starts a fake downstream on 127.0.0.1. */
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
    // A caller that hangs up in the middle of its request gets no answer.
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
