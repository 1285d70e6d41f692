import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PRIORITIES, type Priority } from "../../../src/core/priority.ts";
import { createLine, type Waiter } from "../../../src/throttle/line.ts";

interface Named extends Waiter {
  readonly name: number;
}

const waiter = (name: number, priority: Priority): Named => ({
  name,
  priority,
  previous: undefined,
  next: undefined,
});

describe("the line", () => {
  it("goes by priority, and inside one first come, first served, whoever leaves between", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("push" as const), priority: fc.constantFrom(...PRIORITIES) }),
      fc.record({ do: fc.constant("shift" as const) }),
      fc.record({ do: fc.constant("remove" as const), which: fc.nat(20) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const line = createLine<Named>();
        let model: Named[] = [];
        for (const [name, each] of steps.entries()) {
          if (each.do === "push") {
            const newcomer = waiter(name, each.priority);
            line.push(newcomer);
            model.push(newcomer);
          }
          const first = PRIORITIES.map((priority) =>
            model.find((candidate) => candidate.priority === priority),
          ).find((candidate) => candidate !== undefined);
          const expected = each.do === "shift" ? first : undefined;
          const shifted = each.do === "shift" ? line.shift() : undefined;
          const leaver = each.do === "remove" ? model[each.which] : expected;
          if (each.do === "remove" && leaver !== undefined) line.remove(leaver);
          model = model.filter((candidate) => candidate !== leaver);

          expect(shifted).toBe(expected);
          expect(line.size).toBe(model.length);
        }
      }),
    );
  });
});
