import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { leakyBucket as limitOf } from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { slotOfRun } from "../../../src/core/store.ts";
import { createReferenceBucket } from "../../support/draws/reference-bucket.ts";
import { luaRule, type LuaState } from "../../support/lua/lua-rules.ts";

const START_US = 1_790_000_000_000_123;
const leakyBucket = luaRule("leaky-bucket");

const anyLimit: fc.Arbitrary<Limit> = fc
  .record({
    calls: fc.oneof(fc.integer({ min: 1, max: 50 }), fc.integer({ min: 1, max: 400_000 })),
    per: fc.constantFrom("1s", "7s", "1min", "1h", "1d"),
    burst: fc.integer({ min: 1, max: 60 }),
  })
  .map(({ calls, per, burst }) => limitOf({ calls, per }, { burst }));

/** Books one call, as a draw does, and tells its slot. */
function createBucket(limit: Limit) {
  const state = leakyBucket.fresh();
  return {
    state,
    reserve: (nowUs: number, cost: number): number => {
      const slotUs = leakyBucket.earliest(limit, state, nowUs, cost, START_US);
      leakyBucket.commit(limit, state, slotUs, cost, START_US);
      return slotUs;
    },
  };
}

/** When it will have drained, the fraction of a µs beyond, and since when it has not been empty. */
function numbersOf({ table }: LuaState): unknown[] {
  return [table["$a"], table["$b"], table["$c"]];
}

describe("the arithmetic of a leaky bucket", () => {
  it("gives the slots of an exact reference, rounded up to a µs", () => {
    const calls = fc.array(
      fc.record({ afterUs: fc.oneof(fc.nat(100), fc.nat(5_000_000)), cost: fc.nat(4) }),
      { maxLength: 200 },
    );
    fc.assert(
      fc.property(anyLimit, calls, (limit, given) => {
        const reference = createReferenceBucket(limit);
        const { state, reserve } = createBucket(limit);
        let nowUs = START_US;
        const wrong: unknown[] = [];
        for (const { afterUs, cost: wish } of given) {
          const cost = Math.min(wish + 1, limit.capacity);
          nowUs += afterUs;

          const lateUs = reserve(nowUs, cost) - reference.reserve(nowUs, cost);

          if (lateUs !== 0 && lateUs !== -1) wrong.push(lateUs);
          if (!numbersOf(state).every(Number.isSafeInteger)) wrong.push(numbersOf(state));
        }
        expect(wrong).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  it.each(["300000/s", "70000/s", "7/s"])(
    "gives a backlog at %s exactly the slots of a reference, over 200,000 calls",
    (rate) => {
      const limit = limitOf(rate, { burst: 3 });
      const reference = createReferenceBucket(limit);
      const { reserve } = createBucket(limit);
      let nowUs = START_US;
      let wrong = 0;

      for (let call = 0; call < 50_000; call++) {
        const slotUs = reserve(nowUs, 1);
        if (slotUs !== reference.reserve(nowUs, 1)) wrong += 1;
        // As a pacer does, which draws again before it runs dry.
        if (call % 50 === 0) nowUs = Math.max(nowUs, slotUs - 100);
      }

      expect(wrong).toBe(0);
    },
  );

  it.each(["300000/s", "70000/s", "7/s"])(
    "never runs more than a µs ahead of %s, however its callers use fractions",
    (rate) => {
      const limit = limitOf(rate);
      const { reserve } = createBucket(limit);
      let slotUs = START_US - 1;

      // Each asks a µs after the last slot drains: the moment at which a fraction could be lost or won.
      for (let call = 0; call <= 50_000; call++) {
        const atUs = START_US + Math.floor((call * limit.periodUs) / limit.count) + 1;
        slotUs = reserve(atUs, 1);
      }

      const shouldUs = (50_000 * limit.periodUs) / limit.count;
      expect(slotUs - START_US).toBeGreaterThanOrEqual(Math.floor(shouldUs));
      expect(slotUs - START_US).toBeLessThanOrEqual(Math.ceil(shouldUs) + 1);
    },
  );

  it("spans exactly one second with 300,001 calls of 300,000/s", () => {
    const limit = limitOf("300000/s");
    const { reserve } = createBucket(limit);
    for (let call = 0; call < 300_000; call++) reserve(START_US, 1);

    expect(reserve(START_US, 1)).toBe(START_US + 1_000_000);
  });

  it("books a run of calls at the times at which it would book them one by one", () => {
    const count = fc.integer({ min: 1, max: 40 });
    fc.assert(
      fc.property(anyLimit, fc.nat(60), count, fc.nat(2), (limit, booked, calls, wish) => {
        const cost = Math.min(wish + 1, limit.capacity);
        const single = createBucket(limit);
        const whole = createBucket(limit);
        for (let call = 0; call < booked; call++) single.reserve(START_US, 1);
        for (let call = 0; call < booked; call++) whole.reserve(START_US, 1);
        const atUs = START_US + 1_000;
        const excess = leakyBucket.excess(limit, whole.state, atUs, cost);
        const run = {
          count: calls,
          atUs,
          excess,
          step: cost * limit.periodUs,
          drain: limit.count,
        };

        leakyBucket.commit(limit, whole.state, slotOfRun(run, 0), calls * cost, START_US);
        const slots = Array.from({ length: calls }, () => single.reserve(atUs, cost));

        expect(Array.from({ length: calls }, (_, index) => slotOfRun(run, index))).toEqual(slots);
        expect(numbersOf(whole.state)).toEqual(numbersOf(single.state));
      }),
    );
  });

  it("has room for a whole burst again after a long idle time, and for no more", () => {
    const limit = limitOf("1000000000/s", { burst: 2 });
    const { state, reserve } = createBucket(limit);
    for (let call = 0; call < 5_000; call++) reserve(START_US, 1);
    const laterUs = 2 ** 53 - 1_000;

    expect(leakyBucket.earliest(limit, state, laterUs, 2, START_US)).toBe(laterUs);
    expect(leakyBucket.earliest(limit, state, laterUs, 3, START_US)).toBeGreaterThan(laterUs);
  });

  it("takes back what was booked, to the last fraction", () => {
    fc.assert(
      fc.property(anyLimit, fc.integer({ min: 1, max: 50 }), (limit, calls) => {
        const { state, reserve } = createBucket(limit);
        reserve(START_US, 1);
        const before = numbersOf(state);
        const slots = Array.from({ length: calls }, () => reserve(START_US, 1));

        for (const slotUs of slots.toReversed()) {
          leakyBucket.commit(limit, state, slotUs, -1, START_US);
        }

        expect(numbersOf(state)).toEqual(before);
      }),
    );
  });

  it("keeps the backlog's time, and the used part of the burst, under a new limit", () => {
    const from = limitOf("100/s", { burst: 4 });
    const to = limitOf("10/s", { burst: 2 });
    const { state, reserve } = createBucket(from);
    for (let call = 0; call < 10; call++) reserve(START_US, 1);

    leakyBucket.adapt(from, to, state, START_US);

    const slotUs = leakyBucket.earliest(to, state, START_US, 1, START_US);
    expect(slotUs).toBe(START_US + 60_000 + 100_000);
  });
});
