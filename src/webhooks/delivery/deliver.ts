/** Sends one request to an endpoint, and reads of its answer no more than it has to. */
import type { IncomingHttpHeaders } from "node:http";
import { Agent, Pool, ProxyAgent, type buildConnector, type Dispatcher } from "undici";
import { readWaitMs } from "../../throttle/feedback/retry-after.ts";
import { createJudge } from "../guard/addresses.ts";
import {
  createConnector,
  type ClientCertificate,
  type ConnectorTls,
  type Resolve,
} from "../guard/connector.ts";
import { classOfError, classOfStatus, wordsFor, type Outcome } from "./outcome.ts";

export interface DeliverySettings {
  readonly allow?: readonly string[] | undefined;
  readonly resolve?: Resolve | undefined;
  /** An egress proxy, which then judges the targets. */
  readonly proxy?: string | undefined;
  readonly ca?: string | readonly string[] | undefined;
  readonly connectMs: number;
}

interface Delivery {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** For all of it: the connection, the request, and the answer to its end. */
  readonly timeoutMs: number;
  readonly certificate?: ClientCertificate | undefined;
}

/** What one attempt came to. */
export interface Delivered {
  readonly outcome: Outcome;
  /** The answer's status; undefined if there was none. */
  readonly status: number | undefined;
  /** How long the endpoint asks to be left alone. */
  readonly retryAfterMs: number | undefined;
  readonly durationMs: number;
  /** The first bytes of the answer, as text. */
  readonly answer: string;
  /** What went wrong, as its tenant may see it: the same for what is refused and what is blocked. */
  readonly error: string | undefined;
  /** What went wrong, for the operator alone. */
  readonly detail: string | undefined;
}

export interface Deliverer {
  /** Never rejects. An aborted signal ends it as a fault of ours. */
  deliver(delivery: Delivery, signal: AbortSignal): Promise<Delivered>;
  close(): Promise<void>;
}

/** What of an answer is read. The rest stays on the wire, and its connection ends. */
export const MOST_READ: number = 16_384;
/** What of it is kept. */
const MOST_KEPT = 1_024;
const MOST_HEADER_BYTES = 16_384;
/** Endpoints with a client certificate have connections of their own; those of the ones used longest ago are ended. */
const MOST_CERTIFICATES = 100;

export function createDeliverer(settings: DeliverySettings): Deliverer {
  const shared = createDispatcher(settings, undefined);
  const certified = new Map<string, Dispatcher>();

  function dispatcherFor(certificate: ClientCertificate | undefined): Dispatcher {
    if (certificate === undefined) return shared;
    const name = `${certificate.cert}${certificate.key}`;
    const dispatcher = certified.get(name) ?? createDispatcher(settings, certificate);
    certified.delete(name);
    certified.set(name, dispatcher);
    const [oldest] = certified.keys();
    if (certified.size > MOST_CERTIFICATES && oldest !== undefined) {
      void certified.get(oldest)!.close();
      certified.delete(oldest);
    }
    return dispatcher;
  }

  return {
    deliver: (delivery, signal) => deliver(dispatcherFor(delivery.certificate), delivery, signal),
    async close() {
      await Promise.all([shared, ...certified.values()].map((each) => each.destroy()));
    },
  };
}

function createDispatcher(
  settings: DeliverySettings,
  certificate: ClientCertificate | undefined,
): Dispatcher {
  const { allow, resolve, proxy, ca, connectMs } = settings;
  const tls: ConnectorTls = { ca, ...certificate };
  const bounds = { pipelining: 1, maxHeaderSize: MOST_HEADER_BYTES, allowH2: false };
  if (proxy === undefined) {
    const connect = createConnector({ judge: createJudge(allow), resolve, connectMs, tls });
    return new Agent({ ...bounds, connect });
  }
  const requestTls = Object.fromEntries(
    Object.entries({ ...tls, minVersion: "TLSv1.2", timeout: connectMs }).filter(
      ([, value]) => value !== undefined,
    ),
  );
  return new ProxyAgent({
    ...bounds,
    uri: proxy,
    requestTls,
    proxyTls: { timeout: connectMs },
    clientFactory: (origin, options) => new Pool(origin, markProxy(options as Pool.Options)),
    proxyTunnel: true,
  });
}

/** Tells what goes wrong on the way to the proxy from what goes wrong behind it. */
function markProxy(options: Pool.Options): Pool.Options {
  const connect = options.connect as buildConnector.connector;
  return {
    ...options,
    connect: (target, callback) =>
      connect(target, (...[error, socket]) => {
        if (error === null) callback(null, socket);
        else
          callback(
            Object.assign(new Error(PROXY_AWAY, { cause: error }), { code: "EPROXY" }),
            null,
          );
      }),
  };
}

const PROXY_AWAY = "the egress proxy cannot be reached";

/** Sends one request through a dispatcher. Never rejects. */
export async function deliver(
  dispatcher: Dispatcher,
  delivery: Delivery,
  signal: AbortSignal,
): Promise<Delivered> {
  const { url, headers, body, timeoutMs } = delivery;
  const startedMs = performance.now();
  const ending = new AbortController();
  const deadline = setTimeout(() => ending.abort(new DeadlineError()), timeoutMs);
  const end = (): void => ending.abort(signal.reason);
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();
  let status: number | undefined;
  let retryAfterMs: number | undefined;
  try {
    const { origin, pathname, search } = new URL(url);
    const answered = await dispatcher.request({
      origin,
      // As it is: a path that begins with "//" names no other host.
      path: pathname + search,
      method: "POST",
      headers,
      body,
      signal: ending.signal,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    });
    status = answered.statusCode;
    retryAfterMs = waitOf(answered.headers);
    const answer = await readStart(answered.body, ending.signal);
    const outcome = classOfStatus(status);
    const error = outcome === "success" ? undefined : wordsFor(outcome, status);
    const durationMs = performance.now() - startedMs;
    return { outcome, status, retryAfterMs, durationMs, answer, error, detail: undefined };
  } catch (thrown) {
    const isOurs = signal.aborted;
    const outcome = isOurs
      ? "ours"
      : classOfError(ending.signal.aborted ? ending.signal.reason : thrown);
    return {
      outcome,
      status,
      retryAfterMs,
      durationMs: performance.now() - startedMs,
      answer: "",
      error: wordsFor(outcome, status),
      detail: String(thrown),
    };
  } finally {
    clearTimeout(deadline);
    signal.removeEventListener("abort", end);
  }
}

/** The time for one attempt is over. */
class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

function waitOf(headers: IncomingHttpHeaders): number | undefined {
  return readWaitMs(headers["retry-after"], Date.now());
}

/** Reads the start of an answer as it comes. What is compressed stays so: nothing here makes it larger. */
async function readStart(
  body: Dispatcher.ResponseData["body"],
  signal: AbortSignal,
): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    length += chunk.length;
    // Leaving the loop destroys the body, and its connection.
    if (length >= MOST_READ) break;
  }
  signal.throwIfAborted();
  const start = Buffer.concat(chunks).subarray(0, MOST_KEPT);
  return printable(start.toString("utf8"));
}

/** Text for a log or a page: control characters are shown as such. */
function printable(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");
}
