/**
 * Computes when a cron expression is due in a time zone. BullMQ uses cron-parser for this, which is wrong where clocks
 * change at midnight or by half an hour:
 *
 * - In Cairo, Havana and Santiago it leaves out a day. cron-parser 5.10.6 fixes that; bullmq 6.7.0 pins 5.10.3.
 * - On Lord Howe Island "0 2 * * *" throws "loop limit exceeded" in April, and times between 2:30 and 3:00 are left out
 *   in October. cron-parser 5.10.6 does the same.
 *
 * So BullMQ computes only local times, as if they were UTC. This module then applies the clock changes, as Vixie cron
 * does. `test/integration/upstream/cron-parser.test.ts` fails once BullMQ no longer needs that.
 *
 * - An expression with certain hours is due once for each of its local times: when clocks first show this time, or
 *   right after a gap that contains this time.
 * - An expression with all hours is due whenever clocks show one of its times, so it runs each hour even when clocks
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
/** A single clock change puts clocks back by less than this. */
const MOST_BACK_MS = DAY_MS;
/** The index of the hour field, counted from the end, because the seconds field is optional. */
const HOUR_FIELD = -4;
const ALL_HOURS = /^(\*|\?|\*\/1|0-23(\/1)?)$/;
const HOURLY_NAMES = new Set(["@hourly", "@minutely", "@secondly"]);

/** A cron expression as it was declared. */
export interface CronDeclared {
  readonly cron: string;
  readonly timeZone: string | undefined;
  /** The schedule's id. `H` in the expression becomes a hash of this id. */
  readonly id: string;
}

/**
 * Returns what is wrong with an expression, and what to write instead. Undefined if the expression is valid and has a
 * next time.
 */
export function cronFault({ cron, timeZone, id }: CronDeclared): string | undefined {
  try {
    const read = readCronText(cron, id);
    if (nextCronMs(Date.now(), { cron: read, timeZone }) !== undefined) return undefined;
  } catch (error) {
    if (error instanceof CronTextError) return error.message;
    // The parser throws if the expression has a date that never exists, such as the 30th of February.
  }
  return 'it has no next time; give a cron expression such as "0 9 * * 1-5"';
}

/** A cron expression as `readCronText` returns it, and its time zone. */
export interface CronTimes {
  readonly cron: string;
  /** Defaults to UTC. */
  readonly timeZone?: string | undefined;
}

/**
 * Returns the first time after `afterMs` at which an expression is due, in ms since 1970. Undefined if there is no such
 * time.
 */
export function nextCronMs(
  afterMs: number,
  { cron, timeZone = UTC }: CronTimes,
): number | undefined {
  if (isOfAllHours(cron)) return nextShown(afterMs, cron, timeZone);
  const local = nextLocal(latestLocal(afterMs, timeZone), cron);
  return local === undefined ? undefined : firstInstantOf(timeZone, local);
}

/** Returns the next `count` times after `afterMs`, in ms since 1970. Returns fewer if there are no more times. */
export function nextCronTimes(afterMs: number, times: CronTimes, count: number): number[] {
  const next: number[] = [];
  let atMs = nextCronMs(afterMs, times);
  while (atMs !== undefined && next.length < count) {
    next.push(atMs);
    atMs = nextCronMs(atMs, times);
  }
  return next;
}

/** The most passed times to count. The bound exists because computing one time takes about 0.1 ms. */
const MOST_COUNTED = 1_000;
/** How many times to compute before yielding to other work in this process. */
const AT_ONCE = 20;

/**
 * Returns the next time of a schedule, and how many of its times have passed without being counted yet. Undefined if
 * there is no next time.
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

/** Returns the next local time of an expression, written as if it were UTC. */
function nextLocal(localMs: number, pattern: string): number | undefined {
  return loadBullmq().defaultRepeatStrategy(localMs, { pattern, tz: UTC }) as number | undefined;
}

/**
 * Returns the latest local time that clocks have shown up to an instant. If clocks were put back recently, this may be
 * a time that they showed before the change.
 */
function latestLocal(atMs: number, timeZone: string): number {
  const now = zoneOffsetMs(timeZone, atMs);
  const before = zoneOffsetMs(timeZone, atMs - MOST_BACK_MS);
  if (before <= now) return atMs + now;
  const backAtMs = lastChangeBetween(timeZone, atMs - MOST_BACK_MS, atMs);
  return Math.max(atMs + now, backAtMs + before - 1);
}

/**
 * Returns the next instant at which clocks show a time of the expression, even if they show this time again after a
 * clock change.
 */
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
 * Returns an instant up to `toMs` from which the next time must be computed again, because clocks change before `toMs`.
 * Undefined if they do not. Only clock changes within a day of `sinceMs` or `toMs` matter: in between, clocks show no
 * time of the expression with any offset.
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
