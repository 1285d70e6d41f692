/** One request on its way to an upstream. */
import type { Readable } from "node:stream";
import type { Dispatcher } from "undici";
import type { Key } from "../../../core/key-path.ts";
import type { Body } from "./body.ts";
import { Incoming } from "./incoming.ts";
import type { Pending } from "./pending.ts";
import type { Connections, UpstreamRequest } from "./pools.ts";
import { UpstreamResponse } from "./response.ts";

/** What the sender of a request knows of it, beside what `fetch` has for it. */
export interface Exchange {
  readonly method: string;
  readonly connections: Connections;
  readonly origin: string;
  readonly path: string;
  readonly headers: string[];
  readonly body: Body;
  /** How long the upstream may be silent: before its answer begins, and within it. */
  readonly timeoutMs: number;
  readonly key: Key | undefined;
  /** Whether the bodies of good answers are read on their way. */
  readonly isRead: boolean;
  readonly pending: Pending;
  /** Whether it has left once. */
  isSent: boolean;
  /** The last answer. */
  answer: UpstreamResponse | undefined;
}

/** What `fetch` of a bucket is given: it passes all of it on to what sends the request. */
export type ExchangeInit = RequestInit & { readonly exchange: Exchange };

/** The methods that do the same when they are sent twice (RFC 9110 §9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]);
/** The connection ended before an answer came. */
const CLOSED: ReadonlySet<string | undefined> = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/**
 * Sends a request to its upstream, in place of the global `fetch`, which would change headers and decode bodies.
 *
 * An upstream may close an idle connection at the moment at which a request is sent on it. Then an idempotent request is
 * sent once more, on a new connection (RFC 9112 §9.3.1).
 */
export function sendExchange({ exchange, signal }: ExchangeInit): Promise<Response> {
  const { connections, method, origin, path, headers, body, isRead, pending } = exchange;
  const { timeoutMs } = exchange;
  exchange.isSent = true;
  pending.isWaiting = false;
  // Another signal is that of a lease, too.
  const isOwn = signal === pending.ending.signal;
  const isRepeatable = IDEMPOTENT.has(method) && (body === undefined || body instanceof Uint8Array);
  const request: UpstreamRequest = {
    method: method as Dispatcher.HttpMethod,
    origin,
    path,
    headers,
    body: (body ?? null) as Uint8Array | Readable | null,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    marks: undefined,
  };

  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);

    function answered(status: number, given: string[], incoming: Incoming): void {
      const facts = { method, status, headers: given, url: origin + path, isRead, pending };
      const answer = new UpstreamResponse(facts, incoming);
      exchange.answer = answer;
      resolve(answer as unknown as Response);
    }

    function createCall(failed: (reason: unknown) => void): Incoming {
      const call = new Incoming({ answered, failed }, isOwn ? undefined : (signal ?? undefined));
      pending.call = isOwn ? call : undefined;
      return call;
    }

    const first = createCall((reason) => {
      const wasStale = first.isOnUsedConnection && isClosed(reason) && signal?.aborted !== true;
      if (wasStale && isRepeatable) connections.sendAnew(request, createCall(reject));
      else reject(reason);
    });
    // Only what may be sent again needs to know its connection.
    if (isRepeatable) request.marks = first;
    connections.send(request, first);
  });
}

function isClosed(reason: unknown): boolean {
  return CLOSED.has((reason as { readonly code?: string } | null)?.code);
}
