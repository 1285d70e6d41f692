import { describe, expect, it } from "vitest";
import { HORIZON_US, tokenBucket } from "../../src/core/limit-makers.ts";
import { createAsker, policyOf, slotsOf } from "../support/asker.ts";
import { storeKinds } from "../support/store-kinds.ts";

const SECOND_US = 1_000_000;

describe.each(storeKinds())("the ramp after a cooldown in $name", ({ open }) => {
  it("holds calls of a slow limit back no longer than its ramp lasts", async () => {
    const pinned = open();
    const limits = [tokenBucket({ capacity: 100, refill: "1/min" })];
    const a = createAsker(pinned.store, { bucket: "b", name: "a", policy: policyOf({ limits }) });
    const [slotUs] = slotsOf(await a.draw(1));
    await a.steer({ do: "cool", forUs: SECOND_US, rampUs: SECOND_US, slotUs: slotUs! });
    pinned.clock.advanceMs(1_500);

    const tried = { wanted: 1, isTry: true };
    const { notBeforeUs } = (await a.drawAll([tried])).granted[0]!;
    pinned.clock.advanceMs(500);

    expect(notBeforeUs + HORIZON_US).toBe(pinned.clock.nowUs());
    expect(slotsOf(await a.drawAll([tried]))).toEqual([pinned.clock.nowUs()]);
  });
});
