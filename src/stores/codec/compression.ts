import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import * as z from "zod";
import type { Codec } from "../../core/codec.ts";
import { readOptional, wholeNumber } from "../../core/input/options.ts";

/** The options of `compression()`. */
export interface CompressionOptions {
  /** Payloads of up to this many bytes stay as they are. Defaults to 1,000. */
  readonly aboveBytes?: number | undefined;
  /** How much work goes into a smaller payload, from 1 to 9. Defaults to 6. */
  readonly level?: number | undefined;
  /**
   * The most bytes of a decompressed payload. Larger payloads cannot be decoded, which protects against forged ones.
   * Defaults to 256,000,000.
   */
  readonly maxBytes?: number | undefined;
}

const OPTIONS = z.strictObject({
  aboveBytes: wholeNumber(0, 512_000_000, "bytes").optional(),
  level: wholeNumber(1, 9, "steps").optional(),
  maxBytes: wholeNumber(1, 2_000_000_000, "bytes").optional(),
});
const compress = promisify(gzip);
const decompress = promisify(gunzip);

/**
 * Compresses payloads with gzip. A payload that would not become smaller stays as it is. Put it before `encryption()`,
 * because encrypted bytes cannot be compressed.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function compression(options?: CompressionOptions): Codec {
  const read = readOptional("compression()", OPTIONS, options);
  const { aboveBytes = 1_000, level = 6, maxBytes = 256_000_000 } = read;
  return {
    name: "gzip",
    async encode(bytes) {
      if (bytes.length <= aboveBytes) return undefined;
      const compressed = await compress(bytes, { level });
      return compressed.length < bytes.length ? { bytes: compressed } : undefined;
    },
    decode: (bytes) => decompress(bytes, { maxOutputLength: maxBytes }),
  };
}
