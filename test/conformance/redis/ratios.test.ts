import { describe, expect, it } from "vitest";
import fc from "fast-check";
import { LEAST_RATIO, MOST_NAMES, MOST_RATIO } from "../../../src/core/policy/ratios.ts";
import type { RatioSample, Store } from "../../../src/core/store.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const kinds = storeKinds();
const BUCKET = "b";

async function learnAll(store: Store, seen: readonly RatioSample[]): Promise<[string, number][]> {
  return [...(await store.learn({ bucket: BUCKET, seen }))].toSorted(([one], [other]) =>
    one < other ? -1 : 1,
  );
}

describe.each(kinds)("the learned ratios in $name", ({ open }) => {
  it("start empty, and are then the mean of the first hundred samples", async () => {
    const { store } = open();

    expect(await learnAll(store, [])).toEqual([]);
    const seen = Array.from({ length: 100 }, (_, index) => ({
      name: "gpt",
      ratio: index % 2 === 0 ? 1_000_000 : 2_000_000,
    }));
    const [[, mean] = []] = await learnAll(store, seen);

    expect(Math.abs(mean! - 1_500_000)).toBeLessThan(100);
    expect(await learnAll(store, [])).toEqual([["gpt", mean]]);
  });

  it("follow changes: each later sample counts for a hundredth", async () => {
    const { store } = open();
    const same = (count: number, ratio: number): RatioSample[] =>
      Array.from({ length: count }, () => ({ name: "gpt", ratio }));
    await learnAll(store, same(100, 1_000_000));

    expect(await learnAll(store, same(1, 2_000_000))).toEqual([["gpt", 1_010_000]]);
    const [[, mean] = []] = await learnAll(store, same(500, 2_000_000));

    expect(mean).toBeGreaterThan(1_990_000);
  });

  it("keep a bounded number of names, and drop the least recently used one", async () => {
    const { store } = open();
    const named = (name: string): RatioSample => ({ name, ratio: 1_000_000 });
    const names = Array.from({ length: MOST_NAMES }, (_, index) => `model-${index}`);
    await learnAll(store, names.map(named));
    await learnAll(store, [named("model-0")]);

    const known = new Map(await learnAll(store, [named("new")]));

    expect(known.size).toBe(MOST_NAMES);
    expect([known.has("model-0"), known.has("model-1"), known.has("new")]).toEqual([
      true,
      false,
      true,
    ]);
  });
});

it("both stores learn the same ratios from any samples", async () => {
  const ratio = fc.integer({ min: LEAST_RATIO, max: MOST_RATIO });
  const name = fc.integer({ min: 0, max: 90 }).map((number) => `m ${number}: ü`);
  const histories = fc.array(fc.array(fc.record({ name, ratio }), { maxLength: 40 }), {
    maxLength: 20,
  });

  await fc.assert(
    fc.asyncProperty(histories, async (history) => {
      const stores = kinds.map(({ open }) => open().store);
      for (const seen of history) {
        const [one, other] = await Promise.all(stores.map((store) => learnAll(store, seen)));
        expect(one).toEqual(other);
      }
    }),
    { numRuns: 50 },
  );
});

it("Redis rejects a ratio that is out of bounds, and learns nothing from it", async () => {
  const { store } = kinds[1]!.open();

  for (const ratio of [0, -1, 0.5, Number.NaN, Infinity, MOST_RATIO + 1]) {
    const seen = [
      { name: "fine", ratio: 1_000_000 },
      { name: "gpt", ratio },
    ];
    await expect(store.learn({ bucket: BUCKET, seen })).rejects.toThrow("SLUICE_BAD_ARGUMENT");
  }

  expect(await learnAll(store, [])).toEqual([]);
});
