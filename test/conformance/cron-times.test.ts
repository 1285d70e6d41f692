/**
 * Cron expressions, held to a plain implementation that looks at each minute: around every change of the clocks in any
 * zone of ten years. Elsewhere a zone is as good as UTC.
 */
import { describe, expect, it } from "vitest";
import { nextCronMs } from "../../src/queue/bullmq/cron.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** What is looked at before a change and after it. */
const AROUND_MS = 26 * HOUR_MS;
const [FIRST_MS, LAST_MS] = [Date.UTC(2018, 0), Date.UTC(2028, 0)];

/** The clocks of a zone change from one offset to another; local times are written as if they were UTC. */
interface Change {
  readonly timeZone: string;
  readonly atMs: number;
  readonly before: number;
  readonly after: number;
}

function offsetOf(format: Intl.DateTimeFormat, atMs: number): number {
  const part = Object.fromEntries(
    format.formatToParts(atMs).map(({ type, value }) => [type, Number(value)]),
  );
  const { year, month, day, hour, minute, second } = part;
  return Date.UTC(year!, month! - 1, day, hour, minute, second) - atMs;
}

function changesOf(timeZone: string): Change[] {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const changes: Change[] = [];
  let before = offsetOf(format, FIRST_MS);
  for (let dayMs = FIRST_MS + 7 * DAY_MS; dayMs <= LAST_MS; dayMs += 7 * DAY_MS) {
    const after = offsetOf(format, dayMs);
    if (after === before) continue;
    let [low, high] = [dayMs - 7 * DAY_MS, dayMs];
    while (high - low > MINUTE_MS) {
      const middle = Math.round((low + high) / 2 / MINUTE_MS) * MINUTE_MS;
      if (offsetOf(format, middle) === before) low = middle;
      else high = middle;
    }
    changes.push({ timeZone, atMs: high, before, after });
    before = after;
  }
  return changes;
}

/** All changes of all zones, those that are the same in several of them once. */
function allChanges(): Change[] {
  const changes = new Map<string, Change>();
  for (const timeZone of Intl.supportedValuesOf("timeZone")) {
    for (const change of changesOf(timeZone)) {
      changes.set(`${change.atMs} ${change.before} ${change.after}`, change);
    }
  }
  return [...changes.values()];
}

/** A local minute. */
interface Minute {
  readonly minute: number;
  readonly hour: number;
  readonly weekday: number;
  readonly date: number;
}

function minuteOf(localMs: number): Minute {
  const local = new Date(localMs);
  return {
    minute: local.getUTCMinutes(),
    hour: local.getUTCHours(),
    weekday: local.getUTCDay(),
    date: local.getUTCDate(),
  };
}

/** An expression, and whether it names a local minute. */
interface Expression {
  readonly cron: string;
  readonly isOfAllHours: boolean;
  readonly names: (local: Minute) => boolean;
}

/** Daily, weekly and monthly ones around the local time at which clocks change, and hourly ones. */
function expressionsAround({ atMs, before, after }: Change): Expression[] {
  const times = [before - MINUTE_MS * 30, before, before + MINUTE_MS * 30, after];
  const exact = times.flatMap((offset) => {
    const { minute, hour, weekday, date } = minuteOf(atMs + offset);
    const isThen = (local: Minute): boolean => local.hour === hour && local.minute === minute;
    const start = `${minute} ${hour}`;
    return [
      { cron: `${start} * * *`, names: isThen },
      {
        cron: `${start} * * ${weekday}`,
        names: (local: Minute) => isThen(local) && local.weekday === weekday,
      },
      {
        cron: `${start} ${date} * *`,
        names: (local: Minute) => isThen(local) && local.date === date,
      },
    ];
  });
  const sixHourly = {
    cron: "0 */6 * * *",
    names: ({ hour, minute }: Minute) => hour % 6 === 0 && minute === 0,
  };
  const hourly = [0, 15, 30].map((of) => ({
    cron: `${of} * * * *`,
    isOfAllHours: true,
    names: ({ minute }: Minute) => minute === of,
  }));
  return [...[...exact, sixHourly].map((each) => ({ ...each, isOfAllHours: false })), ...hourly];
}

/** Each minute, the local one that clocks show then, and those that they show or skip for the first time. */
interface Moment {
  readonly ms: number;
  readonly shown: Minute;
  readonly isNew: readonly Minute[];
}

function momentsAround({ atMs, before, after }: Change): Moment[] {
  const [fromMs, toMs] = [atMs - AROUND_MS, atMs + AROUND_MS];
  const shownAt = (ms: number): number => ms + (ms < atMs ? before : after);
  const moments: Moment[] = [];
  let latest = shownAt(fromMs);
  for (let ms = fromMs + MINUTE_MS; ms <= toMs; ms += MINUTE_MS) {
    const isNew: Minute[] = [];
    for (; latest < shownAt(ms); latest += MINUTE_MS) isNew.push(minuteOf(latest + MINUTE_MS));
    moments.push({ ms, shown: minuteOf(shownAt(ms)), isNew });
  }
  return moments;
}

/** When an expression is due: one of all hours whenever its minutes are shown, any other once for each of them. */
function dueAmong(moments: readonly Moment[], { names, isOfAllHours }: Expression): number[] {
  const isDue = ({ shown, isNew }: Moment): boolean =>
    isOfAllHours ? names(shown) : isNew.some(names);
  return moments.filter(isDue).map(({ ms }) => ms);
}

function askedAround({ cron }: Expression, { atMs, timeZone }: Change): number[] {
  const asked: number[] = [];
  let ms = nextCronMs(atMs - AROUND_MS, { cron, timeZone });
  while (ms !== undefined && ms <= atMs + AROUND_MS) {
    asked.push(ms);
    ms = nextCronMs(ms, { cron, timeZone });
  }
  return asked;
}

const CHANGES = allChanges();
/** Every second year. The others repeat the same rules of the zones. */
const YEARS = [2018, 2020, 2022, 2024, 2026];

describe("cron expressions around changes of the clocks", () => {
  it.each(YEARS)("match a check of every minute, in all zones in %i", (year) => {
    const ofYear = CHANGES.filter(({ atMs }) => new Date(atMs).getUTCFullYear() === year);

    const wrong = ofYear.flatMap((change) => {
      const moments = momentsAround(change);
      return expressionsAround(change).flatMap((expression) => {
        const expected = dueAmong(moments, expression);
        const got = askedAround(expression, change);
        const isRight = JSON.stringify(got) === JSON.stringify(expected);
        return isRight ? [] : [{ ...expression, ...change, got, expected }];
      });
    });

    expect(ofYear.length).toBeGreaterThan(10);
    expect(wrong).toEqual([]);
  });

  it.each([
    ["Africa/Cairo", "0 0 * * *", "2026-04-23T12:00Z", "2026-04-23T22:00:00.000Z"],
    ["America/Havana", "0 0 * * *", "2026-03-07T12:00Z", "2026-03-08T05:00:00.000Z"],
    ["America/Santiago", "30 0 * * *", "2026-09-05T12:00Z", "2026-09-06T04:00:00.000Z"],
    ["Atlantic/Azores", "0 0 * * 0", "2026-03-28T12:00Z", "2026-03-29T01:00:00.000Z"],
    ["Asia/Beirut", "0 0 29 3 *", "2026-03-28T12:00Z", "2026-03-28T22:00:00.000Z"],
    ["Australia/Lord_Howe", "0 * * * *", "2026-04-04T14:00Z", "2026-04-04T15:30:00.000Z"],
    ["America/New_York", "0 * 1 * *", "2026-02-01T12:00Z", "2026-02-01T13:00:00.000Z"],
    ["America/New_York", "0 * 1 7 *", "2026-02-01T12:00Z", "2026-07-01T04:00:00.000Z"],
    ["America/New_York", "0 0 29 2 *", "2026-02-01T12:00Z", "2028-02-29T05:00:00.000Z"],
    ["Europe/Berlin", "0 1-23/2 * * 1-5", "2026-10-23T21:30Z", "2026-10-26T00:00:00.000Z"],
  ])("in %s, %j after %s is due at %s", (timeZone, cron, after, due) => {
    const nextMs = nextCronMs(Date.parse(after), { cron, timeZone });

    expect(new Date(nextMs!).toISOString()).toBe(due);
  });

  it.each(["* * * * * *", "@hourly", "@minutely", "0-23 * * * *"])(
    "go on each hour while clocks show the same hour again: %j",
    (cron) => {
      const [firstMs, secondMs] = ["2026-10-25T00:00Z", "2026-10-25T01:00Z"].map(Date.parse);

      const nextMs = nextCronMs(secondMs! - 1, { cron, timeZone: "Europe/Berlin" });

      expect(nextCronMs(firstMs! - 1, { cron, timeZone: "Europe/Berlin" })).toBe(firstMs);
      expect(nextMs).toBe(secondMs);
    },
  );
});
