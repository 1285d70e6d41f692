import { describe, expect, it } from "vitest";
import { budget, concurrency, leakyBucket } from "sluice";
import {
  compileOver,
  compilePolicy,
  formatPolicy,
  readPolicyElsewhere,
} from "../../../src/core/policy/policy.ts";
import { floorOf, turnsOfKey } from "../../../src/core/policy/fair.ts";

const compile = (options: object) => compilePolicy('bucket("api")', options);

function errorFor(options: object): string {
  try {
    compile(options);
  } catch (error) {
    return (error as Error).message;
  }
  return "accepted";
}

const manyKeys = (value: unknown) =>
  Object.fromEntries(Array.from({ length: 201 }, (_, at) => [`key-${at}`, value]));

describe("the option fair", () => {
  it("gives equal weights by default, and in every form", () => {
    const even = compile({ rate: "10/s" });

    for (const fair of [true, {}, { weights: {} }, { floors: {} }, { critical: 0.9 }]) {
      expect(compile({ rate: "10/s", fair }).text).toBe(even.text);
    }
    expect(even.fair).toEqual({ weights: {}, floors: {}, criticalPerMille: 900 });
    expect(readPolicyElsewhere("test", even.text).fair).toEqual(even.fair);
    expect(formatPolicy(even)).toBe("10/s");
  });

  it("survives the text that other processes read, whatever the order of the keys", () => {
    const limits = [leakyBucket("10/s"), leakyBucket("900/min", { unit: "tokens", burst: 50 })];
    const fair = { weights: { b: 2, a: 0.5 }, floors: { c: "3/s", a: { tokens: "60/min" } } };
    const policy = compile({ limits, fair: { ...fair, critical: 0.5 } });
    const other = compile({
      limits,
      fair: {
        critical: 0.5,
        floors: { a: { tokens: "1/s" }, c: { calls: 3, per: "1s" } },
        weights: { a: 0.5, b: 2 },
      },
    });

    expect(other.text).toBe(policy.text);
    expect(readPolicyElsewhere("test", policy.text).fair).toEqual(policy.fair);
    expect(formatPolicy(policy)).toBe(
      "10/s + 900/min with a burst of 50 tokens; weights a 0.5, b 2; floors a 1/s tokens, c 3/s; critical calls up to 0.5 of the rate",
    );
  });

  it("of false serves calls as they arrive", () => {
    const policy = compile({ rate: "10/s", fair: false });

    expect(policy.text).not.toBe(compile({ rate: "10/s" }).text);
    expect(policy.fair).toBeUndefined();
    expect(readPolicyElsewhere("test", policy.text).fair).toBeUndefined();
    expect(formatPolicy(policy)).toBe("10/s; keys take no turns");
  });

  it("gives weights to each name of a path, and floors to its first name", () => {
    const { fair } = compile({
      rate: "100/s",
      fair: { weights: { acme: 2, "acme/orders": 3, constructor: 4 }, floors: { acme: "20/s" } },
    });
    const path = "acme\u001Forders";

    expect(turnsOfKey(fair!, { key: "toString", costs: [4] }).weights).toEqual([1]);
    expect(floorOf(fair!, path)).toBe("20/s");
    expect(floorOf(fair!, "bolt")).toBeUndefined();
    expect(turnsOfKey(fair!, { key: path, costs: [4] })).toMatchObject({
      weights: [2, 3],
      floorUs: 200_000,
    });
  });

  it("accepts true and false for keys that share no limit", () => {
    for (const fair of [true, false]) {
      expect(errorFor({ perKey: { rate: "5/s" }, fair })).toBe("accepted");
    }
  });

  it("accepts floors that add up to the whole limit", () => {
    const floors = { a: "1/3s", b: "1/3s", c: "1/3s" };

    expect(errorFor({ rate: "1/s", fair: { floors } })).toBe("accepted");
  });

  it.each([
    ["a text", { fair: "yes" }, 'option "fair" is "yes"; give true, false, or { weights'],
    ["a list", { fair: [] }, "give an object of options, not a list or the like"],
    [
      "an unknown name",
      { fair: { weight: { a: 2 } } },
      'option "fair.weight" is {"a":2}; there is no such option; did you mean weights?',
    ],
    [
      "a negative weight",
      { fair: { weights: { a: -1 } } },
      'option "fair.weights.a" is -1; give each key a number from 0.001 to 1000',
    ],
    [
      "a weight of 0",
      { fair: { weights: { a: 0 } } },
      'option "fair.weights.a" is 0; give each key',
    ],
    [
      "a huge weight",
      { fair: { weights: { a: 1_001 } } },
      'option "fair.weights.a" is 1001; give each key',
    ],
    ["NaN", { fair: { weights: { a: NaN } } }, 'option "fair.weights.a" is NaN; give each key'],
    [
      "a weight as text",
      { fair: { weights: { a: "2" } } },
      'option "fair.weights.a" is "2"; give each key',
    ],
    ["weights of too many keys", { fair: { weights: manyKeys(2) } }, "give at most 200 keys"],
    ["floors of too many keys", { fair: { floors: manyKeys("1/h") } }, "give at most 200 keys"],
    [
      "a part above 1",
      { fair: { critical: 1.5 } },
      'option "fair.critical" is 1.5; give a part of the rate, from 0.01 to 1',
    ],
    [
      "a floor that is no rate",
      { fair: { floors: { a: "fast" } } },
      'option "fair.floors.a" is "fast"; write whole calls per time',
    ],
    [
      "a negative floor",
      { fair: { floors: { a: { calls: -1, per: "1s" } } } },
      'option "fair.floors.a" is {"calls":-1,',
    ],
    ["a floor of null", { fair: { floors: { a: null } } }, 'option "fair.floors.a" is null; write'],
    [
      "a floor in no unit",
      { fair: { floors: { a: {} } } },
      'option "fair.floors.a" is {}; give the floor of a key in one unit',
    ],
    [
      "a floor in two units",
      { fair: { floors: { a: { calls: "1/s", tokens: "2/s" } } } },
      "give the floor of a key in one unit",
    ],
    [
      "a floor of another unit",
      { fair: { floors: { a: { tokens: "1/s" } } } },
      "this bucket has no such rate of tokens",
    ],
    [
      "a floor above the limit",
      { fair: { floors: { a: "101/s" } } },
      "the floors add up to 101 calls a second, and the limit gives 100; lower them",
    ],
    [
      "floors above the limit",
      { fair: { floors: { a: "60/s", b: "41/s" } } },
      'option "fair.floors" is {"a":"60/s","b":"41/s"}; the floors add up to 101 calls a second',
    ],
  ])("refuses %s by name", (_what, options, message) => {
    expect(errorFor({ rate: "100/s", ...options })).toContain(message);
  });

  it.each([
    [
      "weights",
      { weights: { a: 2 } },
      'option "fair.weights" is {"a":2}; the keys of this bucket share no limit',
    ],
    [
      "floors",
      { floors: { a: "1/s" } },
      'option "fair.floors" is {"a":"1/s"}; the keys of this bucket share no limit',
    ],
  ])("refuses %s for keys that share no limit", (_what, fair, message) => {
    expect(errorFor({ perKey: { rate: "5/s" }, fair })).toContain(message);
  });

  it("refuses a floor of calls under a limit of concurrent calls, and of a budget's unit", () => {
    const usd = budget({ unit: "usd", amount: 5, per: "day" });

    expect(errorFor({ limits: [concurrency(5)], fair: { floors: { a: "1/s" } } })).toContain(
      "this bucket has no such rate of calls",
    );
    expect(
      errorFor({ rate: "5/s", limits: [usd], fair: { floors: { a: { usd: "1/d" } } } }),
    ).toContain("this bucket has no such rate of usd");
  });

  it("refuses floors above the lower of two limits", () => {
    const limits = [leakyBucket("100/s"), leakyBucket("600/min")];

    expect(errorFor({ limits, fair: { floors: { a: "11/s" } } })).toContain("the limit gives 10");
  });
});

describe("an override of a policy with floors", () => {
  const limits = [leakyBucket("900/min", { unit: "tokens", burst: 50 }), leakyBucket("10/s")];
  const code = compile({
    limits,
    fair: { weights: { a: 2 }, floors: { a: "4/s", b: { tokens: "60/min" } } },
  });
  const over = (options: object) => compileOver("test", options, code);

  it("keeps turns, and finds the limits of the floors among the new ones", () => {
    const { fair } = over({ rate: "5/s" });

    expect(fair!.weights).toEqual({ a: 2 });
    expect(fair!.floors).toEqual({ a: { unit: "calls", count: 1, periodUs: 250_000, limit: 0 } });
    expect(turnsOfKey(fair!, { key: "a", costs: [1] }).floorUs).toBe(250_000);
  });

  it("may lower the rate below the floors, as an operator does in an emergency", () => {
    expect(formatPolicy(over({ rate: "2/s" }))).toBe("2/s; weights a 2; floors a 4/s");
  });

  it("may change only the turns", () => {
    expect(formatPolicy(over({ fair: { floors: { c: "9/s" } } }))).toBe(
      "900/min with a burst of 50 tokens + 10/s; floors c 9/s",
    );
    expect(over({ fair: false }).fair).toBeUndefined();
    expect(over({ fair: true }).fair).toEqual({ weights: {}, floors: {}, criticalPerMille: 900 });
  });

  it("is checked like the code's own options", () => {
    expect(() => over({ fair: { floors: { a: "11/s" } } })).toThrow("the limit gives 10");
    const ofKeys = compile({ perKey: { rate: "5/s" } });
    expect(() => compileOver("test", { fair: { weights: { a: 2 } } }, ofKeys)).toThrow(
      "share no limit",
    );
  });
});
