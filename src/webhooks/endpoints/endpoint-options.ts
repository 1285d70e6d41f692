import { createSecureContext } from "node:tls";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { formatRate, parseRate, type Rate, type RateInput } from "../../core/limits/rate.ts";
import { LONGEST_MS, readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import { MOST_AT_ONCE } from "../../core/policy/endpoint-rules.ts";
import type { ClientCertificate } from "../guard/connector.ts";
import { EXTRA_HEADERS, urlSchema, type TargetRules } from "../guard/target.ts";
import { ID, lineOf } from "../names.ts";
import { HEADER_PREFIX, STYLE } from "../signing/sign.ts";
import type { EndpointSettings } from "./record.ts";
import { FILTER, TYPES } from "./event-filter.ts";

/** Identifies an endpoint. */
export interface EndpointRef {
  /** The tenant of the endpoint. Omit it if the sender has only one tenant. */
  readonly tenant?: string | undefined;
  readonly id: string;
}

/** The options of `put`. They replace an existing endpoint, except for its secret. */
export interface PutEndpoint extends EndpointRef, EndpointSettings {
  /** The signing secret. Defaults to the existing secret; a new endpoint gets a new secret. */
  readonly secret?: string | undefined;
}

export interface ListEndpoints {
  readonly tenant?: string | undefined;
  /** The most entries on the page, up to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
  /** The `cursor` of the previous page. Defaults to the start. */
  readonly cursor?: string | undefined;
}

export interface DisableEndpoint extends EndpointRef {
  /**
   * The reason, up to 200 characters; `get()` shows it. Defaults to the name of the operator, or to
   * `"by hand"`.
   */
  readonly reason?: string | undefined;
  /** @deprecated The old name of `reason`. */
  readonly why?: string | undefined;
}

/** The own limits of an endpoint. */
export interface SetLimits extends EndpointRef {
  /** The rate of calls to the endpoint. Defaults to the sender's `perEndpoint`. */
  readonly rate?: RateInput | undefined;
  /** The number of simultaneous calls to the endpoint. Defaults to the sender's `perEndpoint`. */
  readonly concurrency?: number | undefined;
}

export interface RotateSecret extends EndpointRef {
  /** The new secret. Defaults to a generated secret of the same kind. */
  readonly secret?: string | undefined;
  /** How long the old secret also signs, up to 7 days. Defaults to 86,400,000 ms (a day). */
  readonly graceMs?: number | undefined;
}

/** The highest limits that owners of endpoints may set. */
export interface Ceiling {
  readonly rate?: RateInput | undefined;
  readonly concurrency?: number | undefined;
}

const DAY_MS = 86_400_000;
const SECRET_REMEDY = "give a secret from createSecret(), or omit the option";

/** @internal */
export const SCHEDULE: z.ZodType<readonly number[]> = z
  .array(wholeNumber(0, LONGEST_MS, "milliseconds"), {
    error: "give the wait before each attempt in ms: [0, 5_000, 60_000]",
  })
  .min(1, { error: "give at least the wait before the first attempt: [0]" })
  .max(50, { error: "give at most 50 waits" });
/** @internal */
export const TIMEOUT: z.ZodType<number> = wholeNumber(100, 30_000, "milliseconds");
/** @internal */
export const CONCURRENCY: z.ZodType<number> = wholeNumber(1, MOST_AT_ONCE, "calls");

const REF = { tenant: ID.optional(), id: ID };
const ENDPOINT_REF = z.strictObject(REF);
const DISABLE_ENDPOINT = z.strictObject({
  ...REF,
  reason: lineOf(200).optional(),
  why: lineOf(200).optional(),
});
/** @internal */
export const OWN_LIMITS: {
  readonly rate: z.ZodOptional<z.ZodType<RateInput>>;
  readonly concurrency: z.ZodOptional<z.ZodType<number>>;
} = { rate: z.custom<RateInput>().optional(), concurrency: CONCURRENCY.optional() };
const SET_LIMITS = z.strictObject({ ...REF, ...OWN_LIMITS });
const ROTATE_SECRET = z.strictObject({
  ...REF,
  secret: z.string({ error: SECRET_REMEDY }).trim().optional(),
  graceMs: wholeNumber(0, 7 * DAY_MS, "milliseconds").optional(),
});
const LIST_ENDPOINTS = z.strictObject({
  tenant: ID.optional(),
  limit: wholeNumber(1, 1_000, "endpoints").optional(),
  cursor: ID.optional(),
});

export function readEndpointRef(where: string, given: unknown): EndpointRef {
  return readOptions(where, ENDPOINT_REF, given);
}

export function readDisable(where: string, given: unknown): DisableEndpoint {
  return readOptions(where, DISABLE_ENDPOINT, given);
}

export function readSetLimits(where: string, given: unknown): SetLimits {
  return readOptions(where, SET_LIMITS, given);
}

export function readRotate(where: string, given: unknown): RotateSecret {
  return readOptions(where, ROTATE_SECRET, given);
}

export function readList(where: string, given: unknown): ListEndpoints {
  return readOptional(where, LIST_ENDPOINTS, given);
}

/** Creates a reader for the options of `put`. The reader applies the sender's rules for URLs. */
export function createPutReader(
  targets: TargetRules,
): (where: string, given: unknown) => PutEndpoint {
  const schema = putEndpointSchema(targets);
  return (where, given) => {
    assertNoProto(where, given);
    const read = readOptions(where, schema, given) as PutEndpoint;
    if (read.certificate !== undefined) assertPair(where, read.certificate);
    if (read.batch === undefined || read.ordered === true) return read;
    const remedy = "leave it out, or give ordered: true: batches are for endpoints in order";
    throw new InvalidOptionError({ where, option: "batch", value: read.batch, remedy });
  };
}

/**
 * Checks the certificate immediately. Otherwise TLS would reject the certificate at each attempt.
 */
function assertPair(where: string, certificate: ClientCertificate): void {
  try {
    createSecureContext(certificate);
  } catch {
    const remedy = "give a certificate and the private key that belongs to it, both PEM";
    throw new InvalidOptionError({ where, option: "certificate", value: "***", remedy });
  }
}

/**
 * Rejects `__proto__`. The schema would drop this field silently, and a filter without the field
 * would let more events pass.
 */
function assertNoProto(where: string, given: unknown): void {
  if (typeof given !== "object" || given === null) return;
  for (const option of ["filter", "headers", "metadata"] as const) {
    const names = (given as Partial<Record<typeof option, unknown>>)[option];
    if (typeof names !== "object" || names === null || !Object.hasOwn(names, "__proto__")) continue;
    const remedy = 'remove "__proto__", which is not allowed as a name';
    throw new InvalidOptionError({ where, option, value: "__proto__", remedy });
  }
}

function putEndpointSchema(targets: TargetRules) {
  const pem = (what: string): z.ZodType<string> =>
    z
      .string({ error: `give the ${what} as PEM` })
      .max(20_000)
      .regex(/^-----BEGIN [A-Z ]+-----/, { error: `give the ${what} as PEM` });
  return z.strictObject({
    ...REF,
    url: urlSchema(targets),
    secret: z.string({ error: SECRET_REMEDY }).trim().optional(),
    types: TYPES.optional(),
    filter: FILTER.optional(),
    ...OWN_LIMITS,
    scheduleMs: SCHEDULE.optional(),
    timeoutMs: TIMEOUT.optional(),
    ordered: z.boolean({ error: "give true or false" }).optional(),
    batch: wholeNumber(2, 100, "messages").optional(),
    headers: EXTRA_HEADERS.optional(),
    signature: STYLE.optional(),
    headerPrefix: HEADER_PREFIX.optional(),
    certificate: z.strictObject({ cert: pem("certificate"), key: pem("private key") }).optional(),
    description: lineOf(1_000).optional(),
    metadata: z
      .record(lineOf(100), lineOf(1_000), { error: "give texts by their names" })
      .refine((each) => Object.keys(each).length <= 20, { error: "give at most 20 texts" })
      .optional(),
  });
}

/**
 * Checks limits against the ceiling.
 *
 * @throws {@link InvalidOptionError} for an invalid rate, and for limits above the ceiling.
 */
export function assertWithin(
  where: string,
  { rate, concurrency }: Pick<EndpointSettings, "rate" | "concurrency">,
  ceiling: Ceiling,
): void {
  const refuse = (option: string, value: unknown, most: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value, remedy: `give at most ${most}` });
  if (rate !== undefined) {
    const given = parseRate(where, rate);
    const most = ceiling.rate === undefined ? undefined : parseRate(where, ceiling.rate);
    if (most !== undefined && isFaster(given, most)) throw refuse("rate", rate, formatRate(most));
  }
  if ((concurrency ?? 0) > (ceiling.concurrency ?? Infinity)) {
    throw refuse("concurrency", concurrency, String(ceiling.concurrency));
  }
}

/** Caps the stored limits of an endpoint. The ceiling may have been higher when they were set. */
export function withinCeiling(
  { rate, concurrency }: Pick<EndpointSettings, "rate" | "concurrency">,
  ceiling: Ceiling,
): Ceiling {
  const where = "ceiling";
  const isAbove =
    rate !== undefined &&
    ceiling.rate !== undefined &&
    isFaster(parseRate(where, rate), parseRate(where, ceiling.rate));
  const most = ceiling.concurrency ?? Infinity;
  return {
    ...(rate === undefined ? undefined : { rate: isAbove ? ceiling.rate : rate }),
    ...(concurrency === undefined ? undefined : { concurrency: Math.min(concurrency, most) }),
  };
}

function isFaster(one: Rate, other: Rate): boolean {
  return one.count * other.periodUs > other.count * one.periodUs;
}
