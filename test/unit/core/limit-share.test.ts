import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import { partOfLimit } from "../../../src/core/limits/registry.ts";

describe("the part of a limit", () => {
  it.each([
    [
      "a leaky bucket",
      leakyBucket("100/s", { burst: 10 }),
      { count: 1, periodUs: 40_000, capacity: 2 },
    ],
    ["one that spaces calls", leakyBucket("100/s"), { count: 1, periodUs: 40_000, capacity: 1 }],
    [
      "a token bucket",
      tokenBucket({ capacity: 3, refill: "1/s" }),
      { periodUs: 4_000_000, capacity: 1 },
    ],
    ["a log", slidingLog(30, "1s"), { count: 7, capacity: 7, periodUs: 1_000_000 }],
    [
      "a log of less than one call",
      slidingLog(2, "1s"),
      { count: 1, capacity: 1, periodUs: 2_000_000 },
    ],
    ["a window", slidingWindow(30, "1s"), { count: 7, capacity: 7 }],
    ["a daily window", fixedWindow(1_000, "1d"), { count: 250, capacity: 250 }],
    ["calls at once", concurrency(10), { count: 2, capacity: 2, periodUs: 30_000_000 }],
  ])("is a quarter of %s", (_what, limit, expected) => {
    expect(partOfLimit(limit, 0.25)).toMatchObject(expected);
  });

  it.each([
    ["calls at once", concurrency(3)],
    ["a local day", fixedWindow(3, "1d", { align: { at: "03:30", timeZone: "Europe/Berlin" } })],
  ])("lets nothing pass if it is less than one of %s", (_what, limit) => {
    expect(partOfLimit(limit, 0.25)).toBeUndefined();
  });

  it("is never more than the part, in valid whole numbers", () => {
    const count = fc.integer({ min: 1, max: 20_000 });
    const part = fc.double({ min: 0.0001, max: 1, noNaN: true });

    fc.assert(
      fc.property(count, part, fc.constantFrom("1s", "1min", "1d"), (max, of, per) => {
        for (const limit of [leakyBucket({ calls: max, per }), slidingLog(max, per)]) {
          const own = partOfLimit(limit, of);
          if (own === undefined) continue;
          const perUs = own.count / own.periodUs;
          expect(perUs).toBeLessThanOrEqual((of * limit.count) / limit.periodUs + Number.EPSILON);
          expect([own.count, own.periodUs, own.capacity].every(Number.isSafeInteger)).toBe(true);
        }
      }),
    );
  });
});
