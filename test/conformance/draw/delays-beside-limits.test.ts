import { describe, expect, it } from "vitest";
import { boundBy, COOLING, PAUSED, SLOWED } from "../../../src/core/store.ts";
import { tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const SECOND_US = 1_000_000;

describe.each(storeKinds())("a delay beside the limits, in $name", ({ open }) => {
  it("holds calls of a slow limit back no longer than the ramp lasts", async () => {
    const pinned = open();
    const limits = [tokenBucket({ capacity: 100, refill: "1/min" })];
    const a = createTestReplica(pinned.store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits }),
    });
    const [slotUs] = slotsOf(await a.draw(1));
    await a.steer({ do: "cool", durationUs: SECOND_US, rampUs: SECOND_US, slotUs: slotUs! });
    pinned.clock.advanceMs(1_500);

    const tried = { wanted: 1, isTry: true };
    const { notBeforeUs } = (await a.drawAll([tried])).granted[0]!;
    pinned.clock.advanceMs(500);

    expect(notBeforeUs).toBe(pinned.clock.nowUs());
    expect(slotsOf(await a.drawAll([tried]))).toEqual([pinned.clock.nowUs()]);
  });

  it.each([
    ["the bucket", undefined, 0],
    ["a key", "k", 1],
  ])("is reported by its kind to a try and to a draw: %s", async (_whose, key, number) => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s", burst: 20, perKey: { rate: "50/s", burst: 20 } });
    const a = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const [slotUs] = slotsOf(await a.drawAll([{ wanted: 1, key: "k" }]));
    const tried = { wanted: 1, key: "k", isTry: true };
    const bindings = async (): Promise<number[]> => {
      const answers = [await a.drawAll([tried]), await a.drawAll([{ wanted: 1, key: "k" }])];
      return answers.map(({ granted }) => granted[0]!.bindsAt);
    };

    await a.steer(
      { do: "cool", durationUs: SECOND_US, rampUs: 8 * SECOND_US, slotUs: slotUs! },
      key,
    );
    const cooling = await bindings();
    await a.steer({ do: "pause", durationUs: 60 * SECOND_US }, key);
    const paused = await bindings();
    await a.steer({ do: "pause", durationUs: 0 }, key);
    pinned.clock.advanceMs(1_200);
    await a.drawAll([tried]);
    const slowed = await a.drawAll([tried]);

    expect(cooling).toEqual(Array(2).fill(boundBy(COOLING, number)));
    expect(paused).toEqual(Array(2).fill(boundBy(PAUSED, number)));
    expect(slotsOf(slowed)).toEqual([]);
    expect(slowed.granted[0]!.bindsAt).toBe(boundBy(SLOWED, number));
  });

  it("ends at the time that the bucket reports", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s" });
    const a = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const [slotUs] = slotsOf(await a.draw(1));
    const before = await a.peek();
    await a.steer({ do: "cool", durationUs: SECOND_US, rampUs: 4 * SECOND_US, slotUs: slotUs! });

    const { coolUntilUs, wholeAtUs } = await a.peek();
    pinned.clock.advanceMs((wholeAtUs - pinned.clock.nowUs()) / 1_000 - 1);
    const shortBefore = await a.peek();
    pinned.clock.advanceMs(1);

    expect([before.factor, before.wholeAtUs]).toEqual([1_000, 0]);
    expect(wholeAtUs - coolUntilUs).toBe(3 * SECOND_US);
    expect(shortBefore.factor).toBeLessThan(1_000);
    expect((await a.peek()).factor).toBe(1_000);
  });

  it("includes the requested distance between calls, until that ends", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s" });
    const a = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    await a.draw(1);
    await a.steer({ do: "space", gapUs: 50_000, durationUs: 2 * SECOND_US });

    expect(await a.peek()).toMatchObject({
      gapUs: 50_000,
      gapUntilUs: pinned.clock.nowUs() + 2 * SECOND_US,
    });
  });
});
