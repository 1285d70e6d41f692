import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  convertLevel,
  drainUs,
  excessOf,
  fitWithin,
  leak,
  type LeakyBucket,
} from "../../../src/core/limits/leaky-bucket.ts";
import { compilePolicy } from "../../../src/core/policy.ts";
import { createReferenceBucket } from "../../support/reference-bucket.ts";

const anyLimit: fc.Arbitrary<LeakyBucket> = fc
  .record({
    calls: fc.oneof(fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 400_000 })),
    per: fc.constantFrom("1s", "7s", "1min", "1h", "1d"),
    burst: fc.integer({ min: 1, max: 60 }),
  })
  .map(({ calls, per, burst }) => compilePolicy("test", { rate: { calls, per }, burst }));

describe("the arithmetic of a leaky bucket", () => {
  it("gives the slots of an exact reference, whatever the calls", () => {
    const calls = fc.array(
      fc.record({ afterUs: fc.oneof(fc.nat(100), fc.nat(5_000_000)), cost: fc.nat(4) }),
      { maxLength: 200 },
    );
    fc.assert(
      fc.property(anyLimit, calls, (limit, given) => {
        const reference = createReferenceBucket(limit);
        let nowUs = 1_790_000_000_000_123;
        let level = 0;
        for (const { afterUs, cost: wish } of given) {
          const cost = Math.min(wish + 1, limit.burst);
          nowUs += afterUs;
          level = leak(limit, level, afterUs);

          const slotUs = nowUs + drainUs(limit, excessOf(limit, level, cost));
          level += cost * limit.periodUs;

          expect(slotUs).toBe(reference.reserve(nowUs, cost));
          expect(Number.isSafeInteger(level)).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });

  it("spans exactly one second with 300,001 calls of 300,000/s", () => {
    const limit = compilePolicy("test", { rate: "300000/s" });
    let level = 0;
    for (let call = 0; call < 300_000; call++) level += limit.periodUs;

    expect(drainUs(limit, excessOf(limit, level, 1))).toBe(1_000_000);
  });

  it("counts as many slots within a horizon as there are, one by one", () => {
    const level = fc.integer({ min: 0, max: 2 ** 40 });
    fc.assert(
      fc.property(anyLimit, level, fc.integer({ min: 1, max: 3 }), (limit, booked, wish) => {
        const cost = Math.min(wish, limit.burst);
        const excess = excessOf(limit, booked, cost);
        const horizonUs = 100;
        const count = fitWithin(limit, { excess, cost, horizonUs });
        const waitUs = (index: number): number =>
          drainUs(limit, excess + index * cost * limit.periodUs);

        const isWithin = [count - 1, count].map((index) => index < 0 || waitUs(index) <= horizonUs);

        expect(isWithin).toEqual([true, false]);
      }),
    );
  });

  it("leaks all in a long idle time without overflowing", () => {
    const limit = compilePolicy("test", { rate: "1000000000/s" });

    expect(leak(limit, 5, Number.MAX_SAFE_INTEGER)).toBe(0);
  });

  it("keeps the backlog's time, and the used part of the burst, under a new limit", () => {
    const from = compilePolicy("test", { rate: "100/s", burst: 4 });
    const to = compilePolicy("test", { rate: "10/s", burst: 2 });
    const tenBooked = 10 * from.periodUs;

    const level = convertLevel(from, to, tenBooked);

    expect(drainUs(to, excessOf(to, level, 1))).toBe(60_000 + 100_000);
  });
});
