/**
 * The response of an upstream, in the form that a bucket reads and in the form that the client
 * receives.
 */
import type { ServerResponse } from "node:http";
import { pipeline, Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import type { FollowedResponse, Tap } from "../../../throttle/wrap/response-stream.ts";
import { decoderOf, decodingTap, type Decode } from "./decode.ts";
import { headerIn, responseHeaders } from "./headers.ts";
import type { Incoming, Sink } from "./incoming.ts";
import type { Pending } from "./pending.ts";

/** Responses with these statuses have no body (RFC 9110 §6.4.1). */
const BODILESS: ReadonlySet<number> = new Set([204, 205, 304]);

export interface AnswerFacts {
  /** The method of the request. */
  readonly method: string;
  readonly status: number;
  /** The headers as received. */
  readonly headers: string[];
  readonly url: string;
  /** Whether the bucket reads the bodies of successful responses while they are forwarded. */
  readonly isRead: boolean;
  /** The client that waits for the response. */
  readonly pending: Pending;
}

/**
 * A minimal Response. A bucket usually reads only the status and the headers, and creating a full
 * Response with a body takes longer than sending the request.
 */
export class UpstreamResponse implements FollowedResponse {
  readonly status: number;
  readonly ok: boolean;
  readonly headers: Headers;
  readonly url: string;
  readonly statusText: string = "";
  readonly redirected: boolean = false;
  readonly type: Response["type"] = "default";
  /** The status as received, which may be above 599. */
  readonly statusCode: number;
  /** The headers for the client. */
  readonly clientHeaders: string[];
  readonly pending: Pending;
  readonly #hasNoBody: boolean;
  readonly #incoming: Incoming;
  readonly #decode: Decode | undefined;
  #whole: Response | undefined;
  #tap: Tap | undefined;

  constructor(facts: AnswerFacts, incoming: Incoming) {
    const { method, status, headers, url, isRead, pending } = facts;
    this.statusCode = status;
    // Use 502, because a Response cannot have a status above 599.
    this.status = status > 599 ? 502 : status;
    this.ok = status >= 200 && status < 300;
    this.url = url;
    this.pending = pending;
    this.#hasNoBody = method === "HEAD" || BODILESS.has(status) || isEmpty(headers);
    // Decode the body, because the bucket reads costs and reasons of rejections from it.
    const isDecoded = (isRead || status >= 400) && !this.#hasNoBody;
    this.#decode = isDecoded ? decoderOf(headerIn(headers, "content-encoding")) : undefined;
    this.clientHeaders = responseHeaders(headers, status);
    this.headers = new Headers(pairsOf(this.clientHeaders));
    this.#incoming = incoming;
  }

  /** True if the bytes can be sent to the client as they arrive. */
  get #canFlow(): boolean {
    return this.#whole === undefined;
  }

  get followBody(): ((tap: Tap) => void) | undefined {
    return this.#canFlow && !this.#hasNoBody ? (tap) => (this.#tap = tap) : undefined;
  }

  /**
   * Sends the body to the client as it arrives. Returns false if the body must be read from `body`.
   */
  flowTo(raw: ServerResponse): boolean {
    if (!this.#canFlow) return false;
    const { isWhole, hasBytes } = this.#incoming;
    // Send the headers now, because the body may take long to arrive.
    if (!isWhole && !hasBytes) raw.flushHeaders();
    this.#incoming.sendTo(new ToClient(raw, this.#incoming, this.#tap));
    return true;
  }

  get body(): ReadableStream<Uint8Array> | null {
    return this.#real.body;
  }

  get bodyUsed(): boolean {
    return this.#whole?.bodyUsed ?? false;
  }

  arrayBuffer(): Promise<ArrayBuffer> {
    return this.#real.arrayBuffer();
  }

  blob(): Promise<Blob> {
    return this.#real.blob();
  }

  bytes(): Promise<Uint8Array> {
    return this.arrayBuffer().then((bytes) => new Uint8Array(bytes));
  }

  /** Returns a decoded copy for the bucket. */
  clone(): Response {
    const copy = this.#real.clone();
    if (this.#decode === undefined || copy.body === null) return copy;
    const { status, headers } = this;
    const body = Readable.fromWeb(copy.body as NodeStream<Uint8Array>);
    return new Response(lazyStream(pipeline(body, this.#decode(), () => {})), { status, headers });
  }

  decoding(tap: Tap): Tap {
    return this.#decode === undefined ? tap : decodingTap(this.#decode, tap);
  }

  formData(): Promise<FormData> {
    return this.#real.formData();
  }

  json(): Promise<unknown> {
    return this.#real.json();
  }

  text(): Promise<string> {
    return this.#real.text();
  }

  get #real(): Response {
    return (this.#whole ??= this.#open());
  }

  #open(): Response {
    const { status, headers } = this;
    if (this.#hasNoBody) return new Response(null, { status, headers });
    const body = readableOf(this.#incoming, this.#tap);
    return new Response(lazyStream(body), { status, headers });
  }
}

// Make `instanceof Response` true.
Object.setPrototypeOf(UpstreamResponse.prototype, Response.prototype);

/** True if the body is empty. An empty body needs no decoder, whatever its encoding header says. */
function isEmpty(headers: readonly string[]): boolean {
  return headerIn(headers, "content-length")?.trim() === "0";
}

function pairsOf(headers: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at < headers.length; at += 2) pairs.push([headers[at]!, headers[at + 1]!]);
  return pairs;
}

/** Sends a response to the client. This is a class because one is created for each response. */
class ToClient implements Sink {
  readonly #raw: ServerResponse;
  readonly #incoming: Incoming;
  readonly #tap: Tap | undefined;

  constructor(raw: ServerResponse, incoming: Incoming, tap: Tap | undefined) {
    this.#raw = raw;
    this.#incoming = incoming;
    this.#tap = tap;
  }

  write(chunk: Buffer): boolean {
    const hasRoom = this.#raw.write(chunk);
    if (!hasRoom) this.#raw.once("drain", () => this.#incoming.resume());
    this.#tap?.pass(chunk);
    return hasRoom;
  }

  end(last?: Buffer): void {
    this.#raw.end(last);
    if (last !== undefined) this.#tap?.pass(last);
    this.#tap?.end();
  }

  fail(reason: unknown): void {
    // Destroy the connection, because a partial response must not look complete.
    this.#raw.destroy();
    this.#tap?.cut(reason);
  }
}

/**
 * Creates a stream of a body that may or may not be read. A tap that observes the body is notified
 * once, when the body ends.
 */
function readableOf(incoming: Incoming, tap: Tap | undefined): Readable {
  let isBegun = false;
  let following = tap;
  function cut(reason: unknown): void {
    following?.cut(reason);
    following = undefined;
  }
  return new Readable({
    read() {
      if (isBegun) return incoming.resume();
      isBegun = true;
      incoming.sendTo({
        write: (chunk) => {
          following?.pass(chunk);
          return this.push(chunk);
        },
        end: (last) => {
          if (last !== undefined) {
            following?.pass(last);
            this.push(last);
          }
          following?.end();
          following = undefined;
          this.push(null);
        },
        fail: (reason) => {
          cut(reason);
          this.destroy(reason as Error);
        },
      });
    },
    destroy(error, done) {
      cut(error);
      incoming.abort(error);
      done(error);
    },
  });
}

/** Creates a web stream that reads nothing from the body until the stream itself is read. */
function lazyStream(body: Readable): ReadableStream<Uint8Array> {
  let reading: AsyncIterator<Uint8Array> | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        reading ??= body[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
        const { done, value } = await reading.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel(reason) {
        body.on("error", () => {});
        body.destroy(reason instanceof Error ? reason : undefined);
      },
    },
    { highWaterMark: 0 },
  );
}
