import type { IncomingMessage } from "node:http";
import { PassThrough, type Readable } from "node:stream";
import { hungUp } from "../../decide/caller.ts";

/**
 * The most bytes of a body that are kept. A longer body is sent only once, to one upstream, and its
 * cost is not read.
 */
const MOST_KEPT_BYTES = 1_048_576;

/** The body of a request. A short body is complete, so that it can be sent again. */
export type Body = Uint8Array<ArrayBuffer> | Readable | undefined;

/**
 * Reads a short body; a long body stays a stream. Rejects if the client disconnects before the end
 * of the body.
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
 * Copies the request into a separate stream, because undici destroys the body of a request that
 * failed or got an early response. A destroyed Node request would block its connection, since
 * nothing reads the rest of the body.
 */
function streamOf(request: IncomingMessage): Readable {
  const body = new PassThrough();
  // Ignore this error, because the request to the upstream reports it.
  body.on("error", () => {});
  request.pipe(body);
  // Resume the request, because the end of the pipe pauses it.
  body.once("close", () => request.resume());
  request.once("close", () => {
    if (!request.readableEnded) body.destroy(hungUp());
  });
  return body;
}
