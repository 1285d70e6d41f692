import { types } from "node:util";
import { readProperty } from "./properties.ts";

/**
 * The longest text that is read, in characters. The longest HTTP-date has 33 characters, and a date as JavaScript prints
 * it has more than twice as many.
 */
const LONGEST_TEXT = 96;

/**
 * Numbers below this are delays, and numbers from here on are points in time. In epoch seconds, this is September 2001.
 */
const FIRST_EPOCH = 1e9;

/**
 * The units of epoch times. A number below `end` has the unit `unitMs`. Each `end` stands for the year 5138 in its
 * unit.
 */
const EPOCHS: readonly (readonly [end: number, unitMs: number])[] = [
  [1e11, 1_000],
  [1e14, 1],
  [1e17, 1e-3],
  [Infinity, 1e-6],
];

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const GO_UNIT_MS: Readonly<Record<string, number>> = {
  d: 86_400_000,
  h: 3_600_000,
  m: 60_000,
  s: 1_000,
  ms: 1,
  us: 1e-3,
  µs: 1e-3,
  ns: 1e-6,
};

/** Matches a number with a unit as people write it: `1.5 seconds`, `2 minutes`. */
const WORDED = String.raw`\d+(?:\.\d+)?\s*(?:milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])`;

const WORDED_SUM = String.raw`(?:${WORDED}[\s,]*(?:and\s+)?)+`;

/** Matches a duration in words. At least one unit must be written out, because "6 m" may mean anything. */
const IS_WORDED = new RegExp(`^(?=.*[a-z]{3})${WORDED_SUM}$`, "i");

/**
 * Matches the text between a verb and its time. Excludes "50 requests available every 12 hours", which names a period
 * and not a wait.
 */
const BETWEEN = String.raw`(?:(?!\b(?:every|each|per|within)\b)[^.\d\n]){0,40}?`;

/**
 * Matches the wait in a text. A number without a unit counts only at the end of a phrase. Otherwise the numbers in
 * "retry with fewer than 100 requests" and "please wait (request 12345)" would count as times.
 */
const WAIT_IN_TEXT = new RegExp(
  [
    String.raw`\b(?:again|retry(?:ing)?|available|wait|resets?|this after)\b${BETWEEN}(?<wait>${WORDED_SUM})`,
    String.raw`(?:\b|_)(?:again|retry(?:ing)?|wait|resets?)(?:[ _-]?(?:after|in|for))?[ _:=]+(?<seconds>\d+(?:\.\d+)?)(?=\s*(?:[,;)"'\n]|\.(?!\d)|$))`,
    String.raw`\bretry[ _-]?after[ _-]?ms\s*[=:]\s*(?<ms>\d+)\b`,
    String.raw`\b(?:again|retry|replenished|resets?|renewed) (?:after|in) (?<span>\d\d?:\d\d:\d\d)\b`,
  ].join("|"),
  "i",
);

/**
 * Matches the end time of a wait in a text: `Retry after 2026-11-21T12:14:56.789Z`, `IP banned until 1795262520000`.
 */
const MOMENT_IN_TEXT =
  /\b(?:again|retry|available|access|banned|wait|resets?)(?: (?:on|at|after|until|in))* (?<moment>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?|\d{13}\b|\d{10}\b)/i;

/** The number of characters of a text that are searched. */
const MOST_SEARCHED = 2_000;

const TIME = String.raw`(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)`;

/**
 * The three forms of an HTTP-date in the order of RFC 9110 §5.6.7: IMF-fixdate, RFC 850 and asctime. `Date.parse` is
 * not used, because it accepts many other texts too.
 */
const HTTP_DATES: readonly RegExp[] = [
  new RegExp(
    String.raw`^[a-z]{3}, (?<day>\d\d) (?<month>[a-z]{3}) (?<year>\d{4}) ${TIME} GMT$`,
    "i",
  ),
  new RegExp(
    String.raw`^[a-z]{6,9}, (?<day>\d\d)-(?<month>[a-z]{3})-(?<year>\d\d) ${TIME} GMT$`,
    "i",
  ),
  new RegExp(String.raw`^[a-z]{3} (?<month>[a-z]{3}) (?<day>[ \d]\d) ${TIME} (?<year>\d{4})$`, "i"),
];

/**
 * Returns the wait that a value asks for, in whole ms, rounded up: `1500` for `"1.5"`, `0` for a time in the past.
 * Undefined if the value is in none of the forms below. The result has no upper bound: a broken server may ask for a
 * thousand years. The accepted forms are:
 *
 * - seconds, also with decimals or as a number
 * - epoch times in seconds, ms, µs or ns, distinguished by their size
 * - all HTTP-dates of RFC 9110 §5.6.7, times of RFC 3339, and dates as JavaScript prints them
 * - durations in the notation of Go, Protocol Buffers, ISO 8601, .NET, or in words
 * - decoded durations: `{ seconds, nanos }`
 */
export function readWaitMs(value: unknown, wallNowMs: number): number | undefined {
  const count = typeof value === "string" ? readDecimal(value) : value;
  if (typeof count === "number") {
    return count < FIRST_EPOCH ? readDelayMs(count, 1_000) : untilEpoch(count, wallNowMs);
  }
  if (typeof value === "object") return readParts(value, wallNowMs);
  if (typeof value !== "string" || value.length > LONGEST_TEXT) return undefined;
  const text = value.trim();
  const atMs = readHttpDateMs(text, wallNowMs) ?? readRfc3339(text) ?? readPrintedDate(text);
  if (atMs !== undefined) return msUntil(atMs, wallNowMs);
  const durationMs = readGoDuration(text) ?? readIsoDuration(text) ?? readTimeSpan(text);
  return durationMs ?? (IS_WORDED.test(text) ? readWorded(text) : undefined);
}

/**
 * Returns the wait in a message for people, in ms: `432000` for `"Please try again in 7m12s."`. A number without a unit
 * counts as seconds.
 */
export function readWaitInText(text: string, wallNowMs: number): number | undefined {
  const searched = text.slice(0, MOST_SEARCHED);
  const found = WAIT_IN_TEXT.exec(searched)?.groups;
  if (found?.["wait"] !== undefined) return readWorded(found["wait"]);
  if (found?.["seconds"] !== undefined) return readDelayMs(found["seconds"], 1_000);
  if (found?.["ms"] !== undefined) return readDelayMs(found["ms"], 1);
  if (found?.["span"] !== undefined) return readTimeSpan(found["span"]);
  const moment = MOMENT_IN_TEXT.exec(searched)?.groups?.["moment"];
  // A time in the past asks for no wait.
  return readWaitMs(moment, wallNowMs) || undefined;
}

/** Reads a duration in words: `432000` ms for `"7 minutes and 12 seconds"`. */
function readWorded(text: string): number | undefined {
  const parts = [...text.matchAll(/([\d.]+)\s*([a-z]+)/gi)].map(([, count, word = ""]) => {
    const letters = word.toLowerCase();
    const isMs = /^m(?:s|illi)/.test(letters);
    return Number(count) * (GO_UNIT_MS[isMs ? "ms" : letters.charAt(0)] ?? Number.NaN);
  });
  return toWholeMs(parts.reduce((sum, ms) => sum + ms, 0));
}

/** Returns the time of an HTTP-date in epoch ms. `wallNowMs` decides the century of a two-digit year. */
export function readHttpDateMs(value: unknown, wallNowMs: number): number | undefined {
  if (typeof value !== "string" || value.length > LONGEST_TEXT) return undefined;
  const text = value.trim();
  for (const form of HTTP_DATES) {
    const parts = form.exec(text)?.groups;
    if (parts !== undefined) return toEpochMs(parts, wallNowMs);
  }
  return undefined;
}

/** Converts a delay in units of `unitMs` to whole ms, rounded up: `250` for `"0.25"` in seconds. */
export function readDelayMs(value: unknown, unitMs: number): number | undefined {
  const count = typeof value === "string" ? readDecimal(value) : value;
  if (typeof count !== "number" || !(count >= 0)) return undefined;
  return toWholeMs(count * unitMs);
}

function untilEpoch(count: number, wallNowMs: number): number | undefined {
  const [, unitMs] = EPOCHS.find(([end]) => count < end) ?? [0, Number.NaN];
  return msUntil(count * unitMs, wallNowMs);
}

/** Returns the wait of a decoded duration or of a `Date`, in ms. */
function readParts(value: object | null, wallNowMs: number): number | undefined {
  if (types.isDate(value)) return msUntil(value.getTime(), wallNowMs);
  const [seconds, nanos] = ["seconds", "nanos"].map((name) => readCount(readProperty(value, name)));
  if (seconds === undefined && nanos === undefined) return undefined;
  return toWholeMs((seconds ?? 0) * 1_000 + (nanos ?? 0) / 1e6);
}

/** Reads a number, a number as text, or the lower half of a 64-bit number that is stored in two halves. */
function readCount(value: unknown): number | undefined {
  if (typeof value === "string") return readDecimal(value);
  const count = typeof value === "object" ? readProperty(value, "low") : value;
  return typeof count === "number" && count >= 0 ? count : undefined;
}

/** Reads a duration in Go's notation: `360000` ms for `"6m0s"`, `12346` ms for `"12.345678901s"`. */
function readGoDuration(text: string): number | undefined {
  if (!/^(?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|μs|ns|d))+$/.test(text)) return undefined;
  let totalMs = 0;
  for (const [, count, unit = ""] of text.matchAll(/([\d.]+)([^\d.]+)/g)) {
    totalMs += Number(count) * (GO_UNIT_MS[unit.replace("μ", "µ")] ?? Number.NaN);
  }
  return toWholeMs(totalMs);
}

/** Reads an ISO 8601 duration: `90000` ms for `"PT1M30S"`. */
function readIsoDuration(text: string): number | undefined {
  const form = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/i.exec(text);
  if (form === null || !/\d/.test(text)) return undefined;
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = form.slice(1).map((n) => Number(n ?? 0));
  return toWholeMs((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000);
}

/** Reads a .NET time span: `5000` ms for `"00:00:05"`. */
function readTimeSpan(text: string): number | undefined {
  const form = /^(?:(\d+)\.)?(\d\d?):(\d\d):(\d\d(?:\.\d+)?)$/.exec(text);
  if (form === null) return undefined;
  const [days = 0, hours = 0, minutes = 0, seconds = 0] = form.slice(1).map((n) => Number(n ?? 0));
  return toWholeMs((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000);
}

/** Returns an RFC 3339 time such as `"2025-08-21T12:41:00Z"` in epoch ms. A time without a zone counts as UTC. */
function readRfc3339(text: string): number | undefined {
  const form =
    /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?) ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?$/i;
  const [, date, time, zone = "Z"] = form.exec(text) ?? [];
  if (date === undefined) return undefined;
  const offset = /^[+-]/.test(zone) ? zone.replace(/(\d\d):?(\d\d)$/, "$1:$2") : "Z";
  return Date.parse(`${date}T${time}${offset}`);
}

/**
 * Returns the time of a date as JavaScript prints it, in epoch ms: `Tue Feb 16 2021 09:02:42 GMT+0100 (Central European
 * Standard Time)`. Express sends this text for a header whose value is a `Date`.
 */
function readPrintedDate(text: string): number | undefined {
  const form =
    /^[A-Z][a-z]{2} ([A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT[+-]\d{4})(?: \([^)]*\))?$/.exec(
      text,
    );
  return form === null ? undefined : Date.parse(form[1]!);
}

/** Returns the whole ms until a time. 0 if the time is in the past. */
function msUntil(atMs: number, wallNowMs: number): number | undefined {
  return toWholeMs(Math.max(0, atMs - wallNowMs));
}

function readDecimal(text: string): number | undefined {
  if (text.length > LONGEST_TEXT) return undefined;
  const digits = text.trim();
  return /^\d+(?:\.\d*)?$/.test(digits) ? Number(digits) : undefined;
}

/**
 * Rounds up to whole ms, but first to the nearest ns: 4.03 × 1,000 is 4030.0000000000005, which must not become 4031.
 */
function toWholeMs(ms: number): number | undefined {
  if (!Number.isFinite(ms)) return undefined;
  if (ms >= Number.MAX_SAFE_INTEGER) return Number.MAX_SAFE_INTEGER;
  return Math.max(0, Math.ceil(Math.round(ms * 1e6) / 1e6));
}

function toEpochMs(
  parts: Readonly<Record<string, string | undefined>>,
  wallNowMs: number,
): number | undefined {
  const month = MONTHS.indexOf((parts["month"] ?? "").toLowerCase());
  const [day = 0, hour = 24, minute = 60, second = 61] = ["day", "hour", "minute", "second"].map(
    (name) => Number(parts[name]),
  );
  if (month < 0 || hour > 23 || minute > 59 || second > 60) return undefined;
  const year = toFullYear(parts["year"] ?? "", wallNowMs);
  // `Date.UTC` would turn the 31st of a shorter month into a day of the next month.
  if (new Date(Date.UTC(year, month, day)).getUTCDate() !== day) return undefined;
  return Date.UTC(year, month, day, hour, minute, second);
}

/**
 * Completes a two-digit year. If the year would be more than 50 years ahead, it belongs to the previous century (RFC
 * 9110 §5.6.7).
 */
function toFullYear(digits: string, wallNowMs: number): number {
  if (digits.length === 4) return Number(digits);
  const thisYear = new Date(wallNowMs).getUTCFullYear();
  const year = thisYear - (thisYear % 100) + Number(digits);
  return year > thisYear + 50 ? year - 100 : year;
}
