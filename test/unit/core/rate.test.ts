import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { formatRate, parseRate } from "../../../src/core/limits/rate.ts";

describe("a rate", () => {
  it.each([
    ["100/s", { count: 1, periodUs: 10_000 }],
    ["60/min", { count: 1, periodUs: 1_000_000 }],
    ["5000/h", { count: 1, periodUs: 720_000 }],
    ["1/2s", { count: 1, periodUs: 2_000_000 }],
    ["300000/s", { count: 3, periodUs: 10 }],
    [
      { calls: 100, per: "1s" },
      { count: 1, periodUs: 10_000 },
    ],
    [
      { calls: 3, per: "500ms" },
      { count: 3, periodUs: 500_000 },
    ],
  ])("reads %j in whole numbers", (given, expected) => {
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

  it("takes no other option beside calls and per, and names the one that was given", () => {
    const read = (): unknown =>
      parseRate("tokenBucket()", { calls: 1, per: "1s", unit: "tokens" } as never, "refill");

    expect(read).toThrow(InvalidOptionError);
    expect(read).toThrow('tokenBucket(): option "refill.unit" is "tokens"; a rate has only calls');
  });

  it("takes an option that is undefined for one that was left out", () => {
    const given = { calls: 1, per: "1s", burst: undefined };

    expect(parseRate("test", given)).toEqual({ count: 1, periodUs: 1_000_000 });
  });
});
