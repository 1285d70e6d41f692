import { describe, expect, it } from "vitest";
import { CronTextError, readCronText } from "../../../src/core/input/cron-text.ts";
import { cronFault, nextCronTimes } from "../../../src/queue/bullmq/cron.ts";

const HOUR_MS = 3_600_000;

function read(text: string, id = "report"): string {
  return readCronText(text, id);
}

function hoursBetweenRuns(cron: string, id: string): number[] {
  const times = nextCronTimes(Date.UTC(2026, 0), { cron: read(cron, id) }, 30);
  return times.slice(1).map((ms, index) => (ms - times[index]!) / HOUR_MS);
}

describe("a cron expression", () => {
  it.each(["H H * * *", "H H(9-16) * * *", "0 H * * *", "H 0 * * *"])(
    "of a daily job, %j, runs once a day",
    (cron) => {
      expect(new Set(hoursBetweenRuns(cron, "report"))).toEqual(new Set([24]));
    },
  );

  it("has the same times for the same id at each reading, and others for other ids", () => {
    const ids = Array.from({ length: 200 }, (_, index) => `report ${index}`);

    const minutes = ids.map((id) => read("H * * * *", id).split(" ")[0]);

    expect(ids.map((id) => read("H * * * *", id).split(" ")[0])).toEqual(minutes);
    expect(new Set(minutes).size).toBeGreaterThan(50);
  });

  it("spreads H over the hours for every minute", () => {
    const ids = Array.from({ length: 200 }, (_, index) => `report ${index}`);
    const pairs = ids.map((id) => read("H H * * *", id).split(" ").slice(0, 2).join(":"));

    expect(new Set(pairs).size).toBeGreaterThan(150);
  });

  it.each([
    ["H(10-12) * * * *", /^1[0-2] \* \* \* \*$/],
    ["H/15 * * * *", /^(\d+),(\d+),(\d+),(\d+) \* \* \* \*$/],
    ["H(0-29)/10 * * * *", /^[0-9],1[0-9],2[0-9] \* \* \* \*$/],
    ["0 0 H * *", /^0 0 ([1-9]|1\d|2[0-8]) \* \*$/],
    ["0 0 * H *", /^0 0 \* ([1-9]|1[0-2]) \*$/],
    ["0 0 * * H", /^0 0 \* \* [0-6]$/],
    ["H 0 9 * * *", /^[0-5]?\d 0 9 \* \* \*$/],
  ])("takes %j for a value within the field", (cron, expected) => {
    for (const id of ["a", "b", "c", "d", "e", "f", "g"]) expect(read(cron, id)).toMatch(expected);
  });

  it.each([
    ["@midnight", "0 0 * * *"],
    ["@Midnight", "0 0 * * *"],
    ["@daily", "0 0 * * *"],
    ["@yearly", "0 0 1 1 *"],
    ["@annually", "0 0 1 1 *"],
    ["@monthly", "0 0 1 * *"],
    ["@weekly", "0 0 * * 0"],
    ["@weekdays", "0 0 * * 1-5"],
    ["@weekends", "0 0 * * 0,6"],
    ["@hourly", "0 * * * *"],
    [" 0  9\t* * 1-5 ", "0 9 * * 1-5"],
    ["0 9 ? * MON-fri", "0 9 * * 1-5"],
    ["0 9 * * fri-sun", "0 9 * * 5-7"],
    ["0 9 * jan,Jul *", "0 9 * 1,7 *"],
    ["5/20 * * * *", "5-59/20 * * * *"],
    ["0 0 L * *", "0 0 L * *"],
    ["0 0 * * 5L", "0 0 * * 5L"],
    ["0 0 * * mon#2", "0 0 * * mon#2"],
    ["0 0 * * 7", "0 0 * * 7"],
    ["*/60 * * * *", "*/60 * * * *"],
    ["0 9 * * 0,7", "0 9 * * 0"],
    ["0 9 * * 5-7,0", "0 9 * * 0,5,6"],
    ["0-3,2,1-4 9 * * *", "0,1,2,3,4 9 * * *"],
    ["0,0 9 * * *", "0 9 * * *"],
    ["*/30,15,*/15 9 * * *", "0,15,30,45 9 * * *"],
    ["*,5 9 * * *", "* 9 * * *"],
    ["0 9 * * 0-4,3-6", "0 9 * * 0,1,2,3,4,5,6"],
    ["H,H H,H * * *", `${read("H H * * *")}`],
    ["0 0 1,L,L * *", "0 0 1,L * *"],
  ])("reads %j as %j, and BullMQ can plan it", (cron, plain) => {
    expect(read(cron)).toBe(plain);
    expect(cronFault({ cron, id: "report", timeZone: undefined })).toBeUndefined();
  });

  it.each([
    ["0 9 * *", "it has 4 fields; give five"],
    ["9", "it has 1 field; give five"],
    ["", "it has 0 fields; give five"],
    ["0 0 9 * * 1 2026", "it has 7 fields; give five"],
    ["every day", "it has 2 fields"],
    ["*/90 * * * *", "larger than 0 to 59"],
    ["0 */25 * * *", "larger than 0 to 23"],
    ["0 0 */32 * *", "larger than 1 to 31"],
    ["0 0 * */13 *", "larger than 1 to 12"],
    ["0 0 * * */8", "larger than 0 to 6"],
    ["50/20 * * * *", "larger than 50 to 59"],
    ["10-20/30 * * * *", "larger than 10 to 20"],
    ["H/90 * * * *", "larger than 0 to 59"],
    ["H(0-5)/10 * * * *", "larger than 0 to 5"],
    ["H(0-90) * * * *", "give a range within 0 to 59"],
    ["H(30-10) * * * *", "give a range within 0 to 59"],
    ["*/0 * * * *", "give a step from 1"],
    ["5-10-15 * * * *", 'its minute cannot be "5-10-15"'],
    ["60 * * * *", "give 0 to 59"],
    ["* 24 * * *", "give 0 to 23"],
    ["0 22-4 * * *", "a range goes upwards; give two, such as 22-23,0-4"],
    ["0 9 * * jan", 'its day of week cannot be "jan"'],
    ["0 9 * mon *", 'its month cannot be "mon"'],
    ["? 9 * * *", 'its minute cannot be "?"'],
    ["0 9 15W * *", 'its day of month cannot be "15W"'],
    ["0 9 * * 1#1,2#2", "give # alone"],
    ["1,, * * * *", 'its minute cannot be ""'],
    ["@every 5m", "give every, in ms, instead of cron"],
    ["@reboot", "the names of times are @yearly"],
    ["0 0 30 2 *", "it has no next time"],
    ["h h * * *", 'its minute cannot be "h"'],
    [`${"1,".repeat(600)}1 * * * *`, "1024 characters at most"],
  ])("%j is refused: %s", (cron, why) => {
    expect(cronFault({ cron, id: "report", timeZone: undefined })).toContain(why);
  });

  it("throws a CronTextError for text that it cannot read", () => {
    expect(() => read("0 9 * *")).toThrow(CronTextError);
  });
});
