import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { contract } from "../../../src/core/policy/contract.ts";
import { compilePolicy, formatPolicy, readPolicyText } from "../../../src/core/policy/policy.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";
import { parsePeriod, parseRate } from "../../../src/core/limits/rate.ts";
import { worstWindow } from "../../../src/entries/testing/worst-window.ts";
import { createReferenceBucket } from "../../support/draws/reference-bucket.ts";

interface Limit {
  readonly count: number;
  readonly periodUs: number;
  readonly burst: number;
}

/** The slots of calls that come at these times, in µs. */
function slotsOf(limit: Limit, comingUs: readonly number[]): readonly number[] {
  const bucket = createReferenceBucket({ ...limit, capacity: limit.burst });
  return comingUs.map((nowUs) => bucket.reserve(nowUs, 1));
}

/** The worst that lateness can do: all that leave before a moment arrive at it, if they may, and the rest at once. */
function crowd(slots: readonly number[], jitterUs: number, atUs: number): readonly number[] {
  return slots.map((slot) => (slot < atUs ? Math.min(slot + jitterUs, atUs) : slot));
}

const someContract = fc
  .record({
    max: fc.integer({ min: 1, max: 60 }),
    windowMs: fc.integer({ min: 1, max: 100_000 }),
    jitterMs: fc.integer({ min: 0, max: 2_000 }),
    window: fc.constantFrom("sliding" as const, "calendar" as const),
  })
  .chain((given) => fc.integer({ min: 1, max: given.max }).map((burst) => ({ ...given, burst })));

describe("a contract", () => {
  it.each([
    [100, "1s", {}, { calls: 100, per: "1050ms" }, 1, "95.24/s"],
    [100, "1s", { jitterMs: 20 }, { calls: 100, per: "1020ms" }, 1, "98.04/s"],
    [100, "1s", { jitterMs: 0 }, { calls: 100, per: "1000ms" }, 1, "100/s"],
    [100, "1s", { burst: 5 }, { calls: 96, per: "1050ms" }, 5, "91.43/s with a burst of 5"],
    [100, "1s", { window: "calendar" }, { calls: 100, per: "1050ms" }, 1, "95.24/s"],
    [60, "1min", {}, { calls: 60, per: "60050ms" }, 1, "59.95/min"],
    [7, "1s", { burst: 7 }, { calls: 1, per: "1050ms" }, 7, "57.14/min with a burst of 7"],
    [1, "1d", {}, { calls: 1, per: "86400050ms" }, 1, "1/d"],
    [1, "1h", {}, { calls: 1, per: "3600050ms" }, 1, "24/d"],
    [1_000_000, "30d", {}, { calls: 1_000_000, per: "2592001s" }, 1, "23.15/min"],
    [1, "365d", { jitterMs: 0 }, { calls: 1, per: "31536000s" }, 1, "0.0027/d"],
  ] as const)("of %j per %s with %j compiles into %j", (max, per, options, rate, burst, text) => {
    const compiled = contract(max, per, options);

    expect(compiled).toEqual({ rate, burst });
    expect(compiled.describes).toBe(text);
    expect(() => parseRate("test", compiled.rate)).not.toThrow();
  });

  it("is never broken, at any pattern of calls and any delay of each", () => {
    const spread = fc.array(fc.tuple(fc.double({ min: 0, max: 1, noNaN: true }), fc.nat(9)), {
      minLength: 5,
      maxLength: 300,
    });
    fc.assert(
      fc.property(someContract, spread, ({ max, windowMs, jitterMs, window, burst }, calls) => {
        const { rate } = contract(max, `${windowMs}ms`, { window, jitterMs, burst });
        const limit = { ...parseRate("test", rate), burst };
        // One in ten comes after a pause; the others saturate the bucket.
        let nowUs = 0;
        const comingUs = calls.map(([part, kind]) => {
          if (kind === 0) nowUs += Math.round(part * 2_000 * windowMs);
          return nowUs;
        });

        const slots = slotsOf(limit, comingUs);
        const arrivals = slots.map((slot, i) => slot + Math.floor(calls[i]![0] * jitterMs * 1_000));
        const extremes = slots.map((slot, i) => slot + (calls[i]![1] < 5 ? jitterMs * 1_000 : 0));

        expect(worstWindow(arrivals, windowMs * 1_000)).toBeLessThanOrEqual(max);
        expect(worstWindow(extremes, windowMs * 1_000)).toBeLessThanOrEqual(max);
        for (const atUs of slots) {
          const crowded = crowd(slots, jitterMs * 1_000, atUs);
          expect(worstWindow(crowded, windowMs * 1_000)).toBeLessThanOrEqual(max);
        }
      }),
    );
  });

  it("is used in full, and broken by a rate that is 1 % faster", () => {
    fc.assert(
      fc.property(someContract, ({ max, windowMs, jitterMs, window, burst }) => {
        const { rate } = contract(max, `${windowMs}ms`, { window, jitterMs, burst });
        const { count, periodUs } = parseRate("test", rate);
        const allAtOnce = Array.from({ length: max + 1 }, () => 0);
        const worstOf = (limit: Limit): number => {
          const slots = slotsOf(limit, allAtOnce);
          return worstWindow(crowd(slots, jitterMs * 1_000, jitterMs * 1_000), windowMs * 1_000);
        };

        expect(worstOf({ count, periodUs, burst })).toBe(max);
        expect(worstOf({ count: count * 101, periodUs: periodUs * 100, burst })).toBe(max + 1);
      }),
    );
  });

  it("is broken in a calendar window too by a rate that is 1 % faster", () => {
    const { count, periodUs } = parseRate("test", contract(10, "1s", { window: "calendar" }).rate);
    const calls = Array.from({ length: 11 }, () => 950_000);

    const slots = slotsOf({ count: count * 101, periodUs: periodUs * 100, burst: 1 }, calls);
    const inSecond = crowd(slots, 50_000, 1_000_000).filter((at) => Math.floor(at / 1e6) === 1);

    expect(inSecond).toHaveLength(11);
  });

  it("is slower than the bound by less than a millionth when its time needs seconds", () => {
    fc.assert(
      fc.property(fc.integer({ min: 12, max: 365 }), fc.nat(100_000), (days, jitterMs) => {
        const { rate } = contract(1, `${days}d`, { jitterMs });

        const boundUs = days * 86_400e6 + jitterMs * 1_000;
        const periodUs = parsePeriod("test", "per", rate.per);
        expect(periodUs).toBeGreaterThanOrEqual(boundUs);
        expect(periodUs).toBeLessThan(boundUs * (1 + 1e-6));
      }),
    );
  });

  it.each([
    [100, "1s", {}, "contract of 100 per 1s"],
    [100, "60 seconds", { jitterMs: 0 }, "contract of 100 per 1min"],
    [100, "1s", { burst: 5 }, "contract of 100 per 1s with a burst of 5"],
  ] as const)("of %j per %s with %j is shown by its terms", (max, per, options, shown) => {
    const compiled = contract(max, per, options);
    const policy = compilePolicy("test", { ...compiled, concurrency: 5 });

    expect(formatPolicy(policy)).toBe(`${shown} + 5 at once`);
    expect(formatPolicy(readPolicyText("test", policy.text, policy))).toBe(formatPolicy(policy));
  });

  it("is shown as a plain rate once its burst changes", () => {
    const policy = compilePolicy("test", { ...contract(100, "1s"), burst: 5 });

    expect(formatPolicy(policy)).toBe("1/10.5ms with a burst of 5");
  });

  it("of a key is shown by its terms", () => {
    const policy = compilePolicy("test", { rate: "9/s", perKey: contract(5, "1s") });

    expect(formatPolicy(policy)).toBe("9/s; per key contract of 5 per 1s");
  });

  it("is not shown by a foreign label that no terms could produce", () => {
    const { text } = compilePolicy("test", contract(100, "1s"));
    const other = text.replace("contract of 100 per 1s", "a\\nb");
    const read = (): unknown =>
      readPolicyText("test", other, compilePolicy("test", { rate: "1/s" }));

    expect(read).toThrow(InvalidOptionError);
  });

  it.each([
    [0, "1s", {}, "max", "from 1 to 1000000000"],
    [1.5, "1s", {}, "max", "from 1 to 1000000000"],
    [Number.NaN, "1s", {}, "max", "from 1 to 1000000000"],
    [2_000_000_000, "1s", {}, "max", "from 1 to 1000000000"],
    [10, "soon", {}, "per", "write a time up to 366 days"],
    [10, undefined, {}, "per", "write a time up to 366 days"],
    [10, "366d", {}, "per", "with 50 ms of jitter it is longer than 366 days"],
    [10, "1s", { burst: 11 }, "burst", "give a whole number of calls from 1 to 10"],
    [10, "1s", { burst: 0 }, "burst", "give a whole number of calls from 1 to 10"],
    [10, "1s", { jitterMs: -1 }, "jitterMs", "give a whole number of milliseconds"],
    [10, "1s", { jitterMs: Number.NaN }, "jitterMs", "give a whole number of milliseconds"],
    [10, "1s", { window: "fixed" }, "window", 'give "sliding" or "calendar"'],
    [10, "1s", { jitter: 5 }, "jitter", "did you mean jitterMs?"],
    [10, "1s", null, "options", "give an object of options"],
  ])("of %j per %j with %j is refused, by naming %s", (max, per, options, option, remedy) => {
    const compile = (): unknown => contract(max, per as never, options as never);

    expect(compile).toThrow(InvalidOptionError);
    expect(compile).toThrow(expect.objectContaining({ option }));
    expect(compile).toThrow(remedy);
  });
});
