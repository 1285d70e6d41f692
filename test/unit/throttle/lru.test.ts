import { expect, it } from "vitest";
import { createLru } from "../../../src/throttle/lru.ts";

it("remembers up to its size, and forgets the least recently used first", () => {
  const last = createLru<number>(3);
  for (const name of ["a", "b", "c"]) last.set(name, 1);

  last.get("a");
  last.set("d", 1);

  expect([...last.keys()].toSorted()).toEqual(["a", "c", "d"]);
});

it("takes no room for what it does not remember yet", () => {
  const before = process.memoryUsage().heapUsed;
  const memories = Array.from({ length: 500 }, () => createLru<number>(10_000));
  const bytesEach = (process.memoryUsage().heapUsed - before) / memories.length;

  // The room for all 10,000 is 160,000 bytes.
  expect(bytesEach).toBeLessThan(20_000);
});
