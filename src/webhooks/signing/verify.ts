import { createHmac, timingSafeEqual, verify as verifyEd25519 } from "node:crypto";
import * as z from "zod";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import { WebhookVerificationError } from "../errors.ts";
import { readSecret, SECRETS, type SignatureStyle, type SigningKey } from "./secrets.ts";
import { HEADER_PREFIX, STYLE } from "./sign.ts";

/** The headers of a request: a `Headers`, or `request.headers` of Node, Express and Fastify. */
export type ReceivedHeaders =
  | { get(name: string): string | null | undefined }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The options of `verify()`. */
export interface VerifyOptions {
  /**
   * The raw body, byte for byte. A body that was parsed and serialized again no longer matches its
   * signature.
   */
  readonly body: string | Uint8Array;
  readonly headers: ReceivedHeaders;
  /**
   * The sender's secret, or several secrets during a rotation. For ed25519, the sender's `whpk_`
   * key.
   */
  readonly secret: string | readonly string[];
  /** The format of the signature. Defaults to `"standard"`, which is Standard Webhooks 1.0. */
  readonly signature?: SignatureStyle | undefined;
  /** The prefix of the header names in the format `"standard"`. Defaults to `"webhook"`. */
  readonly headerPrefix?: string | undefined;
  /**
   * How far the timestamp may differ from this machine's clock, in either direction. Defaults to
   * 300,000 ms. GitHub sends no timestamp, so this option has no effect there.
   */
  readonly toleranceMs?: number | undefined;
}

/** A webhook whose signature is valid. */
export interface VerifiedWebhook {
  /**
   * The id of the message. The id stays the same when the message is sent again, so use the id to
   * process each message only once. Undefined for Stripe, which sends no id.
   */
  readonly id: string | undefined;
  /**
   * The time at which this attempt was sent, in ms since 1970 by the sender's clock. Undefined for
   * GitHub, which sends no time.
   */
  readonly sentAtMs: number | undefined;
  /** The body, parsed as JSON. If GitHub sends a form, its field `payload` is parsed instead. */
  readonly payload: unknown;
}

const BODY_REMEDY =
  "give the raw body, a string or bytes: express.raw(), await request.text() in Hono, a content type parser in Fastify";

const VERIFY_OPTIONS = z.strictObject({
  body: z.custom<string | Uint8Array>(
    (body) => typeof body === "string" || body instanceof Uint8Array,
    { error: BODY_REMEDY },
  ),
  headers: z.custom<ReceivedHeaders>(
    (headers) => typeof headers === "object" && headers !== null && !Array.isArray(headers),
    { error: "give the headers of the request" },
  ),
  secret: SECRETS,
  signature: STYLE.optional(),
  headerPrefix: HEADER_PREFIX.optional(),
  toleranceMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
});

/**
 * Verifies the signature of a webhook, and returns its content.
 *
 * @throws {@link WebhookVerificationError} when the body was not signed with one of the secrets, or
 * not recently.
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function verify(options: VerifyOptions): VerifiedWebhook {
  const where = "verify()";
  const read = readOptions(where, VERIFY_OPTIONS, options);
  const { headers, secret, signature: style = "standard", toleranceMs = 300_000 } = read;
  const given = typeof secret === "string" ? [secret] : secret;
  const keys = given.map((each) => readSecret(where, "secret", each, style));
  const body = Buffer.from(read.body as string);
  const received = { body, keys, headerOf: readerOf(headers), toleranceMs };
  const facts =
    style === "standard"
      ? verifyStandard({ ...received, prefix: read.headerPrefix ?? "webhook" })
      : style === "github"
        ? verifyGithub(received)
        : verifyStripe(received);
  return { ...facts, payload: payloadOf(body.toString("utf8")) };
}

interface Received {
  readonly body: Buffer;
  readonly keys: readonly SigningKey[];
  /**
   * Returns the value of a header that occurs exactly once. Returns undefined for any other header.
   */
  readonly headerOf: (name: string) => string | undefined;
  readonly toleranceMs: number;
}

type Facts = Omit<VerifiedWebhook, "payload">;

function verifyStandard(received: Received & { readonly prefix: string }): Facts {
  const { body, keys, headerOf, prefix } = received;
  const id = headerOf(`${prefix}-id`);
  const seconds = headerOf(`${prefix}-timestamp`);
  const signatures = headerOf(`${prefix}-signature`);
  if (id === undefined || seconds === undefined || signatures === undefined) throw missing();
  const sentAtMs = readTime(seconds, received.toleranceMs);
  const signed = Buffer.concat([Buffer.from(`${id}.${seconds}.`), body]);
  const expected = keys.map((key) => (key.half === "shared" ? digest(key, signed) : key));
  // Try every pair of signature and key, so that the duration reveals nothing.
  let isKnown = false;
  for (const each of signatures.split(" ").slice(0, MOST_SIGNATURES)) {
    const comma = each.indexOf(",");
    const version = each.slice(0, comma);
    const found = Buffer.from(each.slice(comma + 1), "base64");
    for (const key of expected) if (fits(version, found, { key, signed })) isKnown = true;
  }
  if (!isKnown) throw new WebhookVerificationError("no-match");
  return { id, sentAtMs };
}

/** The most signatures that are checked. A sender never has this many secrets at once. */
const MOST_SIGNATURES = 32;

function fits(
  version: string,
  found: Buffer,
  { key, signed }: { readonly key: Buffer | SigningKey; readonly signed: Buffer },
): boolean {
  if (Buffer.isBuffer(key)) return version === "v1" && isSame(found, key);
  if (version !== "v1a" || key.half === "shared") return false;
  return found.length === 64 && verifyEd25519(null, signed, key.key, found);
}

function verifyGithub({ body, keys, headerOf }: Received): Facts {
  const found = /^sha256=([0-9a-f]{64})$/.exec(headerOf("x-hub-signature-256") ?? "")?.[1];
  if (found === undefined) throw missing();
  assertAny(keys, (key) => isSame(Buffer.from(found, "hex"), digest(key, body)));
  return { id: headerOf("x-github-delivery"), sentAtMs: undefined };
}

function verifyStripe({ body, keys, headerOf, toleranceMs }: Received): Facts {
  const parts = (headerOf("stripe-signature") ?? "").split(",").slice(0, MOST_SIGNATURES);
  const valuesOf = (name: string): string[] =>
    parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
  const [seconds] = valuesOf("t");
  const found = valuesOf("v1");
  if (seconds === undefined || found.length === 0) throw missing();
  const sentAtMs = readTime(seconds, toleranceMs);
  const signed = Buffer.concat([Buffer.from(`${seconds}.`), body]);
  assertAny(keys, (key) => {
    const expected = digest(key, signed);
    return found.filter((each) => isSame(Buffer.from(each, "hex"), expected)).length > 0;
  });
  return { id: undefined, sentAtMs };
}

function assertAny(keys: readonly SigningKey[], isIt: (key: SigningKey) => boolean): void {
  if (keys.filter(isIt).length === 0) throw new WebhookVerificationError("no-match");
}

function digest(key: SigningKey, signed: Buffer): Buffer {
  const { bytes } = key as Extract<SigningKey, { half: "shared" }>;
  return createHmac("sha256", bytes).update(signed).digest();
}

function isSame(found: Buffer, expected: Buffer): boolean {
  return found.length === expected.length && timingSafeEqual(found, expected);
}

function readTime(seconds: string, toleranceMs: number): number {
  if (!/^\d{1,11}$/.test(seconds)) throw missing();
  const sentAtMs = Number(seconds) * 1_000;
  const agoMs = Date.now() - sentAtMs;
  // Add a second, because the sender cuts off fractions of a second.
  if (agoMs > toleranceMs + 1_000) throw new WebhookVerificationError("too-old");
  if (-agoMs > toleranceMs) throw new WebhookVerificationError("too-new");
  return sentAtMs;
}

function missing(): WebhookVerificationError {
  return new WebhookVerificationError("headers-missing");
}

/**
 * Reads headers, but ignores a header that occurs twice, because the values may contradict each
 * other.
 */
function readerOf(headers: ReceivedHeaders): Received["headerOf"] {
  if (typeof headers.get === "function") {
    return (name) => (headers as { get(name: string): string | null }).get(name) ?? undefined;
  }
  const byName = new Map<string, string | undefined>();
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    const isOnce = typeof value === "string" && !byName.has(lower);
    const only = Array.isArray(value) && value.length === 1 ? String(value[0]) : undefined;
    byName.set(lower, isOnce ? value : byName.has(lower) ? undefined : only);
  }
  return (name) => byName.get(name);
}

/**
 * Parses a body. GitHub sends a form with the JSON in its field `payload`, unless the webhook's
 * content type is `application/json`.
 */
function payloadOf(body: string): unknown {
  try {
    return JSON.parse(body) as unknown;
  } catch {
    const inForm = new URLSearchParams(body).get("payload");
    // Use the form only if it contains valid JSON.
    if (inForm !== null && isJson(inForm)) return JSON.parse(inForm) as unknown;
    throw new WebhookVerificationError("not-json");
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
