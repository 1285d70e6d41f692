import { parseList } from "structured-headers";
import type { QuotaPeriod } from "../../core/answer.ts";
import { FIGURES, FILLERS, PERIODS, TIME_UNITS, UNITS, type Figure } from "./dialects.ts";
import { listHeaders, readServerTimeMs } from "./headers.ts";
import { readDelayMs, readWaitMs } from "./retry-after.ts";

/**
 * What a downstream says is left of one of its quotas. It is not a rate: 10,000 left
 * of a quota per 1,000 s that resets in 10 s do not permit 1,000 a second.
 */
interface Remaining {
  /** What the quota counts: `"calls"`, `"tokens"`, `"input-tokens"`, `"content-bytes"`. */
  readonly unit: string;
  /** Whole units that may still be used: `8`. */
  readonly remaining: number;
  /** Units of a full quota: `40`. Undefined when the downstream does not say. */
  readonly limit: number | undefined;
  /** Whole ms until the quota is full again: `16000`; `0` when it is by now. */
  readonly resetAfterMs: number;
}

/** A quota that has nothing left. */
export interface UsedUp {
  readonly unit: string;
  /** For which period it is given, where the headers say so. */
  readonly period: QuotaPeriod | undefined;
  /** Whole ms until it is whole again: `60000`. Undefined when no header says so. */
  readonly resetAfterMs: number | undefined;
  readonly resetOf: ResetOf;
}

/**
 * What a reset time means beside a `Retry-After`: the end of a `"window"`; when a `"refill"` is whole, while calls may
 * start before; or the `"advice"` of draft-ietf-httpapi-ratelimit-headers, over which `Retry-After` wins.
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

/** A larger figure is a mistake or an attack. */
const MOST_UNITS = 1e12;
const MOST_RESET_MS = 366 * 86_400_000;
/** A reset after more than a day, with an hour for daylight saving time, is not believed without a word for the period. */
export const LONGEST_RESET_MS: number = 25 * 3_600_000;
const LONGEST_FIELD = 4_096;

/** Every bucket of Shopify's REST API, of 40, 80 or 400 calls, runs empty in 20 s: at 2, 4 or 20 calls/s. */
const SHOPIFY_DRAIN_MS = 20_000;

/** A header of a quota, by its name: `x-ratelimit-remaining-tokens`, `RateLimit-Reset`, `x-rate-limit-limit`. */
interface QuotaHeader {
  /** What tells this quota from the others of an answer: `"tokens"`, `"requests day"`. */
  readonly quota: string;
  readonly figure: Figure;
  /** In what a time is counted, in ms; undefined where its form says so. */
  readonly unitMs: number | undefined;
}

type Figures = Partial<Record<Figure, string>> & { unitMs?: number };

/** Names repeat from answer to answer; of more than this, all are read anew. */
const MOST_NAMES = 1_000;
const namesRead = new Map<string, QuotaHeader | undefined>();

/**
 * What is left of each quota that an answer's headers name: those with `RateLimit`, `Rate-Limit`, `Limit` or `Quota` in
 * their names, with any words for what they count and a vendor's before it, Shopify's, and those of
 * draft-ietf-httpapi-ratelimit-headers, up to its 11th edition. A quota named in two ways comes
 * twice. Malformed and absurd figures are left out, and so is all of an
 * answer that comes from a cache. Never throws.
 */
export function readRemaining(source: unknown, wallNowMs: number): readonly Remaining[] {
  const headers = listHeaders(source);
  if (isOutOfCache(headers)) return [];
  return [...readStated(headers, wallNowMs), readShopify(headers)].flatMap(toRemaining);
}

/** The quotas that have nothing left, by an answer's headers. Never throws. */
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
 * The latest of the times that an answer states. Some round their Retry-After down, even to 0, while the window is
 * closed. The reset of a quota that fills up bit by bit is the time at which it is full: there, Retry-After is the
 * earlier and the right one.
 */
export function latestOf(
  askedMs: number | undefined,
  usedUp: readonly UsedUp[],
  resetMs: number | undefined,
): number | undefined {
  const usedUpMs = longestReset(usedUp)?.resetAfterMs || resetMs || undefined;
  if (askedMs === undefined) return usedUpMs;
  // By the draft, Retry-After wins over all that its fields say, and over what is sent for older clients beside them.
  const advice = usedUp.filter(({ resetOf }) => resetOf === "advice");
  const ends = usedUp.filter(({ resetOf }) => resetOf === "window");
  const windows = advice.length === 0 ? ends : askedMs === 0 ? advice : [];
  const endMs = longestReset(windows)?.resetAfterMs ?? 0;
  const latestMs = endMs <= LONGEST_RESET_MS ? Math.max(askedMs, endMs) : askedMs;
  // A closed window that opens now, by what it says, has not opened yet.
  return latestMs === 0 && windows.length > 0 ? undefined : latestMs;
}

/**
 * The whole ms until the last quota is reset, by an answer's headers that do not say how much is left of it; with
 * `isAny`, of any quota.
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

/** The period that a header names in its value, as Xero's `X-Rate-Limit-Problem: day`. */
export function readNamedPeriod(headers: Headers): QuotaPeriod | undefined {
  for (const [name, value] of headers) {
    if (/limit-(?:problem|scope|type|reason|name)$/.test(name)) return periodOf(value);
  }
  return undefined;
}

function isOutOfCache(headers: Headers): boolean {
  return Number(headers.get("age")) > 0;
}

/** The quotas that state when they are reset. */
function readStated(headers: Headers, wallNowMs: number): readonly Quota[] {
  const nowMs = readServerTimeMs(headers, wallNowMs);
  return [...readNamed(headers, nowMs), ...readRateLimit(headers)];
}

function toRemaining(quota: Quota | undefined): readonly Remaining[] {
  if (quota?.remaining === undefined || quota.resetAfterMs === undefined) return [];
  const { unit, remaining, resetAfterMs } = quota;
  if (remaining > MOST_UNITS || resetAfterMs > MOST_RESET_MS) return [];
  // Azure writes 0 left of 0, or a reset just now, when it does not know.
  if (remaining === 0 && (resetAfterMs === 0 || quota.limit === 0)) return [];
  const isLimitKnown = quota.limit !== undefined && quota.limit > 0 && quota.limit <= MOST_UNITS;
  const limit = isLimitKnown ? quota.limit : undefined;
  return [{ unit, remaining: Math.min(remaining, limit ?? remaining), limit, resetAfterMs }];
}

/** The quotas whose figures have a header each. */
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
    // A delay needs no clock of ours.
    const resetAfterMs =
      (delay === undefined
        ? undefined
        : (readDelayMs(delay, unitMs) ?? readWaitMs(delay, nowMs))) ?? readWaitMs(reset, nowMs);
    const [unit, period] = [unitOf(words) ?? "calls", periodOf(words)];
    // Durations of Go, as OpenAI and those that speak like it have them.
    const isRefill = words.startsWith("anthropic") || /\d(?:ms|s|m|h)$/.test(reset?.trim() ?? "");
    const resetOf = isRefill ? "refill" : "window";
    found.push({ unit, period, remaining: left, limit: readFigure(limit), resetAfterMs, resetOf });
  }
  // The order of headers is that of their names, or none.
  return found.toSorted((one, other) => rankOf(one) - rankOf(other));
}

/** The reset that holds for several quotas, and is named without the words that tell them apart. */
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
  // Most headers are others.
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

/** Some write the quota and its figure as one word: `userremaining` of hapi's plugin. */
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

/** `RateLimit-Policy` has a limit's size and unit, by its name, and its window, for a limit without a reset time. */
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

/** The field as the seventh edition of the draft has it: `limit=100, remaining=50, reset=5`. */
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

/** The whole units of a figure, which may have decimals, and a policy behind it: `100` of `"100, 100;w=60"`. */
function readFigure(text: string | undefined): number | undefined {
  const [, digits] =
    /^(\d{1,15})(?:\.\d*)?(?:\s*[,;].*)?$/.exec(text?.trim().slice(0, LONGEST_FIELD) ?? "") ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** The most of a text that is searched. */
const MOST_SEARCHED = 2_000;

/** The period for which a quota is given: `"day"` of `GenerateRequestsPerDayPerProject`, the longest if several are named. */
export function periodOf(text: string): QuotaPeriod | undefined {
  const words = wordsIn(text);
  return PERIODS.find(([, form]) => form.test(words))?.[0];
}

/** The period that a sentence names, in which a wait may stand as well: `"day"` of `"… on requests per day (RPD)"`. */
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

/** What a quota counts: `"tokens"` of `generate_content_input_token_count`. */
export function unitOf(text: string): string | undefined {
  const words = wordsIn(text);
  return UNITS.find(([, form]) => form.test(words))?.[0];
}

/** Words with a blank between them, also where capitals, dashes or underscores part them. */
function wordsIn(text: string): string {
  return text
    .slice(0, MOST_SEARCHED)
    .replaceAll(/([a-z\d])(?=[A-Z])/g, "$1 ")
    .replaceAll(/[-_./:]+/g, " ")
    .toLowerCase();
}
