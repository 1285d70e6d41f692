import { describe, expect, it } from "vitest";
import { z } from "zod";
import { describeValue } from "../../../src/core/describe.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { concurrency, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import { closest, readName, readOptions, wholeNumber } from "../../../src/core/input/options.ts";
import { compilePolicy } from "../../../src/core/policy/policy.ts";

const schema = z.strictObject({
  maxWaitMs: wholeNumber(1, 1_000, "milliseconds").optional(),
  backoff: z.strictObject({ baseMs: wholeNumber(1, 10, "milliseconds") }).optional(),
});

const awaitable = Object.fromEntries(["then"].map((name) => [name, () => {}]));

describe("options", () => {
  it("are frozen after reading", () => {
    expect(Object.isFrozen(readOptions("draw()", schema, { maxWaitMs: 5 }))).toBe(true);
  });

  it.each([
    [
      { maxWait: 5 },
      'draw(): option "maxWait" is 5; there is no such option; did you mean maxWaitMs?',
    ],
    [
      { x: 5 },
      'draw(): option "x" is 5; there is no such option; the options are maxWaitMs, backoff.',
    ],
    [
      { maxWaitMs: 0 },
      'draw(): option "maxWaitMs" is 0; give a whole number of milliseconds from 1 to 1000.',
    ],
    [
      { maxWaitMs: "5" },
      'draw(): option "maxWaitMs" is "5"; give a whole number of milliseconds from 1 to 1000.',
    ],
    [
      { backoff: { baseMs: 11 } },
      'draw(): option "backoff.baseMs" is 11; give a whole number of milliseconds from 1 to 10.',
    ],
    [
      { backoff: { base: 1 } },
      'draw(): option "backoff.base" is 1; there is no such option; did you mean baseMs?',
    ],
    [
      { backoff: { type: "exponential" } },
      'draw(): option "backoff.type" is "exponential"; there is no such option; a backoff is exponential, with full jitter: { baseMs, maxMs }.',
    ],
    [
      { backoff: { delay: 5 } },
      'draw(): option "backoff.delay" is 5; there is no such option; did you mean baseMs?',
    ],
    [
      { limiter: {} },
      'draw(): option "limiter" is {}; there is no such option; give the rate to the bucket of the queue.',
    ],
    [{ backoff: 1_000 }, 'draw(): option "backoff" is 1000; give an object of baseMs.'],
  ])("that cannot work, as %j, are refused by name, value and remedy", (given, message) => {
    expect(() => readOptions("draw()", schema, given)).toThrow(message);
  });

  it.each([
    [
      { filter: { a: { regex: 1 } } },
      'put(): option "filter.a.regex" is 1; there is no such option; the options are gt, lt.',
    ],
    [{ filter: { a: 1 } }, 'put(): option "filter.a" is 1; give an object of gt, lt.'],
  ])("in a table with any names, as %j, are refused in the same way", (given, message) => {
    const condition = z.strictObject({ gt: z.number().optional(), lt: z.number().optional() });
    const table = z.strictObject({ filter: z.record(z.string(), condition).optional() });

    expect(() => readOptions("put()", table, given)).toThrow(message);
  });

  it.each<[string, () => unknown, string]>([
    ["a promise", async () => ({ maxWaitMs: 5 }), "a promise"],
    // A test fails with a rejection that nobody hears.
    ["a promise that rejects", () => Promise.reject(new Error("no options")), "a promise"],
    ["something else to await", () => awaitable, "{}"],
  ])("that are %s are refused", (_what, give, shown) => {
    const read = (): unknown => readOptions("draw()", schema, give());

    expect(read).toThrow(
      `draw(): option "options" is ${shown}; give an object of options, not a promise of one.`,
    );
  });

  it.each([null, 5, "x", []])("that are %j are refused", (given) => {
    expect(() => readOptions("draw()", schema, given)).toThrow(InvalidOptionError);
  });
});

describe("a token bucket", () => {
  it.each([
    [{ capacity: 5 }, 'option "refill" is undefined; write whole calls per time'],
    [{ refill: "1/s" }, 'option "capacity" is undefined; give a whole number of units'],
    [
      undefined,
      'option "options" is undefined; give an object of options: unit, shadow, capacity, refill',
    ],
  ])("of %j is refused with the missing option", (given, message) => {
    expect(() => tokenBucket(given as never)).toThrow(`tokenBucket(): ${message}`);
  });
});

describe("a burst", () => {
  it.each([0, 2.5, -1, Number.NaN, Infinity, "3", 1e15])("of %j is refused", (burst) => {
    const compile = (): unknown => compilePolicy("test", { rate: "100/s", burst: burst as number });

    expect(compile).toThrow(InvalidOptionError);
    expect(compile).toThrow(/option "burst"/);
  });
});

it.each([0, 1.5, -1, 1e15, "5"])(
  "a concurrency of %j is refused by the name of its argument",
  (max) => {
    expect(() => concurrency(max as number)).toThrow('concurrency(): option "max"');
  },
);

describe("a name", () => {
  it.each(["", "a{b", "a}b", "a:b", "a\nb", "a\u0000b", "x".repeat(1_000_000), "\ud800", 5, null])(
    "that is %j is refused",
    (name) => {
      expect(() => readName("bucket()", "name", name)).toThrow(InvalidOptionError);
    },
  );

  it.each(["stripe", "open ai", "übergabe/α", "a.b-c_d@e"])("that is %j is accepted", (name) => {
    expect(readName("bucket()", "name", name)).toBe(name);
  });
});

describe("a value in an error message", () => {
  it("stays short and on one line", () => {
    const described = describeValue("a\n".repeat(500_000));

    expect(described.length).toBeLessThan(100);
    expect(described).not.toContain("\n");
  });

  it("is shown as its type when JSON cannot hold it", () => {
    const cycle: Record<string, unknown> = {};
    cycle["self"] = cycle;

    expect(describeValue(cycle)).toBe("[object Object]");
  });

  it("shows a BigInt within it", () => {
    expect(describeValue({ a: 1n })).toBe('{"a":"1n"}');
    expect(describeValue(new Date(Number.NaN))).toBe("an invalid date");
  });
});

describe("the nearest name", () => {
  const NAMES = [
    "key",
    "data",
    "name",
    "delayMs",
    "dedupeId",
    "priority",
    "maxWaitMs",
    "attempts",
    "tokenizer",
    "tokens",
  ];

  it.each([
    ["dely", "delayMs"],
    ["delay", "delayMs"],
    ["deley_ms", "delayMs"],
    ["kex", "key"],
    ["maxWait", "maxWaitMs"],
    ["maxWiat", "maxWaitMs"],
    ["prio", "priority"],
    ["dedupe", "dedupeId"],
    ["nme", "name"],
    ["token", "tokens"],
    ["atempts", "attempts"],
    ["zzz", undefined],
    ["d", undefined],
  ])("of %s is %s", (name, near) => {
    expect(closest(name, NAMES)).toBe(near);
  });
});
