import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import * as z from "zod";
import type { Codec, PayloadInfo } from "../../core/codec.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";

/** A key of 32 bytes, as bytes or as base64: `openssl rand -base64 32`. */
export type EncryptionKey = string | Uint8Array;

/** The options of `encryption()`. */
export interface EncryptionOptions {
  /**
   * The keys by their ids: `{ current: "k2", k2: process.env.KEY_2, k1: process.env.KEY_1 }`. `current` is the id of the
   * key that encrypts. All keys decrypt. An id has up to 64 letters, digits, `_` and `-`, and Redis stores it as clear
   * text. Give a new key to all processes before it becomes `current`, and keep an old key as long as Redis stores
   * payloads that it encrypted.
   */
  readonly keys: { readonly current: string } & Readonly<Record<string, EncryptionKey>>;
}

const ALGORITHM = "aes-256-gcm";
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const ID = /^[A-Za-z0-9_-]{1,64}$/;
/** The most characters of an id that an error shows. A key has at least 43. */
const LONGEST_SHOWN = 20;
const WHERE = "encryption()";
const EXAMPLE = '{ current: "k1", k1: 32 random bytes as base64, from `openssl rand -base64 32` }';
const OPTIONS = z.strictObject({
  keys: z.record(z.string(), z.union([z.string(), z.instanceof(Uint8Array)]), {
    error: `give keys such as ${EXAMPLE}`,
  }),
});

/**
 * Encrypts payloads with AES-256-GCM. Each payload is bound to its queue and its kind, so an encrypted payload that was
 * copied to another queue, or changed, cannot be decrypted. The stored payload names its key.
 *
 * @throws {@link InvalidOptionError} when a key can never work. The error does not show the keys.
 */
export function encryption(options: EncryptionOptions): Codec {
  const { keys: given } = readOptions(WHERE, OPTIONS, options, () => true);
  const { current, ...others } = given;
  const keys = new Map(Object.entries(others).map(([id, key]) => [id, readKey(id, key)]));
  const key = typeof current === "string" ? keys.get(current) : undefined;
  if (key === undefined) {
    const ids = [...keys.keys()].map(shownId).join(", ") || "none";
    const remedy = `give the id of the key that encrypts, one of the ids in keys: ${ids}`;
    const value = typeof current === "string" ? shownId(current) : "***";
    throw new InvalidOptionError({ where: WHERE, option: "keys.current", value, remedy });
  }

  return {
    name: ALGORITHM,
    encode(bytes, payload) {
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv(ALGORITHM, key, iv).setAAD(boundTo(payload));
      const encrypted = [iv, cipher.update(bytes), cipher.final(), cipher.getAuthTag()];
      return { bytes: Buffer.concat(encrypted), version: current as string };
    },
    decode(bytes, { version = "", ...payload }) {
      const found = keys.get(version);
      if (found === undefined) {
        const known = [...keys.keys()].join(", ");
        throw new Error(
          `there is no key "${version}" among the keys of this process (${known}). Give it to encryption() here too`,
        );
      }
      if (bytes.length < IV_BYTES + TAG_BYTES) throw new Error(DAMAGED);
      try {
        const decipher = createDecipheriv(ALGORITHM, found, bytes.subarray(0, IV_BYTES), {
          authTagLength: TAG_BYTES,
        })
          .setAAD(boundTo(payload))
          .setAuthTag(bytes.subarray(-TAG_BYTES));
        const plain = decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES));
        return Buffer.concat([plain, decipher.final()]);
      } catch (cause) {
        throw new Error(DAMAGED, { cause });
      }
    },
  };
}

const DAMAGED =
  "the payload was changed, belongs to another queue, or was encrypted with another key of the same id";

function readKey(id: string, given: EncryptionKey): Uint8Array {
  const bytes = typeof given === "string" ? Buffer.from(given, "base64") : Buffer.from(given);
  if (ID.test(id) && bytes.length === KEY_BYTES) return bytes;
  const remedy = ID.test(id)
    ? `give ${KEY_BYTES} bytes, or their base64; this key has ${bytes.length} bytes`
    : "give the key an id of 1 to 64 letters, digits, _ and -";
  throw new InvalidOptionError({
    where: WHERE,
    option: `keys.${shownId(id)}`,
    value: "***",
    remedy,
  });
}

/** Hides an id that is long or invalid, because it may be a key that was given in place of its id. */
function shownId(id: string): string {
  return ID.test(id) && id.length <= LONGEST_SHOWN ? id : "***";
}

function boundTo({ queue, kind }: PayloadInfo): Buffer {
  return Buffer.from(JSON.stringify([queue, kind]));
}
