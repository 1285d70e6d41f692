import { InvalidOptionError } from "../errors.ts";

/** A rate at which calls may start: `"100/s"`, `"60/minute"`, `"5000/h"`, `"1/2s"`, or the same as an object. */
export type RateInput = string | { readonly calls: number; readonly per: string };

/** A rate as two whole numbers in lowest terms: `"5000/h"` is 1 call per 720,000 µs. */
export interface Rate {
  readonly count: number;
  readonly periodUs: number;
}

/** The length of each unit of time in µs, for all spellings. `readable-rate.ts` has the same list for the compiler. */
const UNIT_US = {
  ms: 1_000,
  millisecond: 1_000,
  milliseconds: 1_000,
  s: 1_000_000,
  sec: 1_000_000,
  second: 1_000_000,
  seconds: 1_000_000,
  m: 60_000_000,
  min: 60_000_000,
  minute: 60_000_000,
  minutes: 60_000_000,
  h: 3_600_000_000,
  hour: 3_600_000_000,
  hours: 3_600_000_000,
  d: 86_400_000_000,
  day: 86_400_000_000,
  days: 86_400_000_000,
} as const;

/** A unit of time in any spelling: `"s"`, `"second"`. */
export type TimeUnit = keyof typeof UNIT_US;

const PERIOD = new RegExp(`^(\\d{1,9})? ?(${Object.keys(UNIT_US).join("|")})$`);
const RATE = /^(\d{1,10}) ?\/ ?(.+)$/;
const MAX_COUNT = 1_000_000_000;
/** The list of units in error messages. */
const UNITS = "units are ms, s, min, h and d, or whole words such as second and hours";
const REMEDY = `write whole calls per time, from 1 to 1,000,000,000, such as "100/s", "60/minute", "5000/h", "1/2s" or { calls: 100, per: "1s" }; ${UNITS}`;

/**
 * Reads a rate.
 *
 * @throws {@link InvalidOptionError} when the input is not a whole number of calls per time.
 */
export function parseRate(where: string, input: RateInput | undefined, option = "rate"): Rate {
  const { count, periodUs } = parseWindow(where, input, option);
  return lowestTerms(count, periodUs);
}

/** Reads a rate as {@link parseRate} does, but keeps its numbers: `"100/s"` is 100 calls per 1,000,000 µs. */
export function parseWindow(where: string, input: RateInput | undefined, option: string): Rate {
  const [calls, per] = typeof input === "string" ? split(input) : [input?.calls, input?.per];
  const periodUs = typeof per === "string" ? parsePeriodUs(per) : undefined;
  const isCount = Number.isSafeInteger(calls) && calls! >= 1 && calls! <= MAX_COUNT;
  if (!isCount || periodUs === undefined) {
    throw new InvalidOptionError({ where, option, value: input, remedy: REMEDY });
  }
  if (typeof input === "object") assertNoMore(where, option, input);
  return { count: calls!, periodUs };
}

/**
 * Reads a duration such as `"1s"`, `"5min"` or `"1d"`. Returns µs.
 *
 * @throws {@link InvalidOptionError} when the input is not a duration, or is longer than 366 days.
 */
export function parsePeriod(where: string, option: string, input: unknown): number {
  const periodUs = typeof input === "string" ? parsePeriodUs(input) : undefined;
  if (periodUs !== undefined) return periodUs;
  const remedy = `write a time up to 366 days, such as "500ms", "1s", "5 minutes", "1h" or "1d"; ${UNITS}`;
  throw new InvalidOptionError({ where, option, value: input, remedy });
}

/** Formats a duration with the largest unit that fits: `"1s"`, `"5min"`. */
export function formatPeriod(periodUs: number): string {
  for (const unit of ["d", "h", "min", "s", "ms"] as const) {
    const count = periodUs / UNIT_US[unit];
    if (Number.isInteger(count)) return `${count}${unit}`;
  }
  return `${periodUs / 1_000}ms`;
}

/** Formats a rate with the shortest usual unit: `"100/s"`, `"1/2s"`. */
export function formatRate({ count, periodUs }: Rate): string {
  for (const unit of ["s", "min", "h", "d"] as const) {
    const calls = (count * UNIT_US[unit]) / periodUs;
    if (Number.isSafeInteger(calls)) return `${calls}/${unit}`;
  }
  return periodUs % 1_000_000 === 0
    ? `${count}/${periodUs / 1_000_000}s`
    : `${count}/${periodUs / 1_000}ms`;
}

/**
 * Formats a declared rate with short unit names: `"90000/minute"` becomes `"90000/min"`, not `"1500/s"`. The rate must
 * be valid.
 */
export function declaredRate(rate: string): string {
  const [calls, per] = split(rate);
  const [, count = "1", unit] = PERIOD.exec(per!.trim())!;
  const unitUs = UNIT_US[unit as TimeUnit];
  const short = (["d", "h", "min", "s", "ms"] as const).find((each) => UNIT_US[each] === unitUs)!;
  return `${calls}/${Number(count) === 1 ? "" : Number(count)}${short}`;
}

function split(text: string): readonly [number | undefined, string | undefined] {
  const match = RATE.exec(text.trim());
  return match === null ? [undefined, undefined] : [Number(match[1]), match[2]];
}

function parsePeriodUs(text: string): number | undefined {
  const match = PERIOD.exec(text.trim());
  if (match === null) return undefined;
  const periodUs = Number(match[1] ?? 1) * UNIT_US[match[2] as TimeUnit];
  return periodUs >= 1 && periodUs <= 366 * UNIT_US.d ? periodUs : undefined;
}

/** Rejects additional fields in a rate object, such as a burst, because they would have no effect. */
function assertNoMore(where: string, option: string, input: object): void {
  const isMore = ([name, value]: [string, unknown]): boolean =>
    name !== "calls" && name !== "per" && value !== undefined;
  const more = Object.entries(input).find(isMore);
  if (more === undefined) return;
  const [name, value] = more;
  const remedy = "a rate has only calls and per; put other options beside it, or leave them out";
  throw new InvalidOptionError({ where, option: `${option}.${name}`, value, remedy });
}

function lowestTerms(count: number, periodUs: number): Rate {
  const divisor = greatestCommonDivisor(count, periodUs);
  return { count: count / divisor, periodUs: periodUs / divisor };
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
