/**
 * Decodes compressed responses for the bucket that reads them. The client still gets the original
 * bytes.
 */
import { Duplex, pipeline, type Transform } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
} from "node:zlib";
import type { Tap } from "../../../throttle/wrap/response-stream.ts";

/** Creates a decoder for one response. */
export type Decode = () => Duplex;

/** Accept an empty or incomplete body. The bucket then reads the part that exists. */
const ZLIB = { finishFlush: constants.Z_SYNC_FLUSH };
const BROTLI = { finishFlush: constants.BROTLI_OPERATION_FLUSH };

/**
 * A map instead of an object, because upstreams choose the names, and an object also has inherited
 * names.
 */
const DECODERS: ReadonlyMap<string, Decode> = new Map<string, Decode>([
  ["gzip", () => createGunzip(ZLIB)],
  ["x-gzip", () => createGunzip(ZLIB)],
  ["deflate", () => Duplex.from(inflate)],
  ["br", () => createBrotliDecompress(BROTLI)],
]);

/**
 * Returns the decoder of an encoding. Returns undefined for an encoding that the bucket cannot
 * read.
 */
export function decoderOf(encoding: string | undefined): Decode | undefined {
  return encoding === undefined ? undefined : DECODERS.get(encoding.trim().toLowerCase());
}

/**
 * Decodes data with and without a zlib header, because some servers omit the header (RFC 9110
 * §8.4.1.2).
 */
async function* inflate(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const chunks = body[Symbol.asyncIterator]();
  const { done, value: first } = await chunks.next();
  if (done === true) return;
  const hasHeader = (first[0]! & 0x0f) === 0x08;
  const decoder: Transform = hasHeader ? createInflate(ZLIB) : createInflateRaw(ZLIB);
  decoder.write(first);
  const rest = { [Symbol.asyncIterator]: () => chunks };
  yield* pipeline(rest, decoder, () => {}) as AsyncIterable<Buffer>;
}

/**
 * Creates a tap that receives raw bytes and passes decoded bytes to `tap`. If decoding fails, it
 * cuts `tap` off at the end.
 */
export function decodingTap(decode: Decode, tap: Tap): Tap {
  const decoder = decode();
  let finish: (() => void) | undefined;
  let failure: { readonly reason: unknown } | undefined;
  decoder.on("data", (bytes: Buffer) => tap.pass(bytes));
  decoder.on("end", () => finish?.());
  decoder.on("error", (reason) => {
    failure = { reason };
    if (finish !== undefined) tap.cut(reason);
  });
  function end(act: () => void): void {
    finish = act;
    if (failure === undefined) decoder.end();
    else tap.cut(failure.reason);
  }
  return {
    pass(bytes) {
      if (failure === undefined) decoder.write(bytes);
    },
    end: () => end(() => tap.end()),
    cut: (reason) => end(() => tap.cut(reason)),
  };
}
