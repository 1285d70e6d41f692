/** Sends one request to an endpoint, and reads of its answer no more than it has to. */
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
  /** An egress proxy, which then judges the targets. */
  readonly proxy?: string | undefined;
  readonly ca?: string | readonly string[] | undefined;
  readonly connectMs: number;
  readonly observing?: Observing | undefined;
}

interface Delivery {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** For all of it: the connection, the request, and the answer to its end. */
  readonly timeoutMs: number;
  readonly certificate?: ClientCertificate | undefined;
  /** What of it an answer may repeat, and no log may have. */
  readonly hidden?: readonly string[] | undefined;
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
/** What of it is looked through before, for secrets that go on where it is cut. */
const MOST_HELD = MOST_KEPT + 4_096;
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
  const { allow, resolve, proxy, ca, connectMs } = settings;
  const tls: ConnectorTls = { ca, ...certificate };
  const bounds = { pipelining: 1, maxHeaderSize: MOST_HEADER_BYTES, allowH2: false };
  if (proxy === undefined) {
    const connect = createConnector({ judge: createJudge(allow), resolve, connectMs, tls });
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
 * Tells what the proxy itself fails at from what goes wrong behind it. Of a proxy that ends the connection, undici would
 * ask again and again until the deadline, as fast as it can.
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
      // Without that header it is how some proxies refuse a target.
      if (tunnel.statusCode !== 407 || !("proxy-authenticate" in tunnel.headers)) return tunnel;
      tunnel.socket.on("error", () => {}).destroy();
      throw proxyFault(new Error("it takes no password, or another one"));
    },
  });
}

function proxyFault(cause: unknown): Error {
  const text = `the egress proxy opens no tunnel: ${reasonOf(cause)}`;
  return Object.assign(new Error(text, { cause }), { code: "EPROXY" });
}

/**
 * Sends one request through a dispatcher. Never rejects. It hears of the answer from the parser itself: a stream and a
 * signal of its own for each request took a tenth of an attempt's time.
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

    /** Ends the request, wherever it is: it may still wait for its connection. */
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
      // As it is: a path that begins with "//" names no other host.
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
        // An answer may be announced first.
        if (code < 200) return;
        status = code;
        retryAfterMs = waitOf(given);
        // Nothing follows them; some servers send a body nevertheless, and a 205 may not say where it ends.
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

/** The time for one attempt is over. */
class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

function waitOf(headers: IncomingHttpHeaders): number | undefined {
  // It may come twice; then the longer one counts.
  const waits = [headers["retry-after"]]
    .flat()
    .flatMap((text) => readWaitMs(text, Date.now()) ?? []);
  return waits.length === 0 ? undefined : Math.max(...waits);
}

/** The start of an answer, as it comes. What is compressed stays so: nothing here makes it larger. */
function createStart(): {
  /** Whether that is enough of it. */
  add(chunk: Buffer): boolean;
  text(hidden: readonly string[]): string;
} {
  const chunks: Buffer[] = [];
  let length = 0;
  return {
    add(chunk) {
      // The parser uses its memory again.
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

/** Text for a log or a page: control characters are shown as such. */
function printable(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/gu, "\ufffd");
}
