/**
 * Decodes compressed responses for the bucket that reads them. The client gets the original bytes.
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

/** A body may be empty or incomplete. The bucket reads the existing part. */
const ZLIB = { finishFlush: constants.Z_SYNC_FLUSH };
const BROTLI = { finishFlush: constants.BROTLI_OPERATION_FLUSH };

/** A map, because upstreams choose the names: an object would also have inherited ones. */
const DECODERS: ReadonlyMap<string, Decode> = new Map<string, Decode>([
  ["gzip", () => createGunzip(ZLIB)],
  ["x-gzip", () => createGunzip(ZLIB)],
  ["deflate", () => Duplex.from(inflate)],
  ["br", () => createBrotliDecompress(BROTLI)],
]);

/** Returns undefined for an encoding that the bucket cannot read. */
export function decoderOf(encoding: string | undefined): Decode | undefined {
  return encoding === undefined ? undefined : DECODERS.get(encoding.trim().toLowerCase());
}

/**
 * Accepts data with and without a zlib header, because some servers omit it (RFC 9110 §8.4.1.2).
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
 * A tap that receives raw bytes and passes on decoded ones. If decoding fails, it cuts `tap` at the
 * end.
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
