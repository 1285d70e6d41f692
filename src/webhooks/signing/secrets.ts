/** Secrets for signing webhooks, in the format of Standard Webhooks. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  type KeyObject,
} from "node:crypto";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";

/** The format of a signature: that of Standard Webhooks 1.0, of GitHub or of Stripe. */
export type SignatureStyle = "standard" | "github" | "stripe";

export const SIGNATURE_STYLES: readonly SignatureStyle[] = ["standard", "github", "stripe"];

/**
 * One secret, or several during a rotation. `readSecret` checks each of them.
 *
 * @internal
 */
export const SECRETS: z.ZodType<string | readonly string[]> = z.custom<string | readonly string[]>(
  (secret) => typeof secret === "string" || (Array.isArray(secret) && secret.length > 0),
  { error: "give the secret that sender and receiver share, or a list with the newest first" },
);

const SYMMETRIC = "whsec_";
const PRIVATE = "whsk_";
const PUBLIC = "whpk_";
const MADE_BYTES = 32;
const LEAST_BYTES = 24;
const MOST_BYTES = 64;
const SEED_BYTES = 32;
/** The DER prefixes of an ed25519 key. The 32 bytes of the key follow (RFC 8410). */
const PRIVATE_DER = Buffer.from("302e020100300506032b657004220420", "hex");
const PUBLIC_DER = Buffer.from("302a300506032b6570032100", "hex");

/** A key that signs or verifies: a shared secret, or one half of an ed25519 pair. */
export type SigningKey =
  | { readonly half: "shared"; readonly bytes: Buffer; readonly text: string }
  | { readonly half: "private"; readonly key: KeyObject }
  | { readonly half: "public"; readonly key: KeyObject };

/** Creates a secret of 32 random bytes for sender and receiver: `"whsec_…"`. */
export function createSecret(): string {
  return SYMMETRIC + randomBytes(MADE_BYTES).toString("base64");
}

/**
 * Creates an ed25519 pair. The sender signs with `secret` (`"whsk_…"`), and receivers verify with
 * `publicKey` (`"whpk_…"`).
 */
export function createKeyPair(): { readonly secret: string; readonly publicKey: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const seed = privateKey.export({ format: "der", type: "pkcs8" }).subarray(PRIVATE_DER.length);
  const half = publicBytes(publicKey);
  const secret = PRIVATE + Buffer.concat([seed, half]).toString("base64");
  return { secret, publicKey: PUBLIC + half.toString("base64") };
}

/**
 * Returns the public half of a `whsk_` secret, for its receivers. Returns undefined for a shared
 * secret.
 */
export function publicKeyOf(secret: string): string | undefined {
  const read = readSecret("publicKeyOf()", "secret", secret, "standard");
  if (read.half !== "private") return undefined;
  return PUBLIC + publicBytes(createPublicKey(read.key)).toString("base64");
}

/**
 * Reads a secret of the given style. It ignores surrounding white space, because a secret from a
 * file ends with a line break.
 *
 * @throws {@link InvalidOptionError} when the secret can never be valid. The error does not show
 * it.
 */
export function readSecret(
  where: string,
  option: string,
  given: unknown,
  style: SignatureStyle,
): SigningKey {
  const refuse = (remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value: shapeOf(given), remedy });
  if (typeof given !== "string") throw refuse("give a string");
  return readTrimmed(given.trim(), style, refuse);
}

function readTrimmed(
  given: string,
  style: SignatureStyle,
  refuse: (remedy: string) => InvalidOptionError,
): SigningKey {
  if (style !== "standard") return readText(given, refuse);
  if (given.startsWith(PRIVATE)) return readPrivate(bytesOf(given, PRIVATE, refuse), refuse);
  if (given.startsWith(PUBLIC)) {
    const bytes = bytesOf(given, PUBLIC, refuse);
    if (bytes.length !== SEED_BYTES) throw refuse(`give ${PUBLIC} and 32 bytes as base64`);
    return { half: "public", key: publicKeyFrom(bytes) };
  }
  if (!given.startsWith(SYMMETRIC)) {
    throw refuse(`give what createSecret() returns: "${SYMMETRIC}" and 24 to 64 bytes as base64`);
  }
  const bytes = bytesOf(given, SYMMETRIC, refuse);
  if (bytes.length < LEAST_BYTES || bytes.length > MOST_BYTES) {
    throw refuse(`give 24 to 64 random bytes as base64 after "${SYMMETRIC}"`);
  }
  return { half: "shared", bytes, text: given };
}

/** Reads a secret of GitHub or Stripe, which use the text itself as the key. */
function readText(given: string, refuse: (remedy: string) => InvalidOptionError): SigningKey {
  if (given.length < 16 || given.length > 256) throw refuse("give 16 to 256 characters");
  return { half: "shared", bytes: Buffer.from(given), text: given };
}

function readPrivate(bytes: Buffer, refuse: (remedy: string) => InvalidOptionError): SigningKey {
  const seed = bytes.subarray(0, SEED_BYTES);
  const half = bytes.subarray(SEED_BYTES);
  if (seed.length !== SEED_BYTES || (half.length !== 0 && half.length !== SEED_BYTES)) {
    throw refuse(`give ${PRIVATE} and the 32 or 64 bytes of an ed25519 key as base64`);
  }
  const der = Buffer.concat([PRIVATE_DER, seed]);
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  if (half.length > 0 && !publicBytes(createPublicKey(key)).equals(half)) {
    throw refuse("its public half does not belong to its private one");
  }
  return { half: "private", key };
}

function publicKeyFrom(bytes: Buffer): KeyObject {
  const der = Buffer.concat([PUBLIC_DER, bytes]);
  return createPublicKey({ key: der, format: "der", type: "spki" });
}

function publicBytes(key: KeyObject): Buffer {
  return key.export({ format: "der", type: "spki" }).subarray(PUBLIC_DER.length);
}

/**
 * Decodes base64 strictly. Node decodes as much as it can, but invalid text must not become a
 * shorter key.
 */
function bytesOf(
  given: string,
  prefix: string,
  refuse: (remedy: string) => InvalidOptionError,
): Buffer {
  const text = given.slice(prefix.length);
  const bytes = Buffer.from(text, "base64");
  const isWhole = bytes.toString("base64").replace(/=+$/, "") === text.replace(/=+$/, "");
  if (text === "" || !isWhole) throw refuse(`give base64 after "${prefix}"`);
  return bytes;
}

/** Describes a secret in an error without revealing it. */
function shapeOf(given: unknown): unknown {
  if (typeof given !== "string") return typeof given;
  const prefix = [SYMMETRIC, PRIVATE, PUBLIC].find((each) => given.trim().startsWith(each)) ?? "";
  return `${prefix}*** (${given.length} characters)`;
}
