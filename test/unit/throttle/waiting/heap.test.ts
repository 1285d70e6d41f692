import fc from "fast-check";
import { expect, it } from "vitest";
import { createHeap } from "../../../../src/throttle/waiting/group-schedule.ts";

interface Item {
  order: number;
}

const inOrder = (items: Iterable<Item>): number[] =>
  [...items].map(({ order }) => order).toSorted((a, b) => a - b);

it("returns the first of its items, whatever is put in, moved and taken out", () => {
  const change = fc.record({
    at: fc.nat(30),
    order: fc.nat(100),
    does: fc.constantFrom("put", "put", "delete"),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), (changes) => {
      const items = Array.from({ length: 31 }, (): Item => ({ order: 0 }));
      const heap = createHeap<Item>((a, b) => a.order < b.order);
      const inside = new Set<Item>();

      for (const { at, order, does } of changes) {
        const item = items[at]!;
        if (does === "put") {
          item.order = order;
          heap.put(item);
          inside.add(item);
        } else {
          heap.delete(item);
          inside.delete(item);
        }

        expect(new Set(heap)).toEqual(inside);
        expect(heap.first?.order).toBe(inOrder(inside)[0]);
        expect(heap.firstOf(5).map((each) => each.order)).toEqual(inOrder(inside).slice(0, 5));
      }
    }),
  );
});
