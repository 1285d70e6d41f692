import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PRIORITIES } from "../../../../src/core/input/options.ts";
import { encodeKey } from "../../../../src/core/key-path.ts";
import { createLine, type Line, type Waiter } from "../../../../src/throttle/waiting/line.ts";

interface Named extends Waiter {
  readonly path: string;
  readonly name: number;
}

/** A caller of the lane of a path, written as `"acme/e1"`. */
function waiter(path: string, name: number, ...laneWeights: number[]): Named {
  const links = { previous: undefined, next: undefined };
  const lane = encodeKey(path.split("/"));
  return { name, path, priority: "normal", lane, laneWeights, round: 0, ...links };
}

function pushAll(line: Line<Named>, path: string, count: number, ...weights: number[]): Named[] {
  const waiters = Array.from({ length: count }, (_, name) => waiter(path, name, ...weights));
  for (const each of waiters) line.push(each);
  return waiters;
}

function shiftAll(line: Line<Named>, count: number = line.size): string[] {
  return Array.from({ length: count }, () => line.shift()!.path);
}

const countOf = (head: string, went: readonly string[]): number =>
  went.filter((path) => path === head || path.startsWith(`${head}/`)).length;

describe("a line with lanes of paths", () => {
  it("gives a customer with fifty endpoints one share, and each of these a turn of it", () => {
    const line = createLine<Named>();
    for (let endpoint = 0; endpoint < 50; endpoint++) pushAll(line, `acme/e${endpoint}`, 2);

    pushAll(line, "other/e0", 50);

    const went = shiftAll(line, 100);
    expect(countOf("acme", went)).toBe(50);
    expect(new Set(went).size).toBe(51);
  });

  it("lets an endpoint that comes when its customer waits for another go with its next turn", () => {
    const line = createLine<Named>();
    pushAll(line, "acme/e1", 20);
    pushAll(line, "other/e1", 20);
    shiftAll(line, 6);

    pushAll(line, "acme/e2", 1);

    expect(shiftAll(line, 2)).toContain("acme/e2");
    const went = shiftAll(line, 10);
    expect(countOf("acme", went)).toBe(5);
  });

  it("takes turns by weight at each level", () => {
    const line = createLine<Named>();
    pushAll(line, "gold/bulk", 60, 3, 1);
    pushAll(line, "gold/urgent", 60, 3, 2);
    pushAll(line, "plain/bulk", 60, 1, 1);

    const went = shiftAll(line, 80);

    expect(countOf("gold", went)).toBe(60);
    expect(countOf("gold/urgent", went)).toBe(40);
  });

  it("takes turns at the third level, too", () => {
    const line = createLine<Named>();
    pushAll(line, "acme/eu/e1", 12);
    pushAll(line, "acme/us/e1", 12);
    pushAll(line, "acme/us/e2", 12);

    const went = shiftAll(line, 12);

    expect([countOf("acme/eu", went), countOf("acme/us/e2", went)]).toEqual([6, 3]);
  });

  it("counts calls of a customer itself as those of one endpoint more, whichever came first", () => {
    const first = createLine<Named>();
    pushAll(first, "acme", 10);
    pushAll(first, "acme/e1", 10);
    const last = createLine<Named>();
    pushAll(last, "acme/e1", 10);
    pushAll(last, "acme", 10);

    const shares = [first, last].map((line) => countOf("acme/e1", shiftAll(line, 10)));

    expect(shares).toEqual([5, 5]);
  });

  it("takes no turn from an endpoint whose only caller has left without one, however seldom it goes", () => {
    const line = createLine<Named>();
    pushAll(line, "acme/e1", 20);
    const [leaver] = pushAll(line, "acme/seldom", 1, 1, 0.01);
    line.remove(leaver!);

    pushAll(line, "acme/seldom", 1, 1, 0.01);

    expect(shiftAll(line, 2)).toContain("acme/seldom");
  });

  it("goes on with the turns of those that took the place of another", () => {
    const line = createLine<Named>();
    pushAll(line, "acme/e1", 5);
    const [urgent] = ["acme/e2"].map((path) => ({ ...waiter(path, 0), priority: PRIORITIES[0]! }));
    line.push(urgent!);
    const drawnFor = line.firstOf(PRIORITIES.indexOf("normal"))!;

    line.replace(urgent!, drawnFor);
    pushAll(line, "acme/e3", 2);

    const went = shiftAll(line);
    expect(went[0]).toBe("acme/e1");
    expect(went.slice(1).toSorted()).toEqual([
      ...Array<string>(4).fill("acme/e1"),
      "acme/e3",
      "acme/e3",
    ]);
  });

  it("lets no lane of a head have two turns more than a waiting one, and keeps the order inside a lane", () => {
    const paths = ["a", "a/x", "a/x/1", "a/y", "b/x"];
    /** What stands in a line for callers of a path: in that of all, of a head, and of a head below that. */
    const namesOf = (path: string): string[] => {
      const heads = path.split("/").map((_, at, all) => all.slice(0, at + 1).join("/"));
      return [0, 1, 2].map((level) => heads[level] ?? `${path}/${"-/".repeat(level)}`);
    };
    const path = fc.constantFrom(...paths);
    const step = fc.oneof(
      { weight: 6, arbitrary: fc.record({ do: fc.constant("push" as const), path }) },
      { weight: 3, arbitrary: fc.record({ do: fc.constant("shift" as const) }) },
      {
        weight: 1,
        arbitrary: fc.record({ do: fc.constant("remove" as const), which: fc.nat(20) }),
      },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120, size: "max" }), (steps) => {
        const line = createLine<Named>();
        let model: Named[] = [];
        const passedBy = new Map<string, Map<string, number>>();
        const wrong: string[] = [];
        const waits = (name: string): boolean =>
          model.some(({ path }) => namesOf(path).includes(name));
        for (const [name, each] of steps.entries()) {
          if (each.do === "push") {
            for (const item of namesOf(each.path)) if (!waits(item)) passedBy.set(item, new Map());
            const newcomer = waiter(each.path, name);
            line.push(newcomer);
            model.push(newcomer);
          } else if (each.do === "shift") {
            const gone = line.shift();
            if (gone === undefined) continue;
            if (gone !== model.find(({ path }) => path === gone.path)) wrong.push(gone.path);
            model = model.filter((candidate) => candidate !== gone);
            for (const [level, item] of namesOf(gone.path).entries()) {
              passedBy.set(item, new Map());
              const head = namesOf(gone.path)[level - 1];
              const beside = model.filter(({ path: other }) => namesOf(other)[level - 1] === head);
              for (const other of new Set(beside.map(({ path }) => namesOf(path)[level]!))) {
                if (other === item) continue;
                const passes = passedBy.get(other)!;
                const count = (passes.get(item) ?? 0) + 1;
                passes.set(item, count);
                if (count > 2) wrong.push(`${item} before ${other}`);
              }
            }
          } else if (model[each.which] !== undefined) {
            const leaver = model[each.which]!;
            line.remove(leaver);
            model = model.filter((candidate) => candidate !== leaver);
            for (const item of namesOf(leaver.path)) passedBy.set(item, new Map());
          }
          expect(wrong).toEqual([]);
          expect([...line.fromFirst()].length).toBe(model.length);
          expect([...line.fromLast()].length).toBe(model.length);
        }
      }),
      { numRuns: 300 },
    );
  });
});
