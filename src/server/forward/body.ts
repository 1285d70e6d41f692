import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";

/** A longer body is not kept: it goes to one upstream, once, and its cost is not read. */
const MOST_KEPT_BYTES = 1_048_576;

/** The body of a request: whole, if it is short, so that it can be sent again. */
export type Body = Uint8Array<ArrayBuffer> | Readable | undefined;

/** Reads a body that is short; a long one stays a stream. Rejects when the client hangs up meanwhile. */
export async function readBody(request: IncomingMessage): Promise<Body> {
  const { "content-length": length, "transfer-encoding": encoding } = request.headers;
  if (encoding === undefined && (length === undefined || length === "0")) return undefined;
  if (Number(length) > MOST_KEPT_BYTES) return request;
  const chunks: Buffer[] = [];
  let size = 0;
  const reading = request[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  for (;;) {
    const { done, value } = await reading.next();
    if (done === true) return new Uint8Array(Buffer.concat(chunks));
    chunks.push(value);
    size += value.length;
    if (size > MOST_KEPT_BYTES) return Readable.from(goOn(chunks, reading), { objectMode: false });
  }
}

async function* goOn(
  chunks: readonly Buffer[],
  rest: AsyncIterator<Buffer>,
): AsyncGenerator<Buffer> {
  yield* chunks;
  for (;;) {
    const { done, value } = await rest.next();
    if (done === true) return;
    yield value;
  }
}
