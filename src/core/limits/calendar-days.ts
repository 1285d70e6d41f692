import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import { closest } from "../input/options.ts";

/** The local time at which a daily window begins. */
export interface Align {
  /** The local time of the reset: `"00:00"` to `"23:59"`. */
  readonly at: string;
  /** The IANA name of the time zone: `"America/Los_Angeles"`, `"UTC"`. */
  readonly timeZone: string;
}

/** The calendar periods of a time zone. */
export interface Calendar {
  readonly per: "day" | "week" | "month" | "quarter" | "year";
  readonly timeZone: string;
  readonly weekStart: "monday" | "sunday";
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** The largest offsets of local time behind and ahead of UTC. No time zone has exceeded them since 1970. */
const MOST_BEHIND_MS = 12 * HOUR_MS;
const MOST_AHEAD_MS = 14 * HOUR_MS;
const MOST_ZONES = 64;

const AT_ERROR = { error: 'write a local time from "00:00" to "23:59"' };
const ZONE_ERROR = { error: 'give an IANA time zone such as "America/Los_Angeles" or "UTC"' };
const ALIGN = z.strictObject(
  {
    at: z.string(AT_ERROR).regex(/^([01]\d|2[0-3]):[0-5]\d$/, AT_ERROR),
    timeZone: z.string(ZONE_ERROR).refine(isTimeZone, ZONE_ERROR),
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? 'give { at: "00:00", timeZone: "UTC" }' : undefined,
  },
);

/**
 * Reads the `align` option: the local time at which a daily window begins.
 *
 * @throws {@link InvalidOptionError} when `at` is not a local time, or the zone is unknown.
 */
export function readAlign(where: string, align: unknown): Align {
  const read = ALIGN.safeParse(align);
  if (read.success) return Object.freeze(read.data);
  const issue =
    read.error.issues.find(({ code }) => code === "unrecognized_keys") ?? read.error.issues[0]!;
  const isUnknown = issue.code === "unrecognized_keys";
  const name = isUnknown ? issue.keys[0]! : String(issue.path[0] ?? "");
  const near = closest(name, Object.keys(ALIGN.shape));
  const hint = near === undefined ? "the options are at, timeZone" : `did you mean ${near}?`;
  throw new InvalidOptionError({
    where,
    option: name === "" ? "align" : `align.${name}`,
    value: name === "" ? align : (align as Record<string, unknown>)[name],
    remedy: isUnknown ? `there is no such option; ${hint}` : issue.message,
  });
}

export function isAlign(align: unknown): boolean {
  return ALIGN.safeParse(align).success;
}

/**
 * Returns `count` successive reset times of a daily window, in µs since 1970. The first one is the last reset at or
 * before `atUs`.
 *
 * If local clocks skip the reset time, the reset is the first instant after the gap. If they show the reset time twice,
 * the reset is the first of the two instants. A date that a time zone skipped has no reset.
 */
export function resetsAround(atUs: number, { at, timeZone }: Align, count = 3): readonly number[] {
  const format = formatOf(timeZone);
  const atMs = Math.floor(atUs / 1_000);
  const [hours, minutes] = at.split(":").map(Number) as [number, number];
  const today = Math.floor((atMs + offsetMs(format, atMs)) / DAY_MS) * DAY_MS;
  const resets: number[] = [];
  // The search starts two days back, because the time zone may have skipped yesterday's date.
  for (let date = today - 2 * DAY_MS; resets.length < Math.max(count, 2); date += DAY_MS) {
    const reset = instantOf(format, date, date + hours * HOUR_MS + minutes * 60_000);
    if (reset === undefined) continue;
    if (reset <= atMs) resets.length = 0;
    resets.push(reset);
  }
  return resets.slice(0, count).map((reset) => reset * 1_000);
}

/**
 * Returns `count` successive starts of calendar periods, in µs since 1970. The first one is the last start at or before
 * `atUs`. A period starts at the first instant of its first date, or of the next date if the time zone skipped that one.
 */
export function periodStarts(atUs: number, calendar: Calendar, count: number): readonly number[] {
  const format = formatOf(calendar.timeZone);
  const atMs = Math.floor(atUs / 1_000);
  const current = periodNumber(atMs + offsetMs(format, atMs), calendar);
  const starts: number[] = [];
  for (let number = current - 1; starts.length < count; number++) {
    const start = firstShowing(format, firstDateOf(number, calendar)).atMs;
    if (start <= atMs) starts.length = 0;
    if (start !== starts.at(-1)) starts.push(start);
  }
  return starts.map((start) => start * 1_000);
}

/**
 * Returns the starts of the days in a time zone, in µs since 1970: of `count` days up to the day that contains `atUs`,
 * and of the `count` days after it.
 */
export function daysAround(atUs: number, timeZone: string, count: number): readonly number[] {
  const format = formatOf(timeZone);
  const atMs = Math.floor(atUs / 1_000);
  const today = Math.floor((atMs + offsetMs(format, atMs)) / DAY_MS) * DAY_MS;
  return Array.from({ length: 2 * count }, (_, index) => {
    const date = today + (index - count + 1) * DAY_MS;
    return firstShowing(format, date).atMs * 1_000;
  });
}

/** The Monday and the Sunday at or before 1 January 1970, a Thursday, in days since then. */
const WEEK_BEGINS = { monday: -3, sunday: -4 } as const;
const MONTHS_IN = { month: 1, quarter: 3, year: 12 } as const;

/** Returns the number of the period that contains a local time, which is in ms as if local time were UTC. */
function periodNumber(localMs: number, { per, weekStart }: Calendar): number {
  const day = Math.floor(localMs / DAY_MS);
  if (per === "day") return day;
  if (per === "week") return Math.floor((day - WEEK_BEGINS[weekStart]) / 7);
  const date = new Date(localMs);
  return Math.floor((date.getUTCFullYear() * 12 + date.getUTCMonth()) / MONTHS_IN[per]);
}

/** Returns the start of the first date of a period, in ms as if local time were UTC. */
function firstDateOf(number: number, { per, weekStart }: Calendar): number {
  if (per === "day") return number * DAY_MS;
  if (per === "week") return (number * 7 + WEEK_BEGINS[weekStart]) * DAY_MS;
  const month = number * MONTHS_IN[per];
  return Date.UTC(Math.floor(month / 12), month % 12);
}

/**
 * Returns the first instant at which local clocks show a local time. Returns undefined if they skip its whole date.
 * `date` and `local` are in ms, as if local time were UTC.
 */
function instantOf(format: Intl.DateTimeFormat, date: number, local: number): number | undefined {
  const { atMs, skipped } = firstShowing(format, local);
  const skipsDate = skipped !== undefined && skipped.from <= date && skipped.to >= date + DAY_MS;
  return skipsDate ? undefined : atMs;
}

/**
 * Returns the first instant at which local clocks show this local time or a later one. If the local time is skipped,
 * also returns the skipped range.
 */
function firstShowing(
  format: Intl.DateTimeFormat,
  local: number,
): { readonly atMs: number; readonly skipped?: { readonly from: number; readonly to: number } } {
  const before = offsetMs(format, local - MOST_AHEAD_MS);
  const after = offsetMs(format, local + MOST_BEHIND_MS);
  const early = local - before;
  if (before === after || offsetMs(format, early) === before) return { atMs: early };
  const late = local - after;
  if (offsetMs(format, late) === after) return { atMs: late };
  const gapEnd = firstWithOffset(format, after, { from: late, to: early });
  return { atMs: gapEnd, skipped: { from: gapEnd + before, to: gapEnd + after } };
}

/**
 * Returns the instant between `from` and `to` at which the offset begins to apply. Clocks change only at whole seconds.
 */
function firstWithOffset(
  format: Intl.DateTimeFormat,
  offset: number,
  { from, to }: { from: number; to: number },
): number {
  let beforeMs = from;
  let afterMs = to;
  while (afterMs - beforeMs > 1_000) {
    const middle = beforeMs + Math.floor((afterMs - beforeMs) / 2_000) * 1_000;
    if (offsetMs(format, middle) === offset) afterMs = middle;
    else beforeMs = middle;
  }
  return afterMs;
}

/** Returns how far local clocks are ahead of UTC, in ms: -28,800,000 in winter in California. */
function offsetMs(format: Intl.DateTimeFormat, atMs: number): number {
  const secondMs = Math.floor(atMs / 1_000) * 1_000;
  const [month, day, year, hour, minute, second] = format
    .format(secondMs)
    .match(/\d+/g)!
    .map(Number);
  return Date.UTC(year!, month! - 1, day, hour, minute, second) - secondMs;
}

/** Cached formatters by time zone. Creating a formatter takes as long as using it a hundred times. */
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(timeZone: string): Intl.DateTimeFormat {
  const known = formats.get(timeZone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat("en-US-u-ca-gregory-nu-latn", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  if (formats.size >= MOST_ZONES) formats.delete(formats.keys().next().value!);
  formats.set(timeZone, format);
  return format;
}

export function isTimeZone(name: string): boolean {
  try {
    return formatOf(name) !== undefined;
  } catch {
    return false;
  }
}

/**
 * Returns how far the clocks in a time zone are ahead of UTC at an instant, in ms: -28,800,000 in winter in California.
 */
export function zoneOffsetMs(timeZone: string, atMs: number): number {
  return offsetMs(formatOf(timeZone), atMs);
}

/**
 * Returns the first instant at which the clocks in a time zone show this local time or a later one. `localMs` is in ms,
 * as if local time were UTC.
 */
export function firstInstantOf(timeZone: string, localMs: number): number {
  return firstShowing(formatOf(timeZone), localMs).atMs;
}

/**
 * Returns the instant between `fromMs` and `toMs` at which the offset of a time zone changed to its value at `toMs`.
 */
export function lastChangeBetween(timeZone: string, fromMs: number, toMs: number): number {
  const format = formatOf(timeZone);
  const [from, to] = [Math.floor(fromMs / 1_000) * 1_000, Math.ceil(toMs / 1_000) * 1_000];
  return firstWithOffset(format, offsetMs(format, toMs), { from, to });
}
