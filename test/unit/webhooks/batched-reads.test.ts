import { describe, expect, it } from "vitest";
import { gathered } from "../../../src/stores/redis/webhooks/store.ts";

function asked(): {
  readonly ask: (input: number) => Promise<number>;
  readonly batches: number[][];
} {
  const batches: number[][] = [];
  const ask = gathered(async (inputs: readonly number[]) => {
    batches.push([...inputs]);
    if (inputs.includes(-1)) throw new Error("refused");
    return inputs.map((input) => input * 2);
  });
  return { ask, batches };
}

describe("what is asked within one turn of the event loop", () => {
  it("is asked together, and each has its own answer", async () => {
    const { ask, batches } = asked();

    expect(await Promise.all([ask(1), ask(2), ask(3)])).toEqual([2, 4, 6]);
    expect(await ask(4)).toBe(8);

    expect(batches).toEqual([[1, 2, 3], [4]]);
  });

  it("is asked in several parts if it is more than 50", async () => {
    const { ask, batches } = asked();

    await Promise.all(Array.from({ length: 120 }, (_each, at) => ask(at)));

    expect(batches.map(({ length }) => length)).toEqual([50, 50, 20]);
  });

  it("is refused together, and what comes later is asked anew", async () => {
    const { ask } = asked();

    const answers = await Promise.allSettled([ask(1), ask(-1)]);

    expect(answers.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(await ask(5)).toBe(10);
  });
});
