/** One request on its way to an upstream, and the answer on its way back. */
import { pipeline, type Readable } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import type { Agent } from "undici";
import type { Key } from "../../core/key-path.ts";
import { headerIn, responseHeaders } from "./headers.ts";
import type { Body } from "./body.ts";

/** A client that waits: for its slot, or for an answer. */
export interface Pending {
  readonly ending: AbortController;
  /** Whether it waits for a slot: then nothing is lost if it is refused. */
  isWaiting: boolean;
}

/** What the sender of a request knows of it, beside what `fetch` has for it. */
export interface Exchange {
  readonly method: string;
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
  answer: UpstreamAnswer | undefined;
}

/** An answer as it came. */
export interface UpstreamAnswer {
  readonly status: number;
  /** Those that the client gets. */
  readonly headers: string[];
  readonly body: Readable;
  /** The same for the bucket, which reads of it what it needs. */
  readonly response: Response;
  /** Whether some of the body was read through the response: then the rest of it is there. */
  readonly isBegun: () => boolean;
}

/** What `fetch` of a bucket is given: it passes all of it on to what sends the request. */
export type ExchangeInit = RequestInit & { readonly exchange: Exchange };

/** Sends a request to its upstream, in place of the global `fetch`, which would change headers and decode bodies. */
export async function sendExchange(agent: Agent, init: ExchangeInit): Promise<Response> {
  const { exchange, signal } = init;
  const { method, origin, path, headers, body } = exchange;
  exchange.isSent = true;
  exchange.pending.isWaiting = false;
  const {
    statusCode,
    headers: raw,
    body: readable,
  } = await agent.request({
    method: method as "GET",
    origin,
    path,
    headers,
    body: (body ?? null) as Uint8Array | Readable | null,
    signal: signal ?? null,
    responseHeaders: "raw",
  });
  const answer = readAnswer(statusCode, raw as unknown as string[], readable, exchange.isRead);
  exchange.answer = answer;
  return answer.response;
}

const DECODERS = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
} as const;

function readAnswer(
  status: number,
  raw: string[],
  readable: Readable,
  isRead: boolean,
): UpstreamAnswer {
  const encoding = headerIn(raw, "content-encoding")?.trim().toLowerCase() ?? "";
  const decode = DECODERS[encoding as keyof typeof DECODERS];
  // What the bucket reads has to be plain: costs, and what a refusal says.
  const isDecoded = decode !== undefined && (isRead || status >= 400) && !hasNoBody(status);
  const body = isDecoded ? pipeline(readable, decode(), () => {}) : readable;
  const headers = responseHeaders(raw, isDecoded);
  return { status, headers, body, ...responseOf(status, headers, body) };
}

function hasNoBody(status: number): boolean {
  return status === 204 || status === 205 || status === 304;
}

/** A response for the bucket. Of the body nothing is read until somebody does. */
function responseOf(
  status: number,
  headers: readonly string[],
  body: Readable,
): Pick<UpstreamAnswer, "response" | "isBegun"> {
  const init = { status: status < 200 || status > 599 ? 502 : status, headers: pairsOf(headers) };
  if (hasNoBody(status)) return { response: new Response(null, init), isBegun: () => false };
  const { stream, isBegun } = lazyStream(body);
  return { response: new Response(stream, init), isBegun };
}

function pairsOf(headers: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at < headers.length; at += 2) pairs.push([headers[at]!, headers[at + 1]!]);
  return pairs;
}

function lazyStream(body: Readable): {
  readonly stream: ReadableStream<Uint8Array>;
  readonly isBegun: () => boolean;
} {
  let reading: AsyncIterator<Uint8Array> | undefined;
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        reading ??= body[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
        const { done, value } = await reading.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel(reason) {
        body.destroy(reason instanceof Error ? reason : undefined);
      },
    },
    { highWaterMark: 0 },
  );
  return { stream, isBegun: () => reading !== undefined };
}
