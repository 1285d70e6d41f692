/** One request on its way to an upstream. */
import type { Readable } from "node:stream";
import type { Dispatcher, Pool } from "undici";
import type { Key } from "../../../core/key-path.ts";
import type { Body } from "./body.ts";
import { Incoming } from "./incoming.ts";
import type { Pending } from "./pending.ts";
import { UpstreamResponse } from "./response.ts";

/** What the sender of a request knows of it, beside what `fetch` has for it. */
export interface Exchange {
  readonly method: string;
  readonly pool: Pool;
  readonly origin: string;
  readonly path: string;
  readonly headers: string[];
  readonly body: Body;
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

/** Sends a request to its upstream, in place of the global `fetch`, which would change headers and decode bodies. */
export function sendExchange({ exchange, signal }: ExchangeInit): Promise<Response> {
  const { pool, method, origin, path, headers, body, isRead, pending } = exchange;
  exchange.isSent = true;
  pending.isWaiting = false;
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const asker = {
      answered(status: number, given: string[], incoming: Incoming): void {
        const facts = { status, headers: given, url: origin + path, isRead, pending };
        const answer = new UpstreamResponse(facts, incoming);
        exchange.answer = answer;
        resolve(answer as unknown as Response);
      },
      failed: reject,
    };
    // Another signal is that of a lease, too.
    const isOwn = signal === pending.ending.signal;
    const call = new Incoming(asker, isOwn ? undefined : (signal ?? undefined));
    pending.call = isOwn ? call : undefined;
    const request = {
      method: method as Dispatcher.HttpMethod,
      origin,
      path,
      headers,
      body: (body ?? null) as Uint8Array | Readable | null,
    };
    pool.dispatch(request, call);
  });
}
