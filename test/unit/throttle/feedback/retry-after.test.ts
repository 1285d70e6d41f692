import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { readDelayMs, readWaitMs } from "../../../../src/throttle/feedback/retry-after.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);

const digits = fc.string({
  unit: fc.constantFrom(...Array.from("0123456789.-+eE: ")),
  maxLength: 70,
});
const anyValue = fc.oneof(
  fc.anything(),
  fc.string(),
  digits,
  fc.double(),
  fc.constant("9".repeat(1e5)),
);

describe("Retry-After", () => {
  it.each([
    ["120", 120_000],
    [" 120 ", 120_000],
    ["0", 0],
    ["1.5", 1_500],
    ["64.57", 64_570],
    ["4.03", 4_030],
    ["0.0004", 1],
    [7, 7_000],
    [0.25, 250],
  ])("of %j seconds is %d ms", (value, expected) => {
    expect(readWaitMs(value, nowMs)).toBe(expected);
  });

  it.each([
    "Sat, 21 Nov 2026 12:00:30 GMT",
    "Saturday, 21-Nov-26 12:00:30 GMT",
    "Sat Nov 21 12:00:30 2026",
  ])("reads the date %j", (value) => {
    expect(readWaitMs(value, nowMs)).toBe(30_000);
  });

  it("reads a day of one digit, which asctime writes with a blank before it", () => {
    expect(readWaitMs("Tue Dec  1 12:00:00 2026", nowMs)).toBe(10 * 86_400_000);
  });

  it.each(["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"])(
    "asks for no wait with %j, which has passed",
    (value) => {
      expect(readWaitMs(value, nowMs)).toBe(0);
    },
  );

  it("rounds up what is left of a ms", () => {
    expect(readWaitMs("Sat, 21 Nov 2026 12:00:01 GMT", nowMs + 0.5)).toBe(1_000);
  });

  it("returns a thousand years uncapped", () => {
    expect(readWaitMs("31536000000", nowMs)).toBe(31_536_000_000_000 - nowMs);
    expect(readWaitMs("9".repeat(60), nowMs)).toBe(Number.MAX_SAFE_INTEGER);
  });

  it.each([
    "-5",
    "1e400",
    "0x10",
    "soon",
    "",
    "12 monkeys",
    "Sat, 31 Feb 2026 12:00:00 GMT",
    "Sat, 21 Nov 2026 25:00:00 GMT",
    "2026-11-21",
    "1".repeat(1_000_000),
    -5,
    Number.NaN,
    Infinity,
    ["120"],
    {},
    null,
    undefined,
    true,
    10n,
    Symbol("120"),
  ])("says nothing with hostile value %#", (value) => {
    expect(readWaitMs(value, nowMs)).toBeUndefined();
  });

  it("is a whole number of ms or nothing, whatever comes in", () => {
    fc.assert(
      fc.property(anyValue, fc.constantFrom(nowMs, 0, Number.NaN), (value, wallNowMs) => {
        const text = typeof value === "string" ? value : undefined;
        const read = [
          readWaitMs(value, wallNowMs),
          readDelayMs(value, 1),
          readWaitMs(value, wallNowMs),
          readWaitMs(text, nowMs),
          readWaitMs(text, wallNowMs),
        ];

        expect(read.every((ms = 0) => Number.isSafeInteger(ms) && ms >= 0)).toBe(true);
      }),
      { numRuns: 10_000 },
    );
  });
});

describe("a reset", () => {
  it.each([
    ["epoch seconds", String(nowMs / 1_000 + 60)],
    ["epoch seconds with decimals", `${nowMs / 1_000 + 60}.000`],
    ["epoch ms", String(nowMs + 60_000)],
    ["seconds from now", "60"],
  ])("may be given in %s", (_form, value) => {
    expect(readWaitMs(value, nowMs)).toBe(60_000);
  });
});

describe("a duration as Go prints it", () => {
  it.each([
    ["6m0s", 360_000],
    ["20ms", 20],
    ["1h2m3.5s", 3_723_500],
    ["1.2µs", 1],
    ["0s", 0],
    ["57", 57_000],
  ])("reads %j as %d ms", (text, expected) => {
    expect(readWaitMs(text, nowMs)).toBe(expected);
  });

  it.each(["-1", "-1s", "6 m", "m", "1x", "", undefined])("makes nothing of %j", (text) => {
    expect(readWaitMs(text, nowMs)).toBeUndefined();
  });
});
