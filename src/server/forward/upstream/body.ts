import type { IncomingMessage } from "node:http";
import { PassThrough, type Readable } from "node:stream";
import { hungUp } from "../../decide/caller.ts";

/** A longer body is not kept: it is sent once, to one upstream, and its cost is not read. */
const MOST_KEPT_BYTES = 1_048_576;

/** The body of a request. A short one is complete, so that it can be sent again. */
export type Body = Uint8Array<ArrayBuffer> | Readable | undefined;

/**
 * Reads a short body; a long one stays a stream. Rejects if the client disconnects before the end.
 */
export function readBody(request: IncomingMessage): Promise<Body> | Body {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (encoding === undefined && (length === undefined || length === "0")) return undefined;
  if (Number(length) > MOST_KEPT_BYTES) return streamOf(request);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    function keep(chunk: Buffer): void {
      chunks.push(chunk);
      size += chunk.length;
      if (size <= MOST_KEPT_BYTES) return;
      stop();
      request.pause();
      request.unshift(Buffer.concat(chunks));
      resolve(streamOf(request));
    }
    function end(): void {
      stop();
      resolve((chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)) as Buffer<ArrayBuffer>);
    }
    function close(): void {
      stop();
      reject(hungUp());
    }
    function stop(): void {
      request.off("data", keep).off("end", end).off("close", close);
    }
    request.on("data", keep).on("end", end).on("close", close);
  });
}

/**
 * A separate stream, because undici destroys the body of a request that got an early response or
 * failed. A destroyed request of Node's server would block its connection, since nothing reads the
 * rest of the body.
 */
function streamOf(request: IncomingMessage): Readable {
  const body = new PassThrough();
  // The request to the upstream reports the error of its body.
  body.on("error", () => {});
  request.pipe(body);
  // The end of the pipe pauses the request.
  body.once("close", () => request.resume());
  request.once("close", () => {
    if (!request.readableEnded) body.destroy(hungUp());
  });
  return body;
}
