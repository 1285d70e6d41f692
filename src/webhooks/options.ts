import * as z from "zod";
import { CODECS, type Codec } from "../core/codec.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { LONGEST_MS, NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { LimitsOptions } from "../core/policy/limit-makers.ts";
import { compilePolicy } from "../core/policy/policy.ts";
import {
  assertWithin,
  CONCURRENCY,
  SCHEDULE,
  TIMEOUT,
  type Ceiling,
} from "./endpoints/endpoint-options.ts";
import { ALLOW } from "./guard/addresses.ts";
import type { Resolve } from "./guard/connector.ts";
import { readDevReceiver } from "./guard/dev-receiver.ts";
import { ID } from "./names.ts";

/** The options of `createWebhooks()`. Pass the same options in all processes. */
export interface WebhooksOptions extends LimitsOptions {
  /** The name of the sender's queue and bucket. Defaults to `"webhooks"`. */
  readonly name?: string | undefined;
  /**
   * The limits of each tenant over all its endpoints, unless the tenant has its own limits: `{
   * rate: "50/s", concurrency: 25 }`. Set `concurrency` below that of your workers. Otherwise the
   * slow endpoints of one tenant can occupy all workers. Defaults to no limit.
   */
  readonly perTenant?: LimitsOptions | undefined;
  /**
   * The limits of each endpoint that has no separate limits: `{ rate: "5/s", concurrency: 4 }`.
   * Defaults to `{ concurrency: 10 }`.
   */
  readonly perEndpoint?: LimitsOptions | undefined;
  /**
   * The highest `rate` and `concurrency` that an endpoint may set. Also caps limits that were set
   * earlier. Defaults to no limit.
   */
  readonly ceiling?: Ceiling | undefined;
  /** Whether the sender has only one tenant. Calls then omit the tenant. Defaults to false. */
  readonly singleTenant?: boolean | undefined;
  /**
   * The keys that encrypt secrets in Redis: `"k2:<base64>,k1:<base64>"`. Each key has 32 random
   * bytes. The first key encrypts; all keys decrypt. Defaults to `$SLUICE_WEBHOOK_KEYS`.
   */
  readonly keys?: string | undefined;
  /**
   * Returns the secret of an endpoint, or several secrets during a rotation, the newest first. The
   * sender calls this function for each attempt and waits up to 5 s. Redis then stores no secrets.
   * Defaults to secrets in Redis.
   */
  readonly secretsOf?: SecretsOf | undefined;
  /**
   * Private addresses that webhooks may use: `["10.0.0.0/8"]`. The sender logs a warning if there
   * are any. Defaults to none.
   */
  readonly allow?: readonly string[] | undefined;
  /**
   * Whether endpoints may have `http://` URLs. The sender then logs a warning. Defaults to false.
   */
  readonly http?: boolean | undefined;
  /**
   * The URL of a proxy for all requests. The proxy then decides which addresses are allowed.
   * Defaults to none.
   */
  readonly proxy?: string | undefined;
  /** PEM certificates to trust instead of those that Node.js trusts. */
  readonly ca?: string | readonly string[] | undefined;
  /**
   * Resolves host names. The sender checks each returned address. Defaults to the system's
   * resolver.
   */
  readonly resolve?: Resolve | undefined;
  /**
   * The delay before each attempt, in ms. Defaults to ten attempts over 75 hours: 0, 5 s, 5 min, 30
   * min, 2, 5, 10, 14, 20 and 24 h.
   */
  readonly scheduleMs?: readonly number[] | undefined;
  /**
   * The time limit of one attempt, 100 to 30,000 ms, from the DNS look-up to the end of the reply.
   * Defaults to 15,000 ms.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * How long an endpoint may fail without a success before it is disabled. Defaults to 432,000,000
   * ms (5 days).
   */
  readonly disableAfterMs?: number | undefined;
  /**
   * Pauses an endpoint after `failures` failures in a row, for `coolMs` at first. One attempt
   * follows each pause. Each further pause is twice as long, up to 5 minutes. Defaults to `{
   * failures: 5, coolMs: 5_000 }`.
   */
  readonly breaker?:
    | { readonly failures?: number | undefined; readonly coolMs?: number | undefined }
    | undefined;
  /**
   * How long messages and attempts are kept, from a day to a year. Defaults to 604,800,000 ms (7
   * days).
   */
  readonly keepMs?: number | undefined;
  /**
   * The longest pause that an endpoint can request with `Retry-After`. Defaults to 3,600,000 ms (an
   * hour).
   */
  readonly maxRetryAfterMs?: number | undefined;
  /**
   * The tenant whose endpoints receive the events about failing, disabled and recovered endpoints.
   * Defaults to none.
   */
  readonly operator?: string | undefined;
  /**
   * How the data of messages is encoded before Redis stores it: one codec, or several that are applied in this order.
   * `sluice/codec` has codecs that encrypt, compress, and store large payloads elsewhere. Messages that Redis stores
   * already stay readable. Defaults to none.
   */
  readonly codec?: Codec | readonly Codec[] | undefined;
  /** The `User-Agent` of requests. Defaults to `"sluice-webhooks"`. */
  readonly userAgent?: string | undefined;
}

export type SecretsOf = (endpoint: {
  /** Undefined if the sender has only one tenant. */
  readonly tenant: string | undefined;
  readonly id: string;
}) => string | readonly string[] | Promise<string | readonly string[]>;

/** The schedule that Standard Webhooks recommends. */
const SCHEDULE_MS = [
  0, 5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 50_400_000, 72_000_000,
  86_400_000,
];
const DAY_MS = 86_400_000;
const LIMITS = z.custom<LimitsOptions>((value) => typeof value === "object" && value !== null, {
  error: 'give limits such as { rate: "5/s", concurrency: 4 }',
});
const PEM = z.union([z.string(), z.array(z.string()).min(1)], {
  error: "give certificates as PEM",
});
const ofFunction = <Given>(remedy: string): z.ZodType<Given> =>
  z.custom<Given>((value) => typeof value === "function", { error: remedy });

const OPTIONS = z.strictObject({
  name: NAME.optional(),
  rate: z.unknown().optional(),
  burst: z.unknown().optional(),
  concurrency: z.unknown().optional(),
  limits: z.unknown().optional(),
  perTenant: LIMITS.optional(),
  perEndpoint: LIMITS.optional(),
  ceiling: z
    .strictObject({ rate: z.unknown().optional(), concurrency: CONCURRENCY.optional() })
    .optional(),
  singleTenant: z.boolean({ error: "give true or false" }).optional(),
  keys: z.unknown().optional(),
  secretsOf: ofFunction<SecretsOf>(
    "give a function of { tenant, id } that returns secrets",
  ).optional(),
  allow: ALLOW.optional(),
  http: z.boolean({ error: "give true or false" }).optional(),
  proxy: z
    .string({ error: "give the URL of a proxy" })
    .refine((url) => URL.canParse(url) && /^https?:/.test(url), {
      error: 'give a URL such as "http://proxy.internal:4750"',
    })
    .optional(),
  ca: PEM.optional(),
  resolve: ofFunction<Resolve>(
    "give a function of a host's name that returns addresses",
  ).optional(),
  scheduleMs: SCHEDULE.optional(),
  timeoutMs: TIMEOUT.optional(),
  disableAfterMs: wholeNumber(60_000, LONGEST_MS, "milliseconds").optional(),
  breaker: z
    .strictObject({
      failures: wholeNumber(1, 1_000, "failures").optional(),
      coolMs: wholeNumber(1, 300_000, "milliseconds").optional(),
    })
    .optional(),
  keepMs: wholeNumber(DAY_MS, 365 * DAY_MS, "milliseconds").optional(),
  maxRetryAfterMs: wholeNumber(0, DAY_MS, "milliseconds").optional(),
  operator: ID.optional(),
  codec: CODECS.optional(),
  userAgent: z
    .string({ error: "give a text" })
    .regex(/^[\x21-\x7e]+( [\x21-\x7e]+)*$/, { error: "give printable ASCII characters" })
    .max(200, { error: "give at most 200 characters" })
    .optional(),
});

/** The options of a sender, with all defaults filled in. */
export interface ReadWebhooksOptions {
  readonly name: string;
  readonly perTenant: LimitsOptions;
  readonly perEndpoint: LimitsOptions;
  readonly ceiling: Ceiling;
  readonly http: boolean;
  readonly scheduleMs: readonly number[];
  readonly timeoutMs: number;
  readonly disableAfterMs: number;
  readonly shared: LimitsOptions;
  readonly isSingle: boolean;
  readonly keys: string | undefined;
  readonly secretsOf: SecretsOf | undefined;
  readonly allow: readonly string[];
  /** The origin of the receiver of `sluice dev`, whose URLs are allowed. */
  readonly devReceiver: string | undefined;
  readonly proxy: string | undefined;
  readonly ca: string | readonly string[] | undefined;
  readonly resolve: Resolve | undefined;
  readonly breaker: { readonly failures: number; readonly coolMs: number };
  readonly keepMs: number;
  readonly maxRetryAfterMs: number;
  readonly operator: string | undefined;
  readonly codec: Codec | readonly Codec[] | undefined;
  readonly userAgent: string;
}

export function readWebhooksOptions(where: string, given: unknown): ReadWebhooksOptions {
  const read = readOptions(where, OPTIONS, given, ([name]) => /^keys?$/i.test(String(name)));
  const { rate, burst, concurrency, limits, ...others } = read;
  for (const level of ["perTenant", "perEndpoint"] as const) {
    if (read[level] !== undefined) compilePolicy(`${where}.${level}`, read[level]);
  }
  if (others.perTenant !== undefined && others.singleTenant === true) {
    const remedy = "leave it out: the sender has only one tenant; give rate, concurrency or limits";
    throw new InvalidOptionError({ where, option: "perTenant", value: others.perTenant, remedy });
  }
  const ceiling = (read.ceiling ?? {}) as Ceiling;
  if (ceiling.rate !== undefined) assertWithin(where, { rate: ceiling.rate }, {});
  if (others.proxy !== undefined && (others.allow !== undefined || others.resolve !== undefined)) {
    const option = others.allow === undefined ? "resolve" : "allow";
    const remedy = "leave it out: the proxy looks up and judges the addresses";
    throw new InvalidOptionError({ where, option, value: others[option], remedy });
  }
  if (others.operator !== undefined && others.singleTenant === true) {
    const remedy = "leave it out: the sender has only one tenant, whose events these are";
    throw new InvalidOptionError({ where, option: "operator", value: others.operator, remedy });
  }
  const { keys } = others;
  if (keys !== undefined && typeof keys !== "string") {
    const remedy = 'give one text, such as "k2:<base64>,k1:<base64>"';
    throw new InvalidOptionError({ where, option: "keys", value: "***", remedy });
  }
  return {
    name: others.name ?? "webhooks",
    shared: { rate, burst, concurrency, limits } as LimitsOptions,
    perTenant: others.perTenant ?? {},
    perEndpoint: others.perEndpoint ?? { concurrency: 10 },
    ceiling,
    isSingle: others.singleTenant ?? false,
    keys,
    secretsOf: others.secretsOf,
    allow: others.allow ?? [],
    http: others.http ?? false,
    devReceiver: readDevReceiver(where),
    proxy: others.proxy,
    ca: others.ca,
    resolve: others.resolve,
    scheduleMs: others.scheduleMs ?? SCHEDULE_MS,
    timeoutMs: others.timeoutMs ?? 15_000,
    disableAfterMs: others.disableAfterMs ?? 5 * DAY_MS,
    breaker: { failures: others.breaker?.failures ?? 5, coolMs: others.breaker?.coolMs ?? 5_000 },
    keepMs: others.keepMs ?? 7 * DAY_MS,
    maxRetryAfterMs: others.maxRetryAfterMs ?? 3_600_000,
    operator: others.operator,
    codec: others.codec,
    userAgent: others.userAgent ?? "sluice-webhooks",
  };
}
