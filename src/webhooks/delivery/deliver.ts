/** Sends one request to an endpoint, and reads only the start of the reply. */
import type { IncomingHttpHeaders } from "node:http";
import { Agent, Pool, ProxyAgent, type Dispatcher } from "undici";
import { reasonOf } from "../../core/describe.ts";
import type { Observing } from "../../core/events/observer.ts";
import { readWaitMs } from "../../throttle/feedback/retry-after.ts";
import { createJudge } from "../guard/addresses.ts";
import {
  createConnector,
  SECURE,
  type ClientCertificate,
  type ConnectorTls,
  type Resolve,
} from "../guard/connector.ts";
import { redacted } from "./redact.ts";
import { classOfError, classOfStatus, wordsFor, type Outcome } from "./outcome.ts";

export interface DeliverySettings {
  readonly allow?: readonly string[] | undefined;
  readonly resolve?: Resolve | undefined;
  /** The origin of the receiver of `sluice dev`, which is allowed. */
  readonly devReceiver?: string | undefined;
  /** The URL of an egress proxy. The proxy then decides which targets are allowed. */
  readonly proxy?: string | undefined;
  readonly ca?: string | readonly string[] | undefined;
  readonly connectMs: number;
  readonly observing?: Observing | undefined;
}

interface Delivery {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** The time limit of the request, from the connection to the end of the reply. */
  readonly timeoutMs: number;
  readonly certificate?: ClientCertificate | undefined;
  /** Secrets that the reply may repeat. The log must not show them. */
  readonly hidden?: readonly string[] | undefined;
}

/** The result of one attempt. */
export interface Delivered {
  readonly outcome: Outcome;
  /** The status of the reply; undefined if there was none. */
  readonly status: number | undefined;
  /** The delay that the endpoint requested with `Retry-After`. */
  readonly retryAfterMs: number | undefined;
  readonly durationMs: number;
  /** The start of the reply, as text. */
  readonly answer: string;
  /**
   * The error as the tenant may see it. The text is the same for refused and for blocked
   * connections.
   */
  readonly error: string | undefined;
  /** The error in detail, for the operator only. */
  readonly detail: string | undefined;
}

export interface Deliverer {
  /**
   * Sends a request and never rejects. If the signal is aborted, the request ends with the outcome
   * `"ours"`.
   */
  deliver(delivery: Delivery, signal: AbortSignal): Promise<Delivered>;
  close(): Promise<void>;
}

/** The most bytes of a reply that are read. The connection is then closed. */
export const MOST_READ: number = 16_384;
/** The most bytes of a reply that are stored. */
const MOST_KEPT = 1_024;
/**
 * The most bytes of a reply that are searched for secrets. The extra bytes help to find a secret at
 * the end of the stored part.
 */
const MOST_HELD = MOST_KEPT + 4_096;
const MOST_HEADER_BYTES = 16_384;
/**
 * The most endpoints with a client certificate whose connections stay open. The least recently used
 * connections are closed.
 */
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
    async deliver(delivery, signal) {
      const delivered = await deliver(dispatcherFor(delivery.certificate), delivery, signal);
      settings.observing?.observer
        ?.series("sluice_webhook_attempt_seconds", delivered.outcome)
        .add(delivered.durationMs);
      return delivered;
    },
    async close() {
      await Promise.all([shared, ...certified.values()].map((each) => each.destroy()));
    },
  };
}

function createDispatcher(
  settings: DeliverySettings,
  certificate: ClientCertificate | undefined,
): Dispatcher {
  const { allow, resolve, devReceiver, proxy, ca, connectMs } = settings;
  const tls: ConnectorTls = { ca, ...certificate };
  const bounds = { pipelining: 1, maxHeaderSize: MOST_HEADER_BYTES, allowH2: false };
  if (proxy === undefined) {
    const judge = createJudge(allow);
    const connect = createConnector({ judge, resolve, devReceiver, connectMs, tls });
    return new Agent({ ...bounds, connect });
  }
  const requestTls = Object.fromEntries(
    Object.entries({ ...tls, ...SECURE, timeout: connectMs }).filter(
      ([, value]) => value !== undefined,
    ),
  );
  return new ProxyAgent({
    ...bounds,
    uri: proxy,
    requestTls,
    proxyTls: { timeout: connectMs },
    clientFactory: (origin, options) =>
      createTunnels(origin, { ...options, headersTimeout: connectMs }),
    proxyTunnel: true,
  });
}

/**
 * Distinguishes faults of the proxy from faults behind the proxy. If a proxy closes the connection,
 * undici would otherwise retry as fast as it can until the deadline.
 */
function createTunnels(origin: URL, options: Pool.Options): Pool {
  const pool = new Pool(origin, options);
  const open = pool.connect.bind(pool) as (
    options: Dispatcher.ConnectOptions,
  ) => Promise<Dispatcher.ConnectData>;
  return Object.assign(pool, {
    async connect(target: Dispatcher.ConnectOptions) {
      const tunnel = await open(target).catch((cause: unknown) => {
        throw proxyFault(cause);
      });
      // Some proxies refuse a target with a 407 that lacks this header. Only a 407 with the header
      // rejects the proxy credentials.
      if (tunnel.statusCode !== 407 || !("proxy-authenticate" in tunnel.headers)) return tunnel;
      tunnel.socket.on("error", () => {}).destroy();
      throw proxyFault(new Error("it rejected the credentials"));
    },
  });
}

function proxyFault(cause: unknown): Error {
  const text = `the egress proxy did not open a tunnel: ${reasonOf(cause)}`;
  return Object.assign(new Error(text, { cause }), { code: "EPROXY" });
}

/**
 * Sends one request through a dispatcher and never rejects. The handler receives the reply directly
 * from the parser, because a stream and a signal per request took a tenth of an attempt's time.
 */
export function deliver(
  dispatcher: Dispatcher,
  delivery: Delivery,
  signal: AbortSignal,
): Promise<Delivered> {
  const { url, headers, body, timeoutMs, hidden = [] } = delivery;
  const startedMs = performance.now();
  return new Promise((resolve) => {
    let controller: Dispatcher.DispatchController | undefined;
    let status: number | undefined;
    let retryAfterMs: number | undefined;
    const answer = createStart();
    let isOver = false;

    function end(what: Pick<Delivered, "outcome" | "answer" | "detail">): void {
      if (isOver) return;
      isOver = true;
      clearTimeout(deadline);
      signal.removeEventListener("abort", leave);
      const { outcome } = what;
      const error = outcome === "success" ? undefined : wordsFor(outcome, status);
      resolve({ ...what, status, retryAfterMs, durationMs: performance.now() - startedMs, error });
    }

    function fail(outcome: Outcome, thrown: unknown): void {
      end({ outcome, answer: "", detail: String(thrown) });
    }

    /** Ends the request at any stage, even while the request waits for a connection. */
    function stop(outcome: Outcome, reason: Error): void {
      fail(outcome, reason);
      controller?.abort(reason);
    }

    function complete(): void {
      end({ outcome: classOfStatus(status!), answer: answer.text(hidden), detail: undefined });
    }

    const deadline = setTimeout(() => stop("timeout", new DeadlineError()), timeoutMs);
    const leave = (): void => stop("ours", signal.reason as Error);
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) {
      leave();
      return;
    }
    const { origin, pathname, search } = new URL(url);
    const request: Dispatcher.DispatchOptions = {
      origin,
      // The path is used unchanged. A path that begins with "//" does not name another host.
      path: pathname + search,
      method: "POST",
      headers,
      body,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    };
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart(given) {
        controller = given;
        if (isOver) given.abort(new DeadlineError());
      },
      onResponseStart(answering, code, given) {
        // Ignore informational replies.
        if (code < 200) return;
        status = code;
        retryAfterMs = waitOf(given);
        // A 204 and a 205 have no body. Some servers send a body nevertheless, and a 205 may not
        // say where that body ends.
        if (code === 204 || code === 205) complete();
        if (code === 205) answering.abort(new Error("a 205 has no body"));
      },
      onResponseData(given, chunk) {
        if (!answer.add(chunk)) return;
        complete();
        given.abort(new Error("the rest of the answer is not read"));
      },
      onResponseEnd: complete,
      onResponseError: (_given, error) => fail(classOfError(error), error),
    };
    try {
      dispatcher.dispatch(request, handler);
    } catch (error) {
      fail(classOfError(error), error);
    }
  });
}

/** Signals that the time limit of one attempt is over. */
class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

function waitOf(headers: IncomingHttpHeaders): number | undefined {
  // If the header occurs twice, the longer delay counts.
  const waits = [headers["retry-after"]]
    .flat()
    .flatMap((text) => readWaitMs(text, Date.now()) ?? []);
  return waits.length === 0 ? undefined : Math.max(...waits);
}

/** Collects the start of a reply as it arrives. Compressed data stays compressed. */
function createStart(): {
  /** Adds a chunk. Returns true once enough was read. */
  add(chunk: Buffer): boolean;
  text(hidden: readonly string[]): string;
} {
  const chunks: Buffer[] = [];
  let length = 0;
  return {
    add(chunk) {
      // Copy the chunk, because the parser reuses its memory.
      if (length < MOST_HELD) chunks.push(Buffer.from(chunk.subarray(0, MOST_HELD - length)));
      length += chunk.length;
      return length >= MOST_READ;
    },
    text(hidden) {
      const shown = Buffer.from(redacted(Buffer.concat(chunks), hidden)).subarray(0, MOST_KEPT);
      return printable(shown.toString("utf8"));
    },
  };
}

/** Replaces control characters, so that the text is safe in a log or on a page. */
function printable(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");
}
