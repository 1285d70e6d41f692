import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { formatRate, parsePeriod, parseRate } from "../../../src/core/limits/rate.ts";
import { contract } from "../../../src/core/policy/contract.ts";
import {
  fixedWindow,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";

/** Every unit, and how long one is. */
const UNITS = [
  ["ms", 1_000],
  ["millisecond", 1_000],
  ["milliseconds", 1_000],
  ["s", 1_000_000],
  ["sec", 1_000_000],
  ["second", 1_000_000],
  ["seconds", 1_000_000],
  ["m", 60_000_000],
  ["min", 60_000_000],
  ["minute", 60_000_000],
  ["minutes", 60_000_000],
  ["h", 3_600_000_000],
  ["hour", 3_600_000_000],
  ["hours", 3_600_000_000],
  ["d", 86_400_000_000],
  ["day", 86_400_000_000],
  ["days", 86_400_000_000],
] as const;

describe("a time", () => {
  it.each(UNITS)("accepts %s in every option with a time", (unit, us) => {
    expect(parsePeriod("test", "per", unit)).toBe(us);
    expect(parsePeriod("test", "per", `3${unit}`)).toBe(3 * us);
    expect(parsePeriod("test", "per", ` 3 ${unit} `)).toBe(3 * us);
    expect(parseRate("test", `1/${unit}`)).toEqual({ count: 1, periodUs: us });
    expect(parseRate("test", { calls: 1, per: `1 ${unit}` })).toEqual({ count: 1, periodUs: us });
    expect(slidingWindow(5, `2 ${unit}`).periodUs).toBe(2 * us);
    expect(slidingLog(5, `2${unit}`).periodUs).toBe(2 * us);
    expect(fixedWindow(5, unit).periodUs).toBe(us);
    expect(tokenBucket({ capacity: 5, refill: `1/${unit}` }).periodUs).toBe(us);
    expect(() => contract(5, unit)).not.toThrow();
  });

  it("that is invalid is refused with the list of units", () => {
    const read = (): unknown => slidingLog(5, "2 weeks" as string);

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow(/"5 minutes".*units are ms, s, min, h and d, or whole words/);
  });
});

describe("a rate", () => {
  it.each([
    ["100/s", { count: 1, periodUs: 10_000 }],
    ["60/min", { count: 1, periodUs: 1_000_000 }],
    ["5000/h", { count: 1, periodUs: 720_000 }],
    ["1/2s", { count: 1, periodUs: 2_000_000 }],
    ["300000/s", { count: 3, periodUs: 10 }],
    ["100/second", { count: 1, periodUs: 10_000 }],
    ["60/minute", { count: 1, periodUs: 1_000_000 }],
    ["5000/hour", { count: 1, periodUs: 720_000 }],
    ["1000 / day", { count: 1, periodUs: 86_400_000 }],
    ["3 / 5 minutes", { count: 1, periodUs: 100_000_000 }],
    ["1/2seconds", { count: 1, periodUs: 2_000_000 }],
    ["1/milliseconds", { count: 1, periodUs: 1_000 }],
    [
      { calls: 100, per: "1s" },
      { count: 1, periodUs: 10_000 },
    ],
    [
      { calls: 3, per: "500ms" },
      { count: 3, periodUs: 500_000 },
    ],
    [
      { calls: 7, per: "2 hours" },
      { count: 7, periodUs: 7_200_000_000 },
    ],
  ])("reads %j as whole numbers", (given, expected) => {
    expect(parseRate("test", given)).toEqual(expected);
  });

  it.each([
    ["100/s", "100/s"],
    ["1/2s", "30/min"],
    ["5000/h", "5000/h"],
    ["7/13s", "7/13s"],
    ["3/7ms", "3/7ms"],
  ])("shows %j as %j", (given, shown) => {
    expect(formatRate(parseRate("test", given))).toBe(shown);
  });

  it.each([
    "0/s",
    "-1/s",
    "abc",
    "1e400/s",
    "1.5/s",
    "100",
    "100/",
    "/s",
    "100/0s",
    "100/fortnight",
    "100/Second",
    "100/secondss",
    "100 per second",
    "9999999999999/s",
    "1/400d",
    Number.NaN,
    Infinity,
    100,
    null,
    undefined,
    { calls: 0, per: "1s" },
    { calls: Number.NaN, per: "1s" },
    { calls: 100 },
    "9".repeat(1_000_000),
  ])("refuses %j, naming it and the remedy", (given) => {
    const read = (): unknown => parseRate('bucket("stripe")', given as never);

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow(/^bucket\("stripe"\): option "rate" is .{1,100}; write whole calls/s);
  });

  it("refuses other options beside calls and per, and names the given one", () => {
    const read = (): unknown =>
      parseRate("tokenBucket()", { calls: 1, per: "1s", unit: "tokens" } as never, "refill");

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow('tokenBucket(): option "refill.unit" is "tokens"; a rate has only calls');
  });

  it("treats an undefined option as missing", () => {
    const given = { calls: 1, per: "1s", burst: undefined };

    expect(parseRate("test", given)).toEqual({ count: 1, periodUs: 1_000_000 });
  });
});
