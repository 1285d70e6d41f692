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
