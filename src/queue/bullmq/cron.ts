/**
 * When a cron expression is due in a time zone. BullMQ computes times with cron-parser, which is wrong where clocks
 * change at midnight or by half an hour:
 *
 * - In Cairo, Havana and Santiago it leaves out a day. cron-parser 5.10.6 fixes that; bullmq 6.7.0 pins 5.10.3.
 * - On Lord Howe Island "0 2 * * *" throws "loop limit exceeded" in April, and times between 2:30 and 3:00 are left out in
 *   October. cron-parser 5.10.6 does the same.
 *
 * So BullMQ computes only local times, as if they were UTC, and this module applies the changes of clocks, as Vixie
 * cron does. `test/integration/upstream/cron-parser.test.ts` fails once BullMQ no longer needs that.
 *
 * - An expression of certain hours is due once for each of its local times: when clocks first show it, or right after a
 *   gap that contains it.
 * - An expression of all hours is due whenever clocks show one of its times, so it runs each hour even when clocks
 *   change.
 */
import { setImmediate as othersTurn } from "node:timers/promises";
import {
  firstInstantOf,
  lastChangeBetween,
  zoneOffsetMs,
} from "../../core/limits/calendar-days.ts";
import { CronTextError, readCronText } from "../../core/input/cron-text.ts";
import type { CronState, NextCron } from "../../stores/redis/scripts/queue/runs.ts";
import { loadBullmq } from "./load-bullmq.cjs";

/** The default time zone of a cron expression. */
export const UTC = "UTC";

const DAY_MS = 86_400_000;
/** Clocks are put back by less than this at a time. */
const MOST_BACK_MS = DAY_MS;
/** The hour's field counted from the end, since the field of seconds may be left out. */
const HOUR_FIELD = -4;
const ALL_HOURS = /^(\*|\?|\*\/1|0-23(\/1)?)$/;
const HOURLY_NAMES = new Set(["@hourly", "@minutely", "@secondly"]);

/** A cron expression as it was declared. */
export interface CronDeclared {
  readonly cron: string;
  readonly timeZone: string | undefined;
  /** The schedule's id. `H` is a hash of it. */
  readonly id: string;
}

/** What is wrong with an expression, and what to write instead; undefined if it can be read and has a next time. */
export function cronFault({ cron, timeZone, id }: CronDeclared): string | undefined {
  try {
    const read = readCronText(cron, id);
    if (nextCronMs(Date.now(), { cron: read, timeZone }) !== undefined) return undefined;
  } catch (error) {
    if (error instanceof CronTextError) return error.message;
    // The parser throws for a date that no year has, such as the 30th of February.
  }
  return 'it has no next time; give a cron expression such as "0 9 * * 1-5"';
}

/** A cron expression in its time zone, as `readCronText` writes it. */
export interface CronTimes {
  readonly cron: string;
  /** Defaults to UTC. */
  readonly timeZone?: string | undefined;
}

/** The first time after `afterMs` at which an expression is due, in ms since 1970; undefined if there is none. */
export function nextCronMs(
  afterMs: number,
  { cron, timeZone = UTC }: CronTimes,
): number | undefined {
  if (isOfAllHours(cron)) return nextShown(afterMs, cron, timeZone);
  const local = nextLocal(latestLocal(afterMs, timeZone), cron);
  return local === undefined ? undefined : firstInstantOf(timeZone, local);
}

/** The next `count` times after `afterMs`, in ms since 1970; fewer if there are no others. */
export function nextCronTimes(afterMs: number, times: CronTimes, count: number): number[] {
  const next: number[] = [];
  let atMs = nextCronMs(afterMs, times);
  while (atMs !== undefined && next.length < count) {
    next.push(atMs);
    atMs = nextCronMs(atMs, times);
  }
  return next;
}

/** The most passed times to count, because it takes about 0.1 ms to compute one. */
const MOST_COUNTED = 1_000;
/** How many times to compute before other work in this process gets its turn. */
const AT_ONCE = 20;

/**
 * Returns the next time of a schedule, and how many times have passed uncounted; undefined if there is no next time.
 */
export async function nextCron({ nowMs, ...state }: CronState): Promise<NextCron | undefined> {
  const { atMs, isInTime } = state;
  let nextMs = isInTime ? nextCronMs(atMs, state) : atMs;
  let passed = 0;
  while (nextMs !== undefined && nextMs <= nowMs) {
    passed += 1;
    if (passed % AT_ONCE === 0) await othersTurn();
    nextMs = nextCronMs(passed < MOST_COUNTED ? nextMs : nowMs, state);
  }
  return nextMs === undefined ? undefined : { ...state, nextMs, passed };
}

function isOfAllHours(cron: string): boolean {
  const fields = cron.trim().split(/\s+/);
  const hour = fields.at(HOUR_FIELD);
  if (hour !== undefined) return ALL_HOURS.test(hour);
  return !cron.startsWith("@") || HOURLY_NAMES.has(cron);
}

/** The next local time of an expression, written as if it were UTC. */
function nextLocal(localMs: number, pattern: string): number | undefined {
  return loadBullmq().defaultRepeatStrategy(localMs, { pattern, tz: UTC }) as number | undefined;
}

/**
 * The latest local time that clocks have shown by an instant. After clocks were put back, an earlier moment showed it.
 */
function latestLocal(atMs: number, timeZone: string): number {
  const now = zoneOffsetMs(timeZone, atMs);
  const before = zoneOffsetMs(timeZone, atMs - MOST_BACK_MS);
  if (before <= now) return atMs + now;
  const backAtMs = lastChangeBetween(timeZone, atMs - MOST_BACK_MS, atMs);
  return Math.max(atMs + now, backAtMs + before - 1);
}

/** The next instant at which clocks show a time of the expression, even for the second time. */
function nextShown(afterMs: number, cron: string, timeZone: string): number | undefined {
  let sinceMs = afterMs + 1;
  for (;;) {
    const offset = zoneOffsetMs(timeZone, sinceMs);
    const local = nextLocal(sinceMs - 1 + offset, cron);
    if (local === undefined) return undefined;
    const changeMs = changeBefore(local - offset, { sinceMs, offset, timeZone });
    if (changeMs === undefined) return local - offset;
    sinceMs = changeMs;
  }
}

/**
 * Returns an instant up to `toMs` from which the next time must be computed again, because clocks have changed. Only
 * changes within a day of either end matter: between them, no time of the expression is shown with any offset.
 */
function changeBefore(
  toMs: number,
  {
    sinceMs,
    offset,
    timeZone,
  }: { readonly sinceMs: number; readonly offset: number; readonly timeZone: string },
): number | undefined {
  const isFar = toMs - sinceMs > 3 * DAY_MS;
  const nearMs = isFar ? sinceMs + DAY_MS : toMs;
  if (zoneOffsetMs(timeZone, nearMs) !== offset) {
    return lastChangeBetween(timeZone, sinceMs, nearMs);
  }
  if (!isFar) return undefined;
  const lateMs = toMs - DAY_MS;
  const hasChanged = [lateMs, toMs].some((atMs) => zoneOffsetMs(timeZone, atMs) !== offset);
  return hasChanged ? lateMs : undefined;
}
