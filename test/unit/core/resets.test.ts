import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { readAlign, resetsAround } from "../../../src/core/limits/calendar-days.ts";

function around(instant: string, at: string, timeZone: string, count?: number): readonly string[] {
  const resets = resetsAround(Date.parse(instant) * 1_000, { at, timeZone }, count);
  return resets.map((resetUs) => new Date(resetUs / 1_000).toISOString().replace(":00.000Z", "Z"));
}

/** What clocks of the zone show, such as `"02:30"`, by another way than the code under test. */
function clockAt(atUs: number, timeZone: string): string {
  return new Date(atUs / 1_000).toLocaleTimeString("en-GB", { timeZone, timeStyle: "short" });
}

function minutesOf(clock: string): number {
  return Number(clock.slice(0, 2)) * 60 + Number(clock.slice(3));
}

/** Whether clocks jump over a time of day at this instant. */
function skips(atUs: number, at: string, timeZone: string): boolean {
  const last = minutesOf(clockAt(atUs - 60_000_000, timeZone));
  const jump = (minutesOf(clockAt(atUs, timeZone)) - last + 1_440) % 1_440;
  const skipped = (minutesOf(at) - last + 1_440) % 1_440;
  return skipped >= 1 && skipped < jump;
}

describe("the resets of a daily window", () => {
  it.each([
    ["2026-07-01T06:59:59.999Z", ["2026-06-30T07:00Z", "2026-07-01T07:00Z", "2026-07-02T07:00Z"]],
    ["2026-07-01T07:00:00Z", ["2026-07-01T07:00Z", "2026-07-02T07:00Z", "2026-07-03T07:00Z"]],
    ["2026-12-31T12:00:00Z", ["2026-12-31T08:00Z", "2027-01-01T08:00Z", "2027-01-02T08:00Z"]],
  ])("are the last one by %s and the two that follow", (instant, expected) => {
    expect(around(instant, "00:00", "America/Los_Angeles")).toEqual(expected);
  });

  it.each([
    // A day of 23 h, then one of 25 h.
    ["2026-03-29T12:00Z", "00:00", "Europe/Berlin", ["2026-03-28T23:00Z", "2026-03-29T22:00Z"]],
    ["2026-10-25T12:00Z", "00:00", "Europe/Berlin", ["2026-10-24T22:00Z", "2026-10-25T23:00Z"]],
    // 02:30 was skipped: the gap ended at 03:00.
    ["2026-03-29T12:00Z", "02:30", "Europe/Berlin", ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]],
    [
      "2026-03-08T12:00Z",
      "02:30",
      "America/Los_Angeles",
      ["2026-03-08T10:00Z", "2026-03-09T09:30Z"],
    ],
    // 02:30 and 01:30 came twice: the first counts, also during the second.
    ["2026-10-25T01:30Z", "02:30", "Europe/Berlin", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]],
    [
      "2026-11-01T09:30Z",
      "01:30",
      "America/Los_Angeles",
      ["2026-11-01T08:30Z", "2026-11-02T09:30Z"],
    ],
    // Half an hour of summer time.
    [
      "2026-10-04T00:00Z",
      "02:15",
      "Australia/Lord_Howe",
      ["2026-10-03T15:30Z", "2026-10-04T15:15Z"],
    ],
    [
      "2026-04-05T00:00Z",
      "01:45",
      "Australia/Lord_Howe",
      ["2026-04-04T14:45Z", "2026-04-05T15:15Z"],
    ],
    // The gap ends at midnight, on the next date.
    ["2026-03-29T12:00Z", "23:30", "America/Nuuk", ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]],
    // Clocks went back from 00:01 to 23:01 of the day before; midnight had come already.
    ["2010-11-07T03:00Z", "00:00", "America/St_Johns", ["2010-11-07T02:30Z", "2010-11-08T03:30Z"]],
    ["2026-02-28T12:00Z", "23:59", "UTC", ["2026-02-27T23:59Z", "2026-02-28T23:59Z"]],
  ])("around %s at %s in %s are %j", (instant, at, timeZone, expected) => {
    expect(around(instant, at, timeZone, 2)).toEqual(expected);
  });

  it("leave out the date that Apia skipped, 30 December 2011", () => {
    const midnights = around("2011-12-30T12:00Z", "00:00", "Pacific/Apia");
    const mornings = around("2011-12-30T12:00Z", "08:00", "Pacific/Apia");

    expect(midnights).toEqual(["2011-12-30T10:00Z", "2011-12-31T10:00Z", "2012-01-01T10:00Z"]);
    expect(mornings).toEqual(["2011-12-29T18:00Z", "2011-12-30T18:00Z", "2011-12-31T18:00Z"]);
  });

  it("are whole numbers for an instant between two milliseconds", () => {
    const [last] = resetsAround(86_400_000_000 - 0.5, { at: "00:00", timeZone: "UTC" }, 1);

    expect(last).toBe(0);
  });

  it("come in order around the instant, each at its local time or at the end of a gap", () => {
    const zone = fc.constantFrom(
      "America/Los_Angeles",
      "America/Nuuk",
      "America/Sao_Paulo",
      "America/St_Johns",
      "Africa/Casablanca",
      "Asia/Kolkata",
      "Australia/Lord_Howe",
      "Europe/Berlin",
      "Pacific/Apia",
      "Pacific/Chatham",
      "Pacific/Kiritimati",
      "UTC",
    );
    const minute = fc.oneof(fc.integer({ min: 0, max: 1_439 }), fc.integer({ min: 0, max: 180 }));
    const instant = fc.integer({ min: 63_072_000, max: 2_208_988_800 });
    fc.assert(
      fc.property(zone, minute, instant, (timeZone, minuteOfDay, atSecond) => {
        const at = `${String(Math.floor(minuteOfDay / 60)).padStart(2, "0")}:${String(minuteOfDay % 60).padStart(2, "0")}`;
        const resets = resetsAround(atSecond * 1e6, { at, timeZone }, 4);

        expect(resets).toHaveLength(4);
        expect(resets[0]).toBeLessThanOrEqual(atSecond * 1e6);
        expect(resets[1]).toBeGreaterThan(atSecond * 1e6);
        expect(resets.every((reset, i) => i === 0 || reset > resets[i - 1]!)).toBe(true);
        for (const reset of resets) {
          expect(clockAt(reset, timeZone) === at || skips(reset, at, timeZone)).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });

  it("are all found: each follows from the one before it", () => {
    const days = fc.integer({ min: 0, max: 20_000 });
    fc.assert(
      fc.property(days, fc.constantFrom("Europe/Berlin", "Pacific/Apia"), (day, timeZone) => {
        const align = { at: "02:30", timeZone };
        const [, second, third] = resetsAround(day * 86_400e6, align);

        expect(resetsAround(second!, align, 2)).toEqual([second, third]);
        expect(resetsAround(second! - 1, align, 2)[1]).toBe(second);
      }),
    );
  });
});

describe("where a daily window begins", () => {
  it("is read as it was given", () => {
    const align = { at: "23:59", timeZone: "Europe/Berlin" };

    expect(readAlign("test", align)).toEqual(align);
  });

  it.each([
    [{ at: "24:00", timeZone: "UTC" }, "align.at", "write a local time"],
    [{ at: "7:00", timeZone: "UTC" }, "align.at", "write a local time"],
    [{ timeZone: "UTC" }, "align.at", "write a local time"],
    [{ at: "00:00", timeZone: "Mars/Base" }, "align.timeZone", "give an IANA time zone"],
    [{ at: "00:00", timeZone: "" }, "align.timeZone", "give an IANA time zone"],
    [{ at: "00:00" }, "align.timeZone", "give an IANA time zone"],
    [{ at: "00:00", timezone: "UTC" }, "align.timezone", "did you mean timeZone?"],
    [{ at: "00:00", timeZone: "UTC", every: 1 }, "align.every", "the options are at, timeZone"],
    ["00:00", "align", 'give { at: "00:00", timeZone: "UTC" }'],
    [undefined, "align", 'give { at: "00:00", timeZone: "UTC" }'],
  ])("is refused as %j, by naming %s", (given, option, remedy) => {
    const read = (): unknown => readAlign("fixedWindow()", given);

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow(expect.objectContaining({ option }));
    expect(read).toThrow(remedy);
  });
});
