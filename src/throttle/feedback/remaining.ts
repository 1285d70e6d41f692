import { parseList } from "structured-headers";
import type { QuotaPeriod } from "../../core/answer.ts";
import { FIGURES, FILLERS, PERIODS, TIME_UNITS, UNITS, type Figure } from "./dialects.ts";
import { listHeaders, readServerTimeMs } from "./headers.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/**
 * What is left of one of a downstream's quotas. It is not a rate. For example, 10,000 units may be left of a quota per
 * 1,000 s that resets in 10 s. That does not allow 1,000 units a second.
 */
interface Remaining {
  /** What the quota counts: `"calls"`, `"tokens"`, `"input-tokens"`, `"content-bytes"`. */
  readonly unit: string;
  /** Whole units that may still be used: `8`. */
  readonly remaining: number;
  /** Units of a full quota: `40`. Undefined if the downstream does not say. */
  readonly limit: number | undefined;
  /** Whole ms until the quota is full again: `16000`; `0` if it is full now. */
  readonly resetAfterMs: number;
}

/** A quota with nothing left. */
export interface UsedUp {
  readonly unit: string;
  /** The quota's period, if the headers name it. */
  readonly period: QuotaPeriod | undefined;
  /** Whole ms until it is full again: `60000`. Undefined if no header says so. */
  readonly resetAfterMs: number | undefined;
  readonly resetOf: ResetOf;
}

/**
 * What a reset time means:
 *
 * - `"window"`: the end of a window.
 * - `"refill"`: the time at which the quota is full; calls may start earlier.
 * - `"advice"`: a hint by draft-ietf-httpapi-ratelimit-headers, which `Retry-After` overrides.
 */
type ResetOf = "window" | "refill" | "advice";

type Headers = ReadonlyMap<string, string>;

interface Quota {
  readonly unit: string;
  readonly period?: QuotaPeriod | undefined;
  readonly remaining: number | undefined;
  readonly limit: number | undefined;
  readonly resetAfterMs: number | undefined;
  readonly resetOf?: ResetOf;
}

/** A larger number is a mistake or an attack. */
const MOST_UNITS = 1e12;
const MOST_RESET_MS = 366 * 86_400_000;
/** A reset later than a day, plus an hour for daylight saving time, is ignored unless the headers name the period. */
export const LONGEST_RESET_MS: number = 25 * 3_600_000;
const LONGEST_FIELD = 4_096;

/** Every bucket of Shopify's REST API, of 40, 80 or 400 calls, drains in 20 s: at 2, 4 or 20 calls/s. */
const SHOPIFY_DRAIN_MS = 20_000;

/** What the name of a quota header means: `x-ratelimit-remaining-tokens`, `RateLimit-Reset`, `x-rate-limit-limit`. */
interface QuotaHeader {
  /** What distinguishes this quota from the others of a response: `"tokens"`, `"requests day"`. */
  readonly quota: string;
  readonly figure: Figure;
  /** The unit of a time, in ms; undefined if the value shows it. */
  readonly unitMs: number | undefined;
}

type Figures = Partial<Record<Figure, string>> & { unitMs?: number };

/** Header names repeat from response to response. Above this number of names, the cache starts anew. */
const MOST_NAMES = 1_000;
const namesRead = new Map<string, QuotaHeader | undefined>();

/**
 * What is left of each quota that a response's headers name. Never throws. It reads:
 *
 * - headers with `RateLimit`, `Rate-Limit`, `Limit` or `Quota` in their names, also with a vendor's name in front and
 *   words for what they count
 * - Shopify's header
 * - the headers of draft-ietf-httpapi-ratelimit-headers, up to its 11th edition
 *
 * A quota that is named in two ways appears twice. Malformed and absurd numbers are left out, and so are cached
 * responses.
 */
export function readRemaining(source: unknown, wallNowMs: number): readonly Remaining[] {
  const headers = listHeaders(source);
  if (isOutOfCache(headers)) return [];
  return [...readStated(headers, wallNowMs), readShopify(headers)].flatMap(toRemaining);
}

/** The quotas with nothing left, according to a response's headers. Never throws. */
export function readUsedUp(headers: Headers, wallNowMs: number): readonly UsedUp[] {
  if (isOutOfCache(headers)) return [];
  return readStated(headers, wallNowMs).flatMap((quota) => {
    const { unit, period, resetAfterMs, resetOf = "window" } = quota;
    const isUsedUp = quota.remaining === 0 && quota.limit !== 0;
    return isUsedUp ? [{ unit, period, resetAfterMs, resetOf }] : [];
  });
}

export function longestReset(usedUp: readonly UsedUp[]): UsedUp | undefined {
  return usedUp.toSorted((a, b) => (b.resetAfterMs ?? 0) - (a.resetAfterMs ?? 0))[0];
}

/**
 * The latest of the times in a response. Some servers round their `Retry-After` down, even to 0, while the window is
 * closed. For a quota that refills gradually, the reset is the time at which it is full; then the earlier `Retry-After`
 * is right.
 */
export function latestOf(
  askedMs: number | undefined,
  usedUp: readonly UsedUp[],
  resetMs: number | undefined,
): number | undefined {
  const usedUpMs = longestReset(usedUp)?.resetAfterMs || resetMs || undefined;
  if (askedMs === undefined) return usedUpMs;
  // By the draft, `Retry-After` overrides the draft's fields, and the headers for older clients beside them.
  const advice = usedUp.filter(({ resetOf }) => resetOf === "advice");
  const ends = usedUp.filter(({ resetOf }) => resetOf === "window");
  const windows = advice.length === 0 ? ends : askedMs === 0 ? advice : [];
  const endMs = longestReset(windows)?.resetAfterMs ?? 0;
  const latestMs = endMs <= LONGEST_RESET_MS ? Math.max(askedMs, endMs) : askedMs;
  // A closed window whose reset is now has not opened yet.
  return latestMs === 0 && windows.length > 0 ? undefined : latestMs;
}

/**
 * Whole ms until the last reset of a quota for which the headers do not say how much is left; with `isAny`, of any
 * quota.
 */
export function readNextReset(
  headers: Headers,
  wallNowMs: number,
  isAny: boolean,
): number | undefined {
  if (isOutOfCache(headers)) return undefined;
  const resetsMs = readStated(headers, wallNowMs).flatMap(({ remaining, resetAfterMs }) =>
    resetAfterMs !== undefined && (isAny || remaining === undefined) ? [resetAfterMs] : [],
  );
  return Math.max(0, ...resetsMs) || undefined;
}

/** The period in a header's value, for example Xero's `X-Rate-Limit-Problem: day`. */
export function readNamedPeriod(headers: Headers): QuotaPeriod | undefined {
  for (const [name, value] of headers) {
    if (/limit-(?:problem|scope|type|reason|name)$/.test(name)) return periodOf(value);
  }
  return undefined;
}

function isOutOfCache(headers: Headers): boolean {
  return Number(headers.get("age")) > 0;
}

/** The quotas with a reset time. */
function readStated(headers: Headers, wallNowMs: number): readonly Quota[] {
  const nowMs = readServerTimeMs(headers, wallNowMs);
  return [...readNamed(headers, nowMs), ...readRateLimit(headers)];
}

function toRemaining(quota: Quota | undefined): readonly Remaining[] {
  if (quota?.remaining === undefined || quota.resetAfterMs === undefined) return [];
  const { unit, remaining, resetAfterMs } = quota;
  if (remaining > MOST_UNITS || resetAfterMs > MOST_RESET_MS) return [];
  // Azure sends 0 left of 0, or a reset now, when it does not know.
  if (remaining === 0 && (resetAfterMs === 0 || quota.limit === 0)) return [];
  const isLimitKnown = quota.limit !== undefined && quota.limit > 0 && quota.limit <= MOST_UNITS;
  const limit = isLimitKnown ? quota.limit : undefined;
  return [{ unit, remaining: Math.min(remaining, limit ?? remaining), limit, resetAfterMs }];
}

/** The quotas with one header for each number. */
function readNamed(headers: Headers, nowMs: number): readonly Quota[] {
  const quotas = new Map<string, Figures>();
  for (const [name, value] of headers) {
    const read = readNameOnce(name);
    if (read === undefined) continue;
    const quota = quotas.get(read.quota) ?? {};
    quotas.set(read.quota, quota);
    quota[read.figure] ??= value;
    if (read.figure === "delay" && read.unitMs !== undefined) quota.unitMs = read.unitMs;
  }
  const found: Quota[] = [];
  for (const [words, { remaining, limit, ...own }] of quotas) {
    const left = readFigure(remaining);
    if (left === undefined && remaining !== undefined) continue;
    const isTimed = own.reset !== undefined || own.delay !== undefined;
    const { reset, delay, unitMs = 1_000 } = isTimed ? own : (commonOf(quotas, words) ?? own);
    // A delay does not depend on our clock.
    const resetAfterMs =
      (delay === undefined
        ? undefined
        : (readDelayMs(delay, unitMs) ?? readWaitMs(delay, nowMs))) ?? readWaitMs(reset, nowMs);
    const [unit, period] = [unitOf(words) ?? "calls", periodOf(words)];
    // Durations in Go's form: OpenAI's, and those of compatible servers.
    const isRefill = words.startsWith("anthropic") || /\d(?:ms|s|m|h)$/.test(reset?.trim() ?? "");
    const resetOf = isRefill ? "refill" : "window";
    found.push({ unit, period, remaining: left, limit: readFigure(limit), resetAfterMs, resetOf });
  }
  // The order of headers carries no meaning.
  return found.toSorted((one, other) => rankOf(one) - rankOf(other));
}

/** A reset time that is shared by several quotas: its name lacks the words that distinguish them. */
function commonOf(quotas: ReadonlyMap<string, Figures>, words: string): Figures | undefined {
  for (const [name, figures] of quotas) {
    if (figures.remaining !== undefined && name !== "") continue;
    if (name === "" || words.startsWith(`${name} `)) return figures;
  }
  return undefined;
}

function rankOf({ unit }: Quota): number {
  return unit === "calls" ? 0 : unit === "tokens" ? 1 : 2;
}

function readNameOnce(name: string): QuotaHeader | undefined {
  // Most headers have other names.
  if (!/limit|quota/.test(name)) return undefined;
  if (!namesRead.has(name)) {
    if (namesRead.size >= MOST_NAMES) namesRead.clear();
    namesRead.set(name, readName(name));
  }
  return namesRead.get(name);
}

function readName(name: string): QuotaHeader | undefined {
  const [, before = "", after = ""] =
    /^(?:x-)?(?:ms-)?(.*?)-?(?:rate-?limit\w*|limits?|quota)(?:-(.*))?$/.exec(name) ?? [];
  const words = `${before}-${after}`.split(/[-_]/).flatMap(wordsOf);
  const figureAt = words.findLastIndex((word) => FIGURES.has(word));
  const isRetry = words.includes("retry");
  if (figureAt === -1 && !isRetry) return undefined;
  const figure = isRetry ? "delay" : FIGURES.get(words[figureAt]!)!;
  const others = words.filter((word, index) => index !== figureAt && word !== "retry");
  const [unitMs] = others.flatMap((word) => TIME_UNITS.get(word) ?? []);
  const isDelay = figure === "reset" && (others.includes("after") || unitMs !== undefined);
  const quota = others.filter((word) => !FILLERS.has(word) && !TIME_UNITS.has(word)).join(" ");
  return { quota, figure: isDelay ? "delay" : figure, unitMs };
}

/** Some servers write both as one word: `userremaining` of hapi's plugin. */
function wordsOf(word: string): readonly string[] {
  const [, quota, figure] = /^(path|user|ip|app|auth)(limit|remaining|reset)$/.exec(word) ?? [];
  if (quota !== undefined && figure !== undefined) return [quota, figure];
  return word === "" ? [] : [word];
}

function readShopify(headers: Headers): Quota | undefined {
  const given = headers.get("x-shopify-shop-api-call-limit") ?? "";
  const [used, limit] = /^ *\d+\/\d+ *$/.test(given) ? given.split("/").map(readFigure) : [];
  if (used === undefined || limit === undefined || limit === 0) return undefined;
  const resetAfterMs = Math.ceil((used * SHOPIFY_DRAIN_MS) / limit);
  return { unit: "calls", remaining: Math.max(0, limit - used), limit, resetAfterMs };
}

/** `RateLimit-Policy` has a limit's size and unit, by its name, and the window of a limit without a reset time. */
function readRateLimit(headers: Headers): readonly Quota[] {
  const field = headers.get("ratelimit");
  const limits = readList(field);
  if (limits.length === 0) return readOneLimit(field);
  const policies = new Map(readList(headers.get("ratelimit-policy")));
  return limits.flatMap(([name, parameters]) => {
    const policy = policies.get(name);
    const unit = readQuotaUnit(policy?.get("qu"));
    if (unit === undefined) return [];
    const resetAfterMs = readDelayMs(wholeOf(parameters.get("t") ?? policy?.get("w")), 1_000);
    const remaining = wholeOf(parameters.get("r"));
    const period = WINDOWS.get(wholeOf(policy?.get("w")) ?? 0) ?? periodOf(name);
    const limit = wholeOf(policy?.get("q"));
    return [{ unit, period, remaining, limit, resetAfterMs, resetOf: "advice" as const }];
  });
}

const WINDOWS: ReadonlyMap<number, QuotaPeriod> = new Map([
  [1, "second"],
  [60, "minute"],
  [3_600, "hour"],
  [86_400, "day"],
]);

/** The form of the draft's seventh edition: `limit=100, remaining=50, reset=5`. */
function readOneLimit(field: string | undefined): readonly Quota[] {
  if (field === undefined || field.length > LONGEST_FIELD) return [];
  const figures = new Map<string, string>();
  for (const part of field.split(",")) {
    const [, name, figure] = /^\s*(limit|remaining|reset)\s*=\s*(\d{1,15})\s*$/.exec(part) ?? [];
    if (name === undefined || figure === undefined) return [];
    figures.set(name, figure);
  }
  const [remaining, limit] = ["remaining", "limit"].map((name) => readFigure(figures.get(name)));
  const resetAfterMs = readDelayMs(figures.get("reset"), 1_000);
  return [{ unit: "calls", remaining, limit, resetAfterMs, resetOf: "advice" }];
}

function readQuotaUnit(given: unknown = "requests"): string | undefined {
  const isUnit = typeof given === "string" && /^[a-z][a-z0-9-]{0,31}$/.test(given);
  return isUnit ? toUnit(given) : undefined;
}

type ItemParameters = ReadonlyMap<string, unknown>;

/**
 * The string items of a list of structured fields (RFC 9651); only strings name policies. A list with a syntax error
 * counts as empty (§4.2).
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

/** A whole number that is not negative, and not `-0`. */
function wholeOf(item: unknown): number | undefined {
  if (typeof item !== "number" || !Number.isInteger(item)) return undefined;
  return item < 0 || Object.is(item, -0) ? undefined : item;
}

function toUnit(counted: string): string {
  return counted === "requests" ? "calls" : counted;
}

/** The whole units of a number, which may have decimals, and a policy behind it: `100` for `"100, 100;w=60"`. */
function readFigure(text: string | undefined): number | undefined {
  const [, digits] =
    /^(\d{1,15})(?:\.\d*)?(?:\s*[,;].*)?$/.exec(text?.trim().slice(0, LONGEST_FIELD) ?? "") ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** How much of a text is searched. */
const MOST_SEARCHED = 2_000;

/**
 * The period in the name of a quota: `"day"` for `GenerateRequestsPerDayPerProject`. If there are several, the longest.
 */
export function periodOf(text: string): QuotaPeriod | undefined {
  const words = wordsIn(text);
  return PERIODS.find(([, form]) => form.test(words))?.[0];
}

/** The period in a sentence, which may also contain a wait: `"day"` for `"… on requests per day (RPD)"`. */
export function periodIn(sentence: string): QuotaPeriod | undefined {
  const given = sentence.slice(0, MOST_SEARCHED);
  const named = given.match(
    /\bper \d+ seconds\b|[a-z]_(?:month|day|hour|minute)\b|\b(?:per|each|every|a|this)[ -]?(?:month|day|hour|min(?:ute)?|second)\b|\/ ?(?:mo|month|day|d|hour|h|minute|min|m|second|sec|s)\b|\b(?:month|dai|hour|minute|second)ly\b|\b(?:[io]?[rt]|q)p[mdhs]\b/gi,
  );
  if (named === null) return undefined;
  const words = named.map((each) =>
    each.replace(/^(?:a|each|every|this)\b/i, "per").replace(/per \d+ seconds/i, "per minute"),
  );
  return periodOf(words.join(" "));
}

/** What a quota counts: `"tokens"` for `generate_content_input_token_count`. */
export function unitOf(text: string): string | undefined {
  const words = wordsIn(text);
  return UNITS.find(([, form]) => form.test(words))?.[0];
}

/** Splits text into words with one blank between them, also at capitals, dashes and underscores. */
function wordsIn(text: string): string {
  return text
    .slice(0, MOST_SEARCHED)
    .replaceAll(/([a-z\d])(?=[A-Z])/g, "$1 ")
    .replaceAll(/[-_./:]+/g, " ")
    .toLowerCase();
}
