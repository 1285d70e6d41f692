import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RULES } from "../../../src/core/limits/registry.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { luaRule, type LuaRule, type LuaState } from "../../support/lua/lua-rules.ts";

const few = fc.integer({ min: 1, max: 10 });
const numbers = fc.record({ count: few, capacity: few, periodUs: fc.integer({ min: 1, max: 60 }) });
const anyStep = fc.record({
  do: fc.constantFrom("book", "give back", "settle", "adapt"),
  waitUs: fc.nat(30),
  cost: fc.nat(10),
  to: numbers,
});
type Step = typeof anyStep extends fc.Arbitrary<infer Each> ? Each : never;
/** How long its windows of local days are, in the place of one period. */
const days = fc.array(fc.integer({ min: 59, max: 61 }), { minLength: 40, maxLength: 40 });

/** A limit after some calls, at the time of its last one. */
function reach(
  rule: LuaRule,
  start: Limit,
  steps: readonly Step[],
): { limit: Limit; state: LuaState; nowUs: number; atUs: number } {
  let limit = start;
  const state = rule.fresh();
  const booked: [number, number][] = [];
  let [nowUs, lastUs] = [1_000, 0];
  for (const { do: what, waitUs, cost, to } of steps) {
    nowUs += waitUs;
    const atUs = Math.max(nowUs, lastUs);
    const last = booked.at(-1);
    if (what === "book" && cost <= limit.capacity) {
      const slotUs = rule.earliest(limit, state, atUs, cost, nowUs);
      if (slotUs > nowUs + 100) continue;
      rule.commit(limit, state, slotUs, cost, nowUs);
      booked.push([slotUs, cost]);
      lastUs = slotUs;
    } else if (what === "give back" && last !== undefined) {
      booked.pop();
      rule.commit(limit, state, last[0], -last[1], nowUs);
      if (last[0] > nowUs) lastUs = last[0] - 1;
    } else if (what === "settle") {
      rule.commit(limit, state, atUs, cost, nowUs);
    } else if (what === "adapt" && limit.resets === undefined) {
      const next = { ...limit, ...to };
      rule.adapt(limit, next, state, nowUs);
      limit = next;
    }
  }
  return { limit, state, nowUs, atUs: Math.max(nowUs, lastUs) };
}

describe("a cost that may pass at one time may pass at every later one", () => {
  const kinds = [...RULES.keys()].flatMap((kind) => [
    // Other Redis keys hold the state of a budget, and the bound of a limit that adapts.
    ...(kind === "budget" || kind === "adaptive-concurrency" ? [] : [[kind, false] as const]),
    ...(RULES.get(kind)!.doesRenew === true ? [[kind, true] as const] : []),
  ]);

  it.each(kinds)("%s, of local days: %s", (kind, isOfDays) => {
    const rule = luaRule(kind);
    const any = [numbers, days, fc.array(anyStep, { maxLength: 12 }), few] as const;
    fc.assert(
      fc.property(...any, (own, lengths, steps, wanted) => {
        let resetUs = 900;
        const resets = lengths.map((us) => (resetUs += us));
        // A call that costs more than a budget passes only after a grant.
        const capacity = kind === "budget" ? own.count : own.capacity;
        const isOne = { kind, unit: "calls", ...own, capacity };
        const first = isOfDays ? { ...isOne, periodUs: 60, resets } : isOne;
        const { limit, state, nowUs, atUs } = reach(rule, first, steps);
        const cost = Math.min(wanted, limit.capacity);

        const passesUs = rule.earliest(limit, state, atUs, cost, nowUs);

        if (passesUs === Infinity) return;
        const times = Array.from({ length: 150 }, (_, us) => passesUs + us);
        const found = times.map((us) => rule.earliest(limit, state, us, cost, nowUs));
        expect(found).toEqual(times);
      }),
      { numRuns: 300 },
    );
  });
});
