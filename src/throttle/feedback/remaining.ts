import { parseList } from "structured-headers";
import { headerOf, readServerTimeMs } from "./headers.ts";
import { readDelayMs, readGoDurationMs, readResetMs, readRfc3339Ms } from "./retry-after.ts";

/**
 * What a downstream says is left of one of its quotas. It is not a rate: 10,000 left
 * of a quota per 1,000 s that resets in 10 s do not permit 1,000 a second.
 */
export interface Remaining {
  /** What the quota counts: `"calls"`, `"tokens"`, `"input-tokens"`, `"content-bytes"`. */
  readonly unit: string;
  /** Whole units that may still be used: `8`. */
  readonly remaining: number;
  /** Units of a full quota: `40`. Undefined when the downstream does not say. */
  readonly limit: number | undefined;
  /** Whole ms until the quota is full again: `16000`; `0` when it is by now. */
  readonly resetAfterMs: number;
}

interface Quota {
  readonly unit: string;
  readonly remaining: number | undefined;
  readonly limit: number | undefined;
  readonly resetAfterMs: number | undefined;
}

/** A larger figure is a mistake or an attack. */
const MOST_UNITS = 1e12;
const LONGEST_RESET_MS = 366 * 86_400_000;
const LONGEST_FIELD = 4_096;

/** Every bucket of Shopify's REST API, of 40, 80 or 400 calls, runs empty in 20 s: at 2, 4 or 20 calls/s. */
const SHOPIFY_DRAIN_MS = 20_000;

type ReadReset = (text: string | undefined, wallNowMs: number) => number | undefined;

/** The headers of each quota, with their names ready made: they are looked for in every answer. */
const FAMILIES = [
  ...["requests", "tokens"].map((counted) =>
    familyOf(counted, (figure) => `x-ratelimit-${figure}-${counted}`, readGoDurationMs),
  ),
  ...["requests", "tokens", "input-tokens", "output-tokens"].map((counted) =>
    familyOf(counted, (figure) => `anthropic-ratelimit-${counted}-${figure}`, readRfc3339Ms),
  ),
  familyOf("requests", (figure) => `x-ratelimit-${figure}`, readResetMs),
];

/**
 * What is left of each quota that an answer's headers name: OpenAI's,
 * Anthropic's, GitHub's, Discord's, Shopify's and those of
 * draft-ietf-httpapi-ratelimit-headers-11. A quota named in two ways comes
 * twice. Malformed and absurd figures are left out, and so is all of an
 * answer that comes from a cache. Never throws.
 */
export function readRemaining(headers: unknown, wallNowMs: number): readonly Remaining[] {
  if (isOutOfCache(headers)) return [];
  return [...readStated(headers, wallNowMs), readShopify(headers)].flatMap(toRemaining);
}

/**
 * The whole ms until all quotas that have nothing left are reset, by an answer's
 * headers: `60000` of `RateLimit: "a";r=0;t=60`. Undefined when none is used up, or
 * when none has a reset time, such as Shopify's. Not capped; never throws.
 */
export function readUsedUpMs(headers: unknown, wallNowMs: number): number | undefined {
  if (isOutOfCache(headers)) return undefined;
  const resetsMs = readStated(headers, wallNowMs).flatMap((quota) =>
    quota?.remaining === 0 && quota.limit !== 0 ? [quota.resetAfterMs ?? 0] : [],
  );
  return Math.max(0, ...resetsMs) || undefined;
}

function isOutOfCache(headers: unknown): boolean {
  return Number(headerOf(headers, "age")) > 0;
}

/** The quotas that state when they are reset. */
function readStated(headers: unknown, wallNowMs: number): readonly (Quota | undefined)[] {
  const nowMs = readServerTimeMs(headers, wallNowMs);
  const families = FAMILIES.map((family) => readFamily(headers, family, nowMs));
  return [...families, ...readRateLimit(headers)];
}

function toRemaining(quota: Quota | undefined): readonly Remaining[] {
  if (quota?.remaining === undefined || quota.resetAfterMs === undefined) return [];
  const { unit, remaining, resetAfterMs } = quota;
  if (remaining > MOST_UNITS || resetAfterMs > LONGEST_RESET_MS) return [];
  // Azure writes 0 left of 0, or a reset just now, when it does not know.
  if (remaining === 0 && (resetAfterMs === 0 || quota.limit === 0)) return [];
  const isLimitKnown = quota.limit !== undefined && quota.limit > 0 && quota.limit <= MOST_UNITS;
  const limit = isLimitKnown ? quota.limit : undefined;
  return [{ unit, remaining: Math.min(remaining, limit ?? remaining), limit, resetAfterMs }];
}

function familyOf(counted: string, nameOf: (figure: string) => string, readReset: ReadReset) {
  const [remaining, limit, reset] = [nameOf("remaining"), nameOf("limit"), nameOf("reset")];
  return { unit: toUnit(counted), remaining, limit, reset, readReset };
}

type Family = ReturnType<typeof familyOf>;

function readFamily(headers: unknown, family: Family, wallNowMs: number): Quota | undefined {
  const remaining = readWhole(headerOf(headers, family.remaining));
  if (remaining === undefined) return undefined;
  // Discord's Reset-After needs no clock of ours.
  const resetAfterMs =
    readDelayMs(headerOf(headers, `${family.reset}-after`), 1_000) ??
    family.readReset(headerOf(headers, family.reset), wallNowMs);
  const limit = readWhole(headerOf(headers, family.limit));
  return { unit: family.unit, remaining, limit, resetAfterMs };
}

function readShopify(headers: unknown): Quota | undefined {
  const given = headerOf(headers, "x-shopify-shop-api-call-limit") ?? "";
  const [used, limit] = /^ *\d+\/\d+ *$/.test(given) ? given.split("/").map(readWhole) : [];
  if (used === undefined || limit === undefined || limit === 0) return undefined;
  const resetAfterMs = Math.ceil((used * SHOPIFY_DRAIN_MS) / limit);
  return { unit: "calls", remaining: Math.max(0, limit - used), limit, resetAfterMs };
}

/** `RateLimit-Policy` has a limit's size and unit, by its name, and its window, for a limit without a reset time. */
function readRateLimit(headers: unknown): readonly (Quota | undefined)[] {
  const limits = readList(headerOf(headers, "ratelimit"));
  if (limits.length === 0) return [];
  const policies = new Map(readList(headerOf(headers, "ratelimit-policy")));
  return limits.map(([name, parameters]) => {
    const policy = policies.get(name);
    const unit = readQuotaUnit(policy?.get("qu"));
    if (unit === undefined) return undefined;
    const resetAfterMs = readDelayMs(wholeOf(parameters.get("t") ?? policy?.get("w")), 1_000);
    const remaining = wholeOf(parameters.get("r"));
    return { unit, remaining, limit: wholeOf(policy?.get("q")), resetAfterMs };
  });
}

function readQuotaUnit(given: unknown = "requests"): string | undefined {
  const isUnit = typeof given === "string" && /^[a-z][a-z0-9-]{0,31}$/.test(given);
  return isUnit ? toUnit(given) : undefined;
}

type ItemParameters = ReadonlyMap<string, unknown>;

/**
 * The string items of a list of structured fields (RFC 9651); only strings name policies. A list with a syntax error
 * anywhere counts as empty (§4.2).
 */
function readList(field: string | undefined): readonly (readonly [name: string, ItemParameters])[] {
  const text = field?.trim() ?? "";
  if (text === "" || text.length > LONGEST_FIELD) return [];
  try {
    return parseList(text).flatMap(([name, parameters]: readonly [unknown, ItemParameters]) =>
      typeof name === "string" ? [[name, parameters] as const] : [],
    );
  } catch {
    return [];
  }
}

/** A whole number that is not negative, not even `-0`. */
function wholeOf(item: unknown): number | undefined {
  if (typeof item !== "number" || !Number.isInteger(item)) return undefined;
  return item < 0 || Object.is(item, -0) ? undefined : item;
}

function toUnit(counted: string): string {
  return counted === "requests" ? "calls" : counted;
}

function readWhole(text: string | undefined): number | undefined {
  const digits = text?.trim() ?? "";
  return /^\d{1,15}$/.test(digits) ? Number(digits) : undefined;
}
