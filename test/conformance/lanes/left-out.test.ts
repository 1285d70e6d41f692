import { describe, expect, it } from "vitest";
import { lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();

const keysOf = (ids: readonly string[]): string => ids.map((id) => id.split("-")[0]!).join("");

describe("a lane that a worker leaves out", () => {
  it("gives the worker no jobs", async () => {
    await byHand.enqueue("a", 5);
    await byHand.enqueue("b", 3);

    const ids = await byHand.takeIds(5, { full: ["a"] });
    const none = await byHand.take({ most: 5, full: ["a"] });

    expect(keysOf(ids)).toBe("bbb");
    expect(none.jobs).toEqual([]);
    // The worker looks again soon.
    expect(none.nextMs).toBe(25);
  });

  it("takes turns again afterwards, without credit for the turns that it missed", async () => {
    await byHand.enqueue("a", 20);
    await byHand.enqueue("b", 40);
    await byHand.takeIds(20, { full: ["a"] });

    const keys = keysOf(await byHand.takeIds(10));

    expect(keys.replaceAll("b", "")).toBe("aaaaaa");
  });

  it("includes all lanes below the name", async () => {
    await byHand.enqueue("a\u001Fx", 2);
    await byHand.enqueue("b", 1);

    expect(keysOf(await byHand.takeIds(3, { full: ["a"] }))).toBe("b");
    expect(await byHand.takeIds(3)).toHaveLength(2);
  });
});

describe("a lane whose key has a floor", () => {
  it("gives jobs before all turns, as many as the worker asks for", async () => {
    await byHand.enqueue("a", 5);
    await byHand.enqueue("b", 5);
    await byHand.enqueue("c", 5);

    const ids = await byHand.takeIds(5, { floors: [["c", 3]] });

    expect(keysOf(ids).slice(0, 3)).toBe("ccc");
    expect(keysOf(ids).slice(3)).toBe("ab");
  });

  it("uses one turn of its lane for them, and holds up no other lane", async () => {
    await byHand.enqueue("a", 20);
    await byHand.enqueue("b", 20);
    for (let round = 0; round < 5; round += 1) {
      await byHand.takeIds(2, { floors: [["a", 2]] });
    }

    expect(keysOf(await byHand.takeIds(6))).toMatch(/^b(ab){2}[ab]$/);
  });

  it("gives jobs of all lanes below the name, and none if there are none", async () => {
    await byHand.enqueue("a\u001Fx", 2);
    await byHand.enqueue("a\u001Fy", 2);
    await byHand.enqueue("b", 2);

    const ids = await byHand.takeIds(6, {
      floors: [
        ["none", 2],
        ["a", 3],
      ],
    });

    expect(
      ids
        .map((id) => id[0])
        .join("")
        .slice(0, 3),
    ).toBe("aaa");
    expect(ids).toHaveLength(6);
  });
});
