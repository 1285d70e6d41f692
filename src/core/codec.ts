/**
 * Encodes the payloads that Redis stores: the data, results and progress of jobs, and the bodies of webhooks. Each
 * encoded payload names its codecs, so a process knows what it needs to decode the payload.
 */
import * as z from "zod";
import { isThenable, reasonOf } from "./describe.ts";
import { CodecError, InvalidOptionError, type PayloadKind } from "./errors.ts";

/** The payload that a codec encodes or decodes. */
export interface PayloadInfo {
  /** The name of the queue or of the webhook sender. */
  readonly queue: string;
  readonly kind: PayloadKind;
}

/** The payload that a codec encodes. */
export interface NewPayload extends PayloadInfo {
  /** How long the job waits at least before it starts, in ms. 0 without a delay. */
  readonly dueInMs: number;
  /** True for the data of a recurring job, which all its runs share. */
  readonly isShared: boolean;
}

/** An encoded payload. */
export interface Encoded {
  readonly bytes: Uint8Array;
  /**
   * What `decode` needs besides the bytes, such as the id of a key: `"k2"`. Redis stores it as clear text. At most 256
   * characters.
   */
  readonly version?: string | undefined;
}

/** Encodes payloads before Redis stores them, and decodes them again. Both functions may be asynchronous. */
export interface Codec {
  /** Identifies the codec in stored payloads: `"aes-256-gcm"`. Lowercase letters, digits, `.`, `_` and `-`. */
  readonly name: string;
  /** Encodes a payload. Returns undefined to leave the payload as it is. */
  encode(
    bytes: Uint8Array,
    payload: NewPayload,
  ): Encoded | undefined | PromiseLike<Encoded | undefined>;
  /** Decodes a payload. `version` is what `encode` returned. Throws if it cannot decode the payload. */
  decode(
    bytes: Uint8Array,
    payload: PayloadInfo & { readonly version: string | undefined },
  ): Uint8Array | PromiseLike<Uint8Array>;
}

/** An encoded payload as Redis stores it. The steps are in the order in which they were applied. */
interface Envelope {
  readonly "$sluice:codec": readonly string[];
  /** The encoded bytes, as base64. */
  readonly bytes: string;
}

const MARK = "$sluice:codec";
const IN_JSON = JSON.stringify(MARK);
/** The most steps of an envelope. More would let a forged payload keep a process busy. */
const MOST_STEPS = 10;
const NAME = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const LONGEST_VERSION = 256;

/** What is known of a payload when it is decoded. */
export interface EncodedOf {
  readonly kind: PayloadKind;
  readonly id?: string | undefined;
}

/** The codecs of one queue or webhook sender. */
export interface Payloads {
  /** The names of the codecs, in the order in which they encode. */
  readonly codecs: readonly string[];
  /** True if `encode` may store something else than this value. */
  mustEncode(value: unknown): boolean;
  /**
   * Returns the value to store instead of a payload. Undefined if the payload is stored as it is.
   *
   * @throws {@link CodecError}
   */
  encode(
    json: string,
    payload: Omit<NewPayload, "queue"> & { readonly id?: string | undefined },
  ): Promise<object | undefined> | undefined;
  /**
   * Returns the payload of a stored value. Returns a promise only for an encoded payload, which rejects with
   * {@link CodecError} if the payload cannot be decoded.
   */
  decode(stored: unknown, of: EncodedOf): unknown;
}

const CODEC = z.custom<Codec>(isCodec, {
  error: 'give codecs: objects with a name such as "v1", and the functions encode and decode',
});

/**
 * The schema for the option `codec`.
 *
 * @internal
 */
export const CODECS: z.ZodType<Codec | readonly Codec[]> = z.union(
  [
    CODEC,
    z
      .array(CODEC)
      .min(1)
      .max(MOST_STEPS)
      .refine((codecs) => new Set(codecs.map(({ name }) => name)).size === codecs.length),
  ],
  {
    error: `give a codec, or a list of 1 to ${MOST_STEPS} codecs with different names, each with the functions encode and decode`,
  },
);

function isCodec(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { name, encode, decode } = value as Partial<Codec>;
  if (typeof encode !== "function" || typeof decode !== "function") return false;
  return typeof name === "string" && NAME.test(name);
}

/** Combines the codecs of a queue or of a webhook sender. */
export function createPayloads(queue: string, given: Codec | readonly Codec[] = []): Payloads {
  const codecs: readonly Codec[] = "name" in given ? [given] : given;
  const byName = new Map(codecs.map((codec) => [codec.name, codec]));
  const codecNames = [...byName.keys()];

  async function encode(
    json: string,
    { id, ...about }: Parameters<Payloads["encode"]>[1],
  ): Promise<Envelope | undefined> {
    const payload: NewPayload = { queue, ...about };
    const steps: string[] = [];
    let bytes: Uint8Array = Buffer.from(json);
    for (const codec of codecs) {
      const encoded = await run({ action: "encode", codec: codec.name, id }, payload, () =>
        codec.encode(bytes, payload),
      );
      if (encoded === undefined) continue;
      assertEncoded(encoded, { queue, kind: about.kind, action: "encode", codec: codec.name, id });
      ({ bytes } = encoded);
      const { version } = encoded;
      steps.push(version === undefined ? codec.name : `${codec.name}:${version}`);
    }
    // A payload that looks like an encoded one is wrapped, so that it is not decoded later.
    if (steps.length === 0 && !json.includes(IN_JSON)) return undefined;
    return { [MARK]: steps, bytes: toBase64(bytes) };
  }

  async function decode({ [MARK]: steps, bytes: text }: Envelope, of: EncodedOf): Promise<unknown> {
    const { kind, id } = of;
    const payload: PayloadInfo = { queue, kind };
    let bytes: Uint8Array = Buffer.from(text, "base64");
    for (const step of steps.toReversed()) {
      const [, name = "", version] = /^([^:]*)(?::(.*))?$/s.exec(step) ?? [];
      const codec = byName.get(name);
      const failed = { action: "decode", codec: step.slice(0, 321), id } as const;
      if (codec === undefined) {
        const known = codecNames.length === 0 ? "no codec" : `only ${codecNames.join(", ")}`;
        const problem = `this process has ${known}, and the payload needs "${failed.codec}". Give the queue that codec here too.`;
        throw new CodecError({ queue, kind, ...failed }, problem);
      }
      const decoded = await run(failed, payload, () =>
        codec.decode(bytes, { ...payload, version }),
      );
      if (!(decoded instanceof Uint8Array)) {
        const problem = "decode of the codec returned something that is not a Uint8Array.";
        throw new CodecError({ queue, kind, ...failed }, problem);
      }
      bytes = decoded;
    }
    try {
      return JSON.parse(Buffer.from(bytes).toString("utf8"));
    } catch {
      // The error of `JSON.parse` is left out, because its message contains a part of the payload.
      const facts = { queue, kind, action: "decode", codec: steps[0], id } as const;
      throw new CodecError(
        facts,
        "the decoded bytes are not JSON. The codec or its key is another one.",
      );
    }
  }

  return {
    codecs: codecNames,
    mustEncode: (value) => value !== undefined && (codecs.length > 0 || isEnvelope(value)),
    encode(json, payload) {
      if (codecs.length === 0 && !json.includes(IN_JSON)) return undefined;
      return encode(json, payload);
    },
    decode: (stored, of) => (isEnvelope(stored) ? decode(stored, of) : stored),
  };
}

/** Runs a function of a codec, and turns whatever it throws into a {@link CodecError}. */
async function run<Result>(
  failed: Pick<CodecError, "action" | "codec" | "id">,
  { queue, kind }: PayloadInfo,
  act: () => Result | PromiseLike<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (cause) {
    if (cause instanceof InvalidOptionError) throw cause;
    const problem = `${failed.codec}: ${reasonOf(cause)}`;
    throw new CodecError({ queue, kind, ...failed }, problem, { cause });
  }
}

function assertEncoded(
  encoded: Partial<Encoded>,
  facts: Pick<CodecError, "queue" | "kind" | "action" | "codec" | "id">,
): void {
  const { bytes, version = "" } = encoded;
  const isValid = typeof version === "string" && version.length <= LONGEST_VERSION;
  if (bytes instanceof Uint8Array && isValid) return;
  const remedy = `encode has to return { bytes, version? }: a Uint8Array, and a text of up to ${LONGEST_VERSION} characters.`;
  throw new CodecError(facts, remedy);
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

function isEnvelope(value: unknown): value is Envelope {
  if (typeof value !== "object" || value === null || !(MARK in value)) return false;
  const { [MARK]: steps, bytes, ...others } = value as unknown as Partial<Envelope>;
  if (!Array.isArray(steps) || typeof bytes !== "string") return false;
  if (Object.keys(others).length > 0 || steps.length > MOST_STEPS) return false;
  return steps.every((step) => typeof step === "string");
}

/**
 * Returns the payload of a stored text. Bodies of webhooks are stored as text, and not as a part of other JSON.
 * Rejects as {@link Payloads.decode} does.
 */
export async function decodeText(
  payloads: Pick<Payloads, "decode">,
  text: string,
  of: EncodedOf,
): Promise<string> {
  if (!text.includes(IN_JSON)) return text;
  const parsed: unknown = JSON.parse(text);
  const decoded = payloads.decode(parsed, of);
  return isThenable(decoded) ? ((await decoded) as string) : text;
}
