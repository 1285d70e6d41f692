import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PRIORITIES, type Priority } from "../../../../src/core/input/options.ts";
import { createLine, type Line, type Waiter } from "../../../../src/throttle/waiting/line.ts";
import { createArrivals } from "../../../../src/throttle/waiting/waiting-call.ts";
import { heapUsed } from "../../../support/heap-used.ts";

interface Named extends Waiter {
  readonly name: number;
}

function waiter(
  name: number,
  priority: Priority = "normal",
  lane?: string,
  ...laneWeights: number[]
): Named {
  const links = { previous: undefined, next: undefined };
  return { name, priority, lane, laneWeights, round: 0, ...links };
}

/** Has so many callers of a lane wait. */
function pushAll(line: Line<Named>, lane: string, count: number, ...weights: number[]): Named[] {
  const waiters = Array.from({ length: count }, (_, name) =>
    waiter(name, "normal", lane, ...weights),
  );
  for (const each of waiters) line.push(each);
  return waiters;
}

function shiftAll(line: Line<Named>, count: number = line.size): (string | undefined)[] {
  return Array.from({ length: count }, () => line.shift()?.lane);
}

const LANES = ["A", "B", "C"];

describe("the line", () => {
  it("goes by priority, and within one by order of arrival, whichever calls give up", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("push" as const), priority: fc.constantFrom(...PRIORITIES) }),
      fc.record({ do: fc.constant("shift" as const) }),
      fc.record({ do: fc.constant("remove" as const), which: fc.nat(20) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100, size: "max" }), (steps) => {
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

it("can be gone through from its end, while some of it are taken out", () => {
  const line = createLine<Named>();
  const priorities: Priority[] = ["normal", "low", "critical", "normal", "low", "critical"];
  for (const [name, priority] of priorities.entries()) line.push(waiter(name, priority));
  const seen: number[] = [];

  for (const each of line.fromLast()) {
    seen.push(each.name);
    if (each.name % 2 === 0) line.remove(each);
  }

  expect(seen).toEqual([4, 1, 3, 0, 5, 2]);
  expect(Array.from({ length: line.size }, () => line.shift()?.name)).toEqual([5, 3, 1]);
});

describe("a line with lanes", () => {
  it("takes turns among the waiting lanes, however many calls of one came first", () => {
    const line = createLine<Named>();

    pushAll(line, "A", 5);
    pushAll(line, "B", 2);
    pushAll(line, "C", 1);

    expect(shiftAll(line).join("")).toBe("CBABAAAA");
  });

  it("gives a lane as many turns in a round as its weight says", () => {
    const line = createLine<Named>();

    pushAll(line, "A", 8);
    pushAll(line, "C", 8, 2);

    const went = shiftAll(line).join("");
    for (let at = 3; at < 12; at += 3)
      expect(went.slice(0, at).replaceAll("A", "").length).toBe((at / 3) * 2);
    expect(went.slice(12)).toBe("AAAA");
  });

  it("lets one who comes to a line full of another lane's go next", () => {
    const line = createLine<Named>();
    pushAll(line, "A", 20);
    shiftAll(line, 7);

    pushAll(line, "B", 1);

    expect(shiftAll(line, 1)).toEqual(["B"]);
  });

  it("has one without a lane wait no more rounds than callers, however seldom the last lane goes", () => {
    const line = createLine<Named>();
    pushAll(line, "seldom", 3, 0.01);
    line.push(waiter(0));

    pushAll(line, "A", 20);

    const went = shiftAll(line);
    expect(went.indexOf(undefined)).toBeLessThanOrEqual(3 + 4);
  });

  it("takes no turn from a lane whose only caller has left without one, however seldom it goes", () => {
    const line = createLine<Named>();
    pushAll(line, "A", 20);
    const [leaver] = pushAll(line, "seldom", 1, 0.01);
    line.remove(leaver!);

    pushAll(line, "seldom", 1, 0.01);

    expect(shiftAll(line, 2)).toContain("seldom");
  });

  it("lets no lane have two turns more than another that waits all the while, and keeps the order inside a lane", () => {
    const step = fc.oneof(
      fc.record({ do: fc.constant("push" as const), lane: fc.constantFrom(...LANES) }),
      fc.record({ do: fc.constant("shift" as const) }),
      fc.record({ do: fc.constant("remove" as const), which: fc.nat(20) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120, size: "max" }), (steps) => {
        const line = createLine<Named>();
        let model: Named[] = [];
        /** How often each other lane went since each lane has waited without a turn. */
        const passedBy = new Map<string, Map<string, number>>();
        const wrong: number[] = [];
        const waits = (lane: string): boolean => model.some((each) => each.lane === lane);
        for (const [name, each] of steps.entries()) {
          if (each.do === "push") {
            if (!waits(each.lane)) passedBy.set(each.lane, new Map());
            const newcomer = waiter(name, "normal", each.lane);
            line.push(newcomer);
            model.push(newcomer);
          } else if (each.do === "shift") {
            const gone = line.shift();
            if (gone === undefined) continue;
            if (gone !== model.find(({ lane }) => lane === gone.lane)) wrong.push(gone.name);
            model = model.filter((candidate) => candidate !== gone);
            passedBy.set(gone.lane!, new Map());
            for (const lane of LANES.filter((other) => other !== gone.lane && waits(other))) {
              const passes = passedBy.get(lane)!;
              const count = (passes.get(gone.lane!) ?? 0) + 1;
              passes.set(gone.lane!, count);
              if (count > 2) wrong.push(gone.name);
            }
          } else if (model[each.which] !== undefined) {
            const leaver = model[each.which]!;
            line.remove(leaver);
            model = model.filter((candidate) => candidate !== leaver);
            // Who lets a turn go has not waited for it; the lane's next one waits anew.
            passedBy.set(leaver.lane!, new Map());
          }
          expect(wrong).toEqual([]);
          expect(line.size).toBe(model.length);
        }
      }),
      { numRuns: 500 },
    );
  });

  it("gives a lane that comes back at once no second turn before those that have waited", () => {
    const line = createLine<Named>();
    pushAll(line, "A", 1);
    pushAll(line, "B", 4);
    const went: (string | undefined)[] = [];

    for (let turn = 0; turn < 6; turn++) {
      const gone = line.shift()!;
      went.push(gone.lane);
      if (gone.lane === "A") line.push(waiter(turn, "normal", "A"));
    }

    expect(went.join("")).toMatch(/^ABB?ABB?A/);
    expect(went.join("")).not.toContain("AA");
  });

  it("does not make a lane pay for callers that left without a turn", () => {
    const line = createLine<Named>();
    const leavers = pushAll(line, "A", 50);
    pushAll(line, "B", 50);
    for (const each of leavers) line.remove(each);

    pushAll(line, "A", 1);

    expect(shiftAll(line, 3)).toContain("A");
  });

  it("puts one without a lane behind all who came before, and none before those who came earlier", () => {
    const line = createLine<Named>();
    pushAll(line, "A", 2);
    line.push(waiter(0));
    pushAll(line, "B", 1);
    line.push(waiter(1));

    const went = shiftAll(line);

    expect(went.indexOf(undefined)).toBeGreaterThan(went.lastIndexOf("A"));
    expect(went.at(-1)).toBe(undefined);
  });

  it("takes turns inside a priority only", () => {
    const line = createLine<Named>();
    pushAll(line, "A", 2);
    for (const name of [0, 1]) line.push(waiter(name, "high", "A"));
    line.push(waiter(0, "critical", "B"));

    expect(shiftAll(line).join("")).toBe("BAAAA");
  });

  it("does not grow with the lanes that it has seen", () => {
    const line = createLine<Named>();
    line.push(waiter(0, "normal", "first"));
    const before = heapUsed();
    for (let name = 1; name <= 300_000; name++) {
      line.push(waiter(name, "normal", `a lane that comes but once, number ${name}`));
      line.shift();
    }

    expect(line.size).toBe(1);
    expect(heapUsed() - before).toBeLessThan(5_000_000);
  });
});

describe("the position in the queue of all replicas", () => {
  it("is a millisecond apart for calls that come together, and when they came for those that come later", () => {
    const queuedAtMs = createArrivals();

    const together = [10, 10, 10.2].map((nowMs) => queuedAtMs(2, nowMs, 0));

    expect(together).toEqual([10, 11, 12]);
    expect(queuedAtMs(2, 20, 0)).toBe(20);
  });

  it("is one call's time apart where one call takes half a second, up to a second", () => {
    const queuedAtMs = createArrivals();

    const places = [1, 2, 3, 4].map(() => queuedAtMs(2, 10, 500));

    expect(places).toEqual([10, 510, 1_010, 1_010]);
  });

  it("is put off for each priority by itself", () => {
    const queuedAtMs = createArrivals();

    const places = [2, 0, 2, 0].map((rank) => queuedAtMs(rank, 10, 0));

    expect(places).toEqual([10, 10, 11, 11]);
  });

  it("is put off by 200 ms at most, however many come together", () => {
    const queuedAtMs = createArrivals();

    const places = Array.from({ length: 5_000 }, () => queuedAtMs(1, 10, 0));

    expect(places.slice(199, 202)).toEqual([209, 210, 210]);
    expect(places.at(-1)).toBe(210);
  });

  it("does not go back for a call that is put into line late, since when it came", () => {
    const queuedAtMs = createArrivals();
    const together = Array.from({ length: 100 }, () => queuedAtMs(1, 1_000, 0));

    expect(queuedAtMs(1, 500, 0)).toBe(700);
    expect(queuedAtMs(1, 1_000, 0)).toBe(together.at(-1)! + 1);
  });
});
