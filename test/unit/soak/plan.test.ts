import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FAULT_KINDS, kindOf } from "../../soak/plan/fault-kinds.ts";
import { formatPlan, planOf } from "../../soak/plan/plan.ts";

const KINDS = Object.keys(FAULT_KINDS);

describe("the plan of a soak", () => {
  it("is the same for the same seed and minutes", () => {
    expect(planOf(42, 10)).toEqual(planOf(42, 10));
  });

  it("differs for the next seed", () => {
    expect(planOf(43, 10).faults).not.toEqual(planOf(42, 10).faults);
    expect(planOf(43, 10).faults[0]).not.toEqual(planOf(42, 10).faults[0]);
  });

  it("continues in the same way when it gets more minutes", () => {
    const short = planOf(42, 3).faults;

    expect(planOf(42, 10).faults.slice(0, short.length)).toEqual(short);
  });

  it("has each kind once before any repeats", () => {
    const names = planOf(42, 20).faults.map(({ name }) => name);

    expect(new Set(names.slice(0, KINDS.length)).size).toBe(KINDS.length);
    expect(new Set(names.slice(KINDS.length, 2 * KINDS.length)).size).toBe(KINDS.length);
  });

  it("leaves quiet times between faults, and before and after them", () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 2 ** 31 - 1 }),
        fc.integer({ min: 1, max: 20 }),
        (seed, minutes) => {
          const { faults } = planOf(seed, minutes);
          let calmFromMs = 0;
          for (const { name, startMs, lengthMs } of faults) {
            const [least, most] = kindOf(name).lengthMs;
            expect(lengthMs).toBeGreaterThanOrEqual(least);
            expect(lengthMs).toBeLessThanOrEqual(most);
            expect(startMs - calmFromMs).toBeGreaterThanOrEqual(4_000);
            calmFromMs = startMs + lengthMs;
          }
          expect(minutes * 60_000 - calmFromMs).toBeGreaterThanOrEqual(10_000);
        },
      ),
      { numRuns: 20 },
    );
  });

  it("can be read", () => {
    const [head, , first] = formatPlan(planOf(42, 3));

    expect(head).toMatch(/^seed 42, 3 min, burst \d, \d+ faults$/);
    expect(first).toMatch(/^ +5\.0 s +\d\.\d s {2}\w/);
  });
});
