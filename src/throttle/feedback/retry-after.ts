/** The longest text that is read; the longest HTTP-date has 33 characters. */
const LONGEST_TEXT = 64;

/** A number below it is a delay, not a date: as epoch seconds it would be before September 2001. */
const FIRST_EPOCH_SECONDS = 1e9;

/** A number above it is a date in epoch ms: as epoch seconds it would be after the year 33658. */
const FIRST_EPOCH_MS = 1e12;

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

const GO_UNIT_MS: Readonly<Record<string, number>> = {
  h: 3_600_000,
  m: 60_000,
  s: 1_000,
  ms: 1,
  us: 1e-3,
  µs: 1e-3,
  ns: 1e-6,
};

const TIME = String.raw`(?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)`;

/** IMF-fixdate, RFC 850 and asctime, in the order of RFC 9110 §5.6.7. `Date.parse` takes far too much else for a date. */
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
 * How long a `Retry-After` asks to wait, in whole ms, never rounded down:
 * `1500` of `"1.5"`, `0` of a date that has passed. Takes delay-seconds, also
 * with decimals or as a number, and all HTTP-dates of RFC 9110 §5.6.7.
 * Undefined for any other value. Not capped: a broken server may ask for a
 * thousand years.
 */
export function readRetryAfterMs(value: unknown, wallNowMs: number): number | undefined {
  const delayMs = readDelayMs(value, 1_000);
  if (delayMs !== undefined) return delayMs;
  const atMs = readHttpDateMs(value, wallNowMs);
  return atMs === undefined ? undefined : msUntil(atMs, wallNowMs);
}

/** The time of an HTTP-date in epoch ms; the clock decides the century of a year of two digits. */
export function readHttpDateMs(value: unknown, wallNowMs: number): number | undefined {
  if (typeof value !== "string" || value.length > LONGEST_TEXT) return undefined;
  const text = value.trim();
  for (const form of HTTP_DATES) {
    const parts = form.exec(text)?.groups;
    if (parts !== undefined) return toEpochMs(parts, wallNowMs);
  }
  return undefined;
}

/** A delay counted in units of `unitMs`, as whole ms, never rounded down: `250` of `"0.25"` in seconds. */
export function readDelayMs(value: unknown, unitMs: number): number | undefined {
  const count = typeof value === "string" ? readDecimal(value) : value;
  if (typeof count !== "number" || !(count >= 0)) return undefined;
  return toWholeMs(count * unitMs);
}

/**
 * The ms until a limit's reset, which some servers give in epoch seconds (GitHub,
 * Discord), some in epoch ms (Linear) and some as a delay in seconds. The size
 * of the number decides which it is.
 */
export function readResetMs(value: unknown, wallNowMs: number): number | undefined {
  const count = typeof value === "string" ? readDecimal(value) : value;
  if (typeof count !== "number" || count < FIRST_EPOCH_SECONDS) return readDelayMs(count, 1_000);
  return msUntil(count < FIRST_EPOCH_MS ? count * 1_000 : count, wallNowMs);
}

/** A duration as Go prints it: `360000` of `"6m0s"`, `20` of `"20ms"`; without a unit seconds, as Azure writes them. */
export function readGoDurationMs(text: string | undefined): number | undefined {
  const given = text?.trim() ?? "";
  if (given.length > LONGEST_TEXT) return undefined;
  if (!/^(?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+$/.test(given)) return readDelayMs(given, 1_000);
  let totalMs = 0;
  for (const [, count, unit = ""] of given.matchAll(/([\d.]+)([^\d.]+)/g)) {
    totalMs += Number(count) * (GO_UNIT_MS[unit] ?? Number.NaN);
  }
  return toWholeMs(totalMs);
}

/** The whole ms until a moment of RFC 3339, `"2025-08-21T12:41:00Z"`; 0 when it has passed. */
export function readRfc3339Ms(text: string | undefined, wallNowMs: number): number | undefined {
  const form = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/;
  const given = text?.trim() ?? "";
  if (!form.test(given)) return undefined;
  return msUntil(Date.parse(given.toUpperCase().replace(" ", "T")), wallNowMs);
}

/** The whole ms until a moment, 0 when it has passed. */
function msUntil(atMs: number, wallNowMs: number): number | undefined {
  return toWholeMs(Math.max(0, atMs - wallNowMs));
}

function readDecimal(text: string): number | undefined {
  if (text.length > LONGEST_TEXT) return undefined;
  const digits = text.trim();
  return /^\d+(?:\.\d*)?$/.test(digits) ? Number(digits) : undefined;
}

/** Rounds to whole ns first: 4.03 × 1,000 is 4030.0000000000005, which must not become 4031. */
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
  // Date.UTC would turn the 31st of a shorter month into a day of the next.
  if (new Date(Date.UTC(year, month, day)).getUTCDate() !== day) return undefined;
  return Date.UTC(year, month, day, hour, minute, second);
}

/** A year of two digits that would be more than 50 years ahead is in the century before (RFC 9110 §5.6.7). */
function toFullYear(digits: string, wallNowMs: number): number {
  if (digits.length === 4) return Number(digits);
  const thisYear = new Date(wallNowMs).getUTCFullYear();
  const year = thisYear - (thisYear % 100) + Number(digits);
  return year > thisYear + 50 ? year - 100 : year;
}
