import { createHmac, sign as signEd25519 } from "node:crypto";
import { Webhook } from "standardwebhooks";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";
import {
  readSecret,
  SECRETS,
  SIGNATURE_STYLES,
  type SignatureStyle,
  type SigningKey,
} from "./secrets.ts";

/** The options of `sign()`. */
export interface SignOptions {
  /**
   * The id of the message: 1 to 128 letters, digits, `_` and `-`. The id is the same on each
   * attempt, so that receivers recognize a repeat.
   */
  readonly id: string;
  /** The time of this attempt. Defaults to now. */
  readonly at?: Date | undefined;
  /** The exact body that is sent. If it is passed as bytes, these must be UTF-8. */
  readonly body: string | Uint8Array;
  /** The secret, or several secrets during a rotation, the newest first. */
  readonly secret: string | readonly string[];
  /** The format of the signature. Defaults to `"standard"`, which is Standard Webhooks 1.0. */
  readonly signature?: SignatureStyle | undefined;
  /**
   * The prefix of the header names in the format `"standard"`. Use `"svix"` for receivers built for
   * Svix. Defaults to `"webhook"`.
   */
  readonly headerPrefix?: string | undefined;
  /** The event's type. The format `"github"` sends it as a header. */
  readonly type?: string | undefined;
}

/** @internal */
export const MESSAGE_ID: z.ZodType<string> = z
  .string({ error: "give a string" })
  .regex(/^[A-Za-z0-9_-]{1,128}$/, { error: 'give 1 to 128 letters, digits, "_" and "-"' });
/** @internal */
export const HEADER_PREFIX: z.ZodType<string> = z
  .string({ error: 'give the beginning of header names, such as "webhook"' })
  .regex(/^[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,30}){0,2}$/, {
    error: 'give lower-case letters and digits, such as "webhook" or "x-acme"',
  });
/** @internal */
export const STYLE: z.ZodType<SignatureStyle> = z.enum(SIGNATURE_STYLES, {
  error: 'give "standard", "github" or "stripe"',
});
/** @internal */
export const EVENT_TYPE: z.ZodType<string> = z
  .string({ error: 'give a type such as "invoice.paid"' })
  .regex(/^[a-zA-Z0-9_]+(\.[a-zA-Z0-9_]+)*$/, {
    error: 'give letters, digits and "_", in parts separated by ".": "invoice.paid"',
  })
  .max(128, { error: "give at most 128 characters" });

const SIGN_OPTIONS = z.strictObject({
  id: MESSAGE_ID,
  at: z
    .date({ error: "give a Date" })
    .refine((at) => at.getTime() >= 0, { error: "give a Date after 1970" })
    .optional(),
  body: z.custom<string | Uint8Array>(
    (body) => typeof body === "string" || body instanceof Uint8Array,
    {
      error: "give the body as it is sent, a string or bytes",
    },
  ),
  secret: SECRETS,
  signature: STYLE.optional(),
  headerPrefix: HEADER_PREFIX.optional(),
  type: EVENT_TYPE.optional(),
});

/**
 * Returns the headers that prove the sender of a webhook: `{ "webhook-id": …, "webhook-timestamp":
 * …, "webhook-signature": "v1,…" }`. A `whsec_` secret signs with HMAC-SHA256 (`v1`), a `whsk_`
 * secret with ed25519 (`v1a`).
 *
 * With several secrets, each of them signs. GitHub's header has room for one signature, so the
 * oldest secret signs until its rotation ends.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function sign(options: SignOptions): Readonly<Record<string, string>> {
  const where = "sign()";
  const read = readOptions(where, SIGN_OPTIONS, options);
  const { id, at = new Date(), secret, signature: style = "standard", headerPrefix, type } = read;
  const given = typeof secret === "string" ? [secret] : secret;
  const keys = given.map((each) => readSecret(where, "secret", each, style));
  const body = textOf(where, read.body);
  if (keys.some(({ half }) => half === "public")) {
    const remedy = "a whpk_ key only verifies; sign with its whsk_ secret";
    throw new InvalidOptionError({ where, option: "secret", value: "whpk_***", remedy });
  }
  return signWith({ id, at, body, keys, style, headerPrefix, type });
}

/** The parsed parts of a signature. */
export interface Signing {
  readonly id: string;
  readonly at: Date;
  readonly body: string;
  /** The keys that sign, the newest first. */
  readonly keys: readonly SigningKey[];
  readonly style: SignatureStyle;
  readonly headerPrefix: string | undefined;
  readonly type: string | undefined;
}

export function signWith(signing: Signing): Record<string, string> {
  const { id, at, body, keys, style, headerPrefix = "webhook", type } = signing;
  const seconds = Math.floor(at.getTime() / 1_000);
  if (style === "github") {
    const digest = hmacHex(keys.at(-1)!, body);
    const event = type === undefined ? undefined : { "x-github-event": type };
    return { "x-hub-signature-256": `sha256=${digest}`, "x-github-delivery": id, ...event };
  }
  if (style === "stripe") {
    const digests = keys.map((key) => `v1=${hmacHex(key, `${seconds}.${body}`)}`);
    return { "stripe-signature": [`t=${seconds}`, ...digests].join(",") };
  }
  return {
    [`${headerPrefix}-id`]: id,
    [`${headerPrefix}-timestamp`]: String(seconds),
    [`${headerPrefix}-signature`]: keys.map((key) => standardOf(key, { id, at, body })).join(" "),
  };
}

function standardOf(
  key: SigningKey,
  { id, at, body }: Pick<Signing, "id" | "at" | "body">,
): string {
  if (key.half === "shared") {
    return new Webhook(key.bytes, { format: "raw" }).sign(id, at, body);
  }
  const signed = Buffer.from(`${id}.${Math.floor(at.getTime() / 1_000)}.${body}`);
  return `v1a,${signEd25519(null, signed, key.key).toString("base64")}`;
}

function hmacHex(key: SigningKey, text: string): string {
  // The styles that sign with HMAC have only shared secrets.
  const { bytes } = key as Extract<SigningKey, { half: "shared" }>;
  return createHmac("sha256", bytes).update(text).digest("hex");
}

/** Rejects invalid UTF-8, because the signed bytes would differ from the bytes that are sent. */
function textOf(where: string, body: string | Uint8Array): string {
  if (typeof body === "string") return body;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch (cause) {
    const remedy = "give UTF-8, because the signature covers text";
    const value = `${body.length} bytes`;
    throw new InvalidOptionError({ where, option: "body", value, remedy, cause });
  }
}
