import { parseList } from "structured-headers";
import type { QuotaPeriod } from "../../core/answer.ts";
import { FIGURES, FILLERS, PERIODS, TIME_UNITS, UNITS, type Figure } from "./dialects.ts";
import { listHeaders, readServerTimeMs } from "./headers.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/**
 * The remaining units of one quota of a downstream, and the time until the quota resets. Do not compute a rate from
 * these two numbers. For example, 10,000 units may be left of a quota per 1,000 s that resets in 10 s. This does not
 * allow 1,000 units per second.
 */
interface Remaining {
  /** The unit that the quota counts: `"calls"`, `"tokens"`, `"input-tokens"`, `"content-bytes"`. */
  readonly unit: string;
  /** The whole units that may still be used: `8`. */
  readonly remaining: number;
  /** The units of a full quota: `40`. Undefined if the downstream does not name it. */
  readonly limit: number | undefined;
  /** Whole ms until the quota is full again: `16000`. `0` if the quota is full now. */
  readonly resetAfterMs: number;
}

/** A used-up quota, which has no units left. */
export interface UsedUp {
  readonly unit: string;
  /** The quota's period, if the headers name it. */
  readonly period: QuotaPeriod | undefined;
  /** Whole ms until the quota is full again: `60000`. Undefined if no header names the reset time. */
  readonly resetAfterMs: number | undefined;
  readonly resetOf: ResetOf;
}

/**
 * The meaning of a reset time:
 *
 * - `"window"`: the end of the quota's window.
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

/** The most units of a quota that are accepted. A larger number is a mistake or an attack. */
const MOST_UNITS = 1e12;
const MOST_RESET_MS = 366 * 86_400_000;
/** The latest reset that is accepted without a named period: a day, plus an hour for daylight saving time. */
export const LONGEST_RESET_MS: number = 25 * 3_600_000;
const LONGEST_FIELD = 4_096;

/**
 * The time in which a full bucket of Shopify's REST API drains. It is the same for all sizes: 40, 80 or 400 calls drain
 * at 2, 4 or 20 calls/s.
 */
const SHOPIFY_DRAIN_MS = 20_000;

/** Zuul's reset is a delay in ms, but neither name nor value shows this. */
const ZUUL_RESET = { figure: "delay", unitMs: 1 } as const;

/** A used-up day of Etsy has calls again after two hours at most, because it slides in steps of two hours. */
const ETSY_QUOTAS = [
  {
    left: "x-remaining-this-second",
    size: "x-limit-per-second",
    period: "second",
    resetAfterMs: 1_000,
  },
  {
    left: "x-remaining-today",
    size: "x-limit-per-day",
    period: "day",
    resetAfterMs: 2 * 3_600_000,
  },
] as const;

/**
 * The meaning of a quota header's name, such as `x-ratelimit-remaining-tokens`, `RateLimit-Reset` or
 * `x-rate-limit-limit`.
 */
interface QuotaHeader {
  /**
   * The words in the name that distinguish this quota from others of the same response: `"tokens"`, `"requests day"`.
   */
  readonly quota: string;
  readonly figure: Figure;
  /** The unit of a time in the header, in ms. Undefined if only the value shows the unit. */
  readonly unitMs: number | undefined;
}

type Figures = Partial<Record<Figure, string>> & {
  unitMs?: number;
  /** The length of the quota's window, in ms. */
  intervalMs?: number | undefined;
};

/**
 * The most header names in the cache. Above this number, the cache is cleared. Caching works because names repeat from
 * response to response.
 */
const MOST_NAMES = 1_000;
const namesRead = new Map<string, QuotaHeader | undefined>();

/**
 * Returns the remaining units of each quota that the headers of a response name. Never throws. It reads:
 *
 * - headers with `RateLimit`, `Rate-Limit`, `Limit` or `Quota` in their names; the name may also contain the vendor and
 *   the unit
 * - Shopify's header
 * - the headers of Zendesk's endpoints and of Etsy
 * - the headers of draft-ietf-httpapi-ratelimit-headers, up to its 11th edition
 *
 * If a response names one quota in two ways, the quota appears twice. Malformed and absurd numbers are ignored, and so
 * are responses from a cache.
 */
export function readRemaining(source: unknown, wallNowMs: number): readonly Remaining[] {
  const headers = listHeaders(source);
  if (isOutOfCache(headers)) return [];
  return [...readStated(headers, wallNowMs), readShopify(headers)].flatMap(toRemaining);
}

/** Returns the used-up quotas, according to the headers of a response. Never throws. */
export function readUsedUp(headers: Headers, wallNowMs: number): readonly UsedUp[] {
  if (isOutOfCache(headers)) return [];
  return readStated(headers, wallNowMs).flatMap((quota) => {
    const { unit, period, resetAfterMs, resetOf = "window" } = quota;
    const isUsedUp = quota.remaining === 0 && quota.limit !== 0;
    return isUsedUp ? [{ unit, period, resetAfterMs, resetOf }] : [];
  });
}

/** True if the headers name quotas, and each of them has a size of 0. */
export function hasOnlyEmptyQuotas(headers: Headers, wallNowMs: number): boolean {
  const stated = readStated(headers, wallNowMs);
  return stated.length > 0 && stated.every(({ limit }) => limit === 0);
}

export function longestReset(usedUp: readonly UsedUp[]): UsedUp | undefined {
  return usedUp.toSorted((a, b) => (b.resetAfterMs ?? 0) - (a.resetAfterMs ?? 0))[0];
}

/**
 * Returns the wait in ms until the latest time in a response. Some servers round `Retry-After` down, even to 0,
 * although their window is still closed. For a quota that refills gradually, the earlier `Retry-After` is right,
 * because the reset time says when the quota is full.
 */
export function latestOf(
  askedMs: number | undefined,
  usedUp: readonly UsedUp[],
  resetMs: number | undefined,
): number | undefined {
  const usedUpMs = longestReset(usedUp)?.resetAfterMs || resetMs || undefined;
  if (askedMs === undefined) return usedUpMs;
  // By the draft, `Retry-After` overrides the draft's fields. It then also overrides the older headers in the same
  // response.
  const advice = usedUp.filter(({ resetOf }) => resetOf === "advice");
  const ends = usedUp.filter(({ resetOf }) => resetOf === "window");
  const windows = advice.length === 0 ? ends : askedMs === 0 ? advice : [];
  const endMs = longestReset(windows)?.resetAfterMs ?? 0;
  const latestMs = endMs <= LONGEST_RESET_MS ? Math.max(askedMs, endMs) : askedMs;
  // The window is still closed, so a reset time of now is wrong.
  return latestMs === 0 && windows.length > 0 ? undefined : latestMs;
}

/**
 * Returns the whole ms until the latest reset time. Considers only quotas whose remaining units are unknown, or with
 * `isAny`, all quotas.
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

/** Returns the quota period in the value of a header, for example in Xero's `X-Rate-Limit-Problem: day`. */
export function readNamedPeriod(headers: Headers): QuotaPeriod | undefined {
  for (const [name, value] of headers) {
    if (/limit-(?:problem|scope|type|reason|name)$/.test(name)) return periodOf(value);
  }
  return undefined;
}

function isOutOfCache(headers: Headers): boolean {
  return Number(headers.get("age")) > 0;
}

/** Returns the quotas that the headers name, in any supported form. */
function readStated(headers: Headers, wallNowMs: number): readonly Quota[] {
  const nowMs = readServerTimeMs(headers, wallNowMs);
  return [
    ...readNamed(headers, nowMs),
    ...readRateLimit(headers),
    ...readZendesk(headers),
    ...readEtsy(headers),
  ];
}

/** Reads the quotas of Zendesk's endpoints: `zendesk-ratelimit-tickets-index: total=100; remaining=99; resets=41`. */
function readZendesk(headers: Headers): readonly Quota[] {
  return [...headers].flatMap(([name, value]) => {
    if (!name.startsWith("zendesk-ratelimit-")) return [];
    const figure = (word: string): string | undefined =>
      new RegExp(String.raw`(?:^|;)\s*${word}=(\d{1,15})\s*(?:;|$)`).exec(value)?.[1];
    const [remaining, limit] = ["remaining", "total"].map((word) => readFigure(figure(word)));
    const resetAfterMs = readDelayMs(figure("resets"), 1_000);
    return [{ unit: "calls", remaining, limit, resetAfterMs }];
  });
}

/** Reads the quotas of Etsy, which have no reset times: `x-remaining-this-second: 149`, `x-remaining-today: 99998`. */
function readEtsy(headers: Headers): readonly Quota[] {
  return ETSY_QUOTAS.flatMap(({ left, size, period, resetAfterMs }) => {
    const [remaining, limit] = [left, size].map((name) => readFigure(headers.get(name)));
    if (remaining === undefined) return [];
    // A day that is not used up yet does not reset as a whole, so no pace follows from it.
    const resetMs = remaining === 0 || period === "second" ? resetAfterMs : undefined;
    return [{ unit: "calls", period, remaining, limit, resetAfterMs: resetMs }];
  });
}

function toRemaining(quota: Quota | undefined): readonly Remaining[] {
  if (quota?.remaining === undefined || quota.resetAfterMs === undefined) return [];
  const { unit, remaining, resetAfterMs } = quota;
  if (remaining > MOST_UNITS || resetAfterMs > MOST_RESET_MS) return [];
  // Azure sends 0 units left of 0, or a reset time of now, if it does not know the quota.
  if (remaining === 0 && (resetAfterMs === 0 || quota.limit === 0)) return [];
  const isLimitKnown = quota.limit !== undefined && quota.limit > 0 && quota.limit <= MOST_UNITS;
  const limit = isLimitKnown ? quota.limit : undefined;
  return [{ unit, remaining: Math.min(remaining, limit ?? remaining), limit, resetAfterMs }];
}

/** Returns the quotas that use a separate header for each number. */
function readNamed(headers: Headers, nowMs: number): readonly Quota[] {
  const quotas = new Map<string, Figures>();
  for (const [name, value] of headers) {
    const read = readNameOnce(name);
    if (read === undefined) continue;
    const quota = quotas.get(read.quota) ?? {};
    quotas.set(read.quota, quota);
    const { figure, unitMs } = isFromZuul(headers, name) ? ZUUL_RESET : read;
    quota[figure] ??= value;
    if (figure === "delay" && unitMs !== undefined) quota.unitMs = unitMs;
    if (read.figure === "interval") quota.intervalMs = readDelayMs(value, read.unitMs ?? 1_000);
  }
  const found: Quota[] = [];
  for (const [words, quota] of quotas) {
    const isTimed = quota.reset !== undefined || quota.delay !== undefined;
    const timed = isTimed ? quota : (commonOf(quotas, words) ?? quota);
    const { remaining, limit, intervalMs } = quota;
    const { reset, delay, unitMs = 1_000 } = timed;
    for (const each of eachOf({ remaining, limit, reset })) {
      const size = readFigure(each.limit);
      const left = readLeft(each.remaining, size);
      if (left === undefined && each.remaining !== undefined) continue;
      // A delay is preferred to a reset time, because it does not depend on the clock of this process. The window ends
      // within its length.
      const resetAfterMs =
        (delay === undefined
          ? undefined
          : (readDelayMs(delay, unitMs) ?? readWaitMs(delay, nowMs))) ??
        readWaitMs(each.reset, nowMs) ??
        intervalMs;
      const [unit, period] = [unitOf(words) ?? "calls", periodOf(words)];
      // OpenAI and compatible servers send the reset as a duration in Go's notation.
      const isRefill =
        words.startsWith("anthropic") || /\d(?:ms|s|m|h)$/.test(each.reset?.trim() ?? "");
      const resetOf = isRefill ? "refill" : "window";
      found.push({ unit, period, remaining: left, limit: size, resetAfterMs, resetOf });
    }
  }
  // Sorts the quotas, because the order of headers carries no meaning.
  return found.toSorted((one, other) => rankOf(one) - rankOf(other));
}

type Stated = Readonly<Record<"remaining" | "limit" | "reset", string | undefined>>;

/**
 * Splits headers that each list the figures of several quotas, such as those of Brave's API: `1, 0` remaining with the
 * reset times `1, 1419704`. Other headers describe one quota.
 */
function eachOf({ remaining, limit, reset }: Stated): readonly Stated[] {
  const [lefts, sizes, resets] = [remaining, limit, reset].map((text) => text?.split(",") ?? []);
  if (lefts!.length < 2 || lefts!.length !== resets!.length) return [{ remaining, limit, reset }];
  return lefts!.map((remaining, at) => ({ remaining, limit: sizes![at], reset: resets![at] }));
}

/** Returns a reset time that several quotas share. Its header name lacks the words that distinguish these quotas. */
function commonOf(quotas: ReadonlyMap<string, Figures>, words: string): Figures | undefined {
  for (const [name, figures] of quotas) {
    if (figures.remaining !== undefined && name !== "") continue;
    if (name === "" || words.startsWith(`${name} `)) return figures;
  }
  return undefined;
}

/** True for a reset time of Spring Cloud Zuul RateLimit that comes with its time quota. No other limiter sends both. */
function isFromZuul(headers: Headers, name: string): boolean {
  if (!name.startsWith("x-ratelimit-reset")) return false;
  const key = name.slice("x-ratelimit-reset".length);
  return headers.has(`x-ratelimit-quota${key}`) && headers.has(`x-ratelimit-remaining-quota${key}`);
}

function rankOf({ unit }: Quota): number {
  return unit === "calls" ? 0 : unit === "tokens" ? 1 : 2;
}

function readNameOnce(name: string): QuotaHeader | undefined {
  // Most headers are not about quotas, so this check comes first.
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

/** Splits a word that names both quota and figure, such as `userremaining` of hapi's plugin. */
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

/**
 * Reads `RateLimit` and `RateLimit-Policy`. The policy header names the size and unit of each limit, and the window of
 * a limit without a reset time.
 */
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

/** Reads the form of the draft's seventh edition: `limit=100, remaining=50, reset=5`. */
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
 * Returns the string items of a structured field list (RFC 9651), because only strings name policies. A list with a
 * syntax error counts as empty (§4.2).
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

/** Returns the item if it is a whole number from 0, but not `-0`. Otherwise undefined. */
function wholeOf(item: unknown): number | undefined {
  if (typeof item !== "number" || !Number.isInteger(item)) return undefined;
  return item < 0 || Object.is(item, -0) ? undefined : item;
}

function toUnit(counted: string): string {
  return counted === "requests" ? "calls" : counted;
}

/**
 * Returns the whole units in a header's value. The number may have decimals, and a policy may follow it: `100` for
 * `"100, 100;w=60"`.
 */
function readFigure(text: string | undefined): number | undefined {
  const [, digits] =
    /^(\d{1,15})(?:\.\d*)?(?:\s*[,;].*)?$/.exec(text?.trim().slice(0, LONGEST_FIELD) ?? "") ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * Returns the units that are left of a quota of a known size. A negative number counts as 0, because hapi-rate-limit
 * counts refused calls too. Azure sends -1 for both numbers if it does not know the quota.
 */
function readLeft(text: string | undefined, size: number | undefined): number | undefined {
  const isOverdrawn = size !== undefined && size > 0 && /^-\d{1,15}$/.test(text?.trim() ?? "");
  return isOverdrawn ? 0 : readFigure(text);
}

/** The number of characters of a text that are searched. */
const MOST_SEARCHED = 2_000;

/**
 * Returns the period in the name of a quota: `"day"` for `GenerateRequestsPerDayPerProject`. If the name has several
 * periods, returns the longest.
 */
export function periodOf(text: string): QuotaPeriod | undefined {
  const words = wordsIn(text);
  return PERIODS.find(([, form]) => form.test(words))?.[0];
}

/**
 * Returns the quota period in a sentence: `"day"` for `"… on requests per day (RPD)"`. Ignores the words of a wait in
 * the same sentence.
 */
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

/** Returns the unit that a quota counts: `"input-tokens"` for `generate_content_input_token_count`. */
export function unitOf(text: string): string | undefined {
  const words = wordsIn(text);
  return UNITS.find(([, form]) => form.test(words))?.[0];
}

/**
 * Splits a text into lower-case words with one space between them. Words also end at capitals, dashes and underscores.
 */
function wordsIn(text: string): string {
  return text
    .slice(0, MOST_SEARCHED)
    .replaceAll(/([a-z\d])(?=[A-Z])/g, "$1 ")
    .replaceAll(/[-_./:]+/g, " ")
    .toLowerCase();
}
