/** One request to an upstream. */
import type { Readable } from "node:stream";
import type { Dispatcher } from "undici";
import type { Key } from "../../../core/key-path.ts";
import type { Body } from "./body.ts";
import { Incoming } from "./incoming.ts";
import type { Pending } from "./pending.ts";
import type { Connections, UpstreamRequest } from "./pools.ts";
import { UpstreamResponse } from "./response.ts";

/** The data of a request for which `fetch` has no parameter. */
export interface Exchange {
  readonly method: string;
  /** Where the request is sent. For a pool, that of the member of the slot. */
  address: {
    readonly connections: Connections;
    readonly origin: string;
    readonly path: string;
    readonly headers: string[];
  };
  /** Returns the address of a member of a pool. */
  readonly addressOf: (member: string) => Exchange["address"];
  readonly body: Body;
  /** How long the upstream may send nothing, before and during its response. */
  readonly timeoutMs: number;
  readonly key: Key | undefined;
  /** Whether the bucket reads the bodies of successful responses while they are forwarded. */
  readonly isRead: boolean;
  readonly pending: Pending;
  /** True once the request was sent. */
  isSent: boolean;
  /** The last response to this request. */
  answer: UpstreamResponse | undefined;
}

/** The argument of a bucket's `fetch`. The bucket passes it on to `sendExchange`. */
export type ExchangeInit = RequestInit & { readonly exchange: Exchange };

/** Methods of requests that may be repeated safely (RFC 9110 §9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set(["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]);
/** Error codes of a connection that ended before a response. */
const CLOSED: ReadonlySet<string | undefined> = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/**
 * Sends a request to its upstream. The global `fetch` would change headers and decode bodies.
 *
 * An upstream may close an idle connection just when a request is sent on it. An idempotent request
 * is then sent again on a new connection (RFC 9112 §9.3.1).
 */
export function sendExchange({ exchange, signal }: ExchangeInit): Promise<Response> {
  const { method, body, isRead, pending } = exchange;
  const { connections, origin, path, headers } = exchange.address;
  const { timeoutMs } = exchange;
  exchange.isSent = true;
  pending.isWaiting = false;
  // Any other signal is also aborted by a lease, so the call must listen to that signal.
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
    // Only repeatable requests must know whether their connection was used before.
    if (isRepeatable) request.marks = first;
    connections.send(request, first);
  });
}

function isClosed(reason: unknown): boolean {
  return CLOSED.has((reason as { readonly code?: string } | null)?.code);
}
