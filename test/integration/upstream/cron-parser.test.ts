/**
 * Faults of BullMQ's own times of cron, for which `src/queue/bullmq/cron.ts` has BullMQ compute in UTC only. If one of
 * these fails after an update, that file may become simpler.
 */
import { defaultRepeatStrategy } from "bullmq";
import { describe, expect, it } from "vitest";
import { nextCronMs } from "../../../src/queue/bullmq/cron.ts";

describe("BullMQ's own times of a cron expression", () => {
  it("leave out the day whose midnight clocks skip, which ours do not", () => {
    const [cron, timeZone] = ["0 0 * * *", "America/Havana"];
    const afterMs = Date.parse("2026-03-07T12:00Z");

    const theirs = defaultRepeatStrategy(afterMs, { pattern: cron, tz: timeZone }) as number;

    expect(new Date(theirs).toISOString()).toBe("2026-03-09T04:00:00.000Z");
    expect(nextCronMs(afterMs, { cron, timeZone })).toBe(Date.parse("2026-03-08T05:00Z"));
  });

  it("have no next one where clocks change by half an hour, which ours have", () => {
    const [cron, timeZone] = ["0 2 * * *", "Australia/Lord_Howe"];
    const afterMs = Date.parse("2026-04-04T12:00Z");

    const theirs = defaultRepeatStrategy(afterMs, { pattern: cron, tz: timeZone });

    expect(theirs).toBeUndefined();
    expect(nextCronMs(afterMs, { cron, timeZone })).toBe(Date.parse("2026-04-04T15:30Z"));
  });
});
