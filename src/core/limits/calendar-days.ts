import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import { closest } from "../options.ts";

/** When a window that lasts a day begins, as a clock on the wall tells it. */
export interface Align {
  /** Local time of the reset: `"00:00"` to `"23:59"`. */
  readonly at: string;
  /** IANA name of the zone whose clocks are meant: `"America/Los_Angeles"`, `"UTC"`. */
  readonly timeZone: string;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Since 1970, no zone was farther behind or ahead of UTC. */
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
 * Reads where a daily window begins.
 *
 * @throws {@link InvalidOptionError} when `at` is no local time, or the zone is unknown.
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
 * The instants, in µs since 1970, at which a window begins that resets each day at one
 * local time: the last at or before `atUs`, and those that follow, `count` in all.
 *
 * A local time that clocks skip means the first instant after the gap, one that they
 * show twice means the first of the two; a date that a zone skipped has no reset.
 */
export function resetsAround(atUs: number, { at, timeZone }: Align, count = 3): readonly number[] {
  const format = formatOf(timeZone);
  const atMs = Math.floor(atUs / 1_000);
  const [hours, minutes] = at.split(":").map(Number) as [number, number];
  const today = Math.floor((atMs + offsetMs(format, atMs)) / DAY_MS) * DAY_MS;
  const resets: number[] = [];
  // From two days back, since yesterday's date may have been skipped, to the first after `atUs`.
  for (let date = today - 2 * DAY_MS; resets.length < Math.max(count, 2); date += DAY_MS) {
    const reset = instantOf(format, date, date + hours * HOUR_MS + minutes * 60_000);
    if (reset === undefined) continue;
    if (reset <= atMs) resets.length = 0;
    resets.push(reset);
  }
  return resets.slice(0, count).map((reset) => reset * 1_000);
}

/** When clocks first show a local time, both written as if local time were UTC; undefined if they skip its whole date. */
function instantOf(format: Intl.DateTimeFormat, date: number, local: number): number | undefined {
  const before = offsetMs(format, local - MOST_AHEAD_MS);
  const after = offsetMs(format, local + MOST_BEHIND_MS);
  const early = local - before;
  if (before === after || offsetMs(format, early) === before) return early;
  const late = local - after;
  if (offsetMs(format, late) === after) return late;
  const gapEnd = firstWithOffset(format, after, { from: late, to: early });
  const skipsDate = gapEnd + before <= date && gapEnd + after >= date + DAY_MS;
  return skipsDate ? undefined : gapEnd;
}

/** The instant at which an offset begins to hold, between one before that and one after; clocks change on whole seconds. */
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

/** How far local clocks are ahead of UTC: -28,800,000 in a Californian winter. */
function offsetMs(format: Intl.DateTimeFormat, atMs: number): number {
  const secondMs = Math.floor(atMs / 1_000) * 1_000;
  const [month, day, year, hour, minute, second] = format
    .format(secondMs)
    .match(/\d+/g)!
    .map(Number);
  return Date.UTC(year!, month! - 1, day, hour, minute, second) - secondMs;
}

/** A formatter costs more to make than a hundred uses of it. */
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
