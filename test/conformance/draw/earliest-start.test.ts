import { describe, expect, it } from "vitest";
import { concurrency, leakyBucket } from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import type { Granted } from "../../../src/core/store.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const SECOND_US = 1_000_000;

/** Asks every so often until there is a slot. Returns it, and all that was told until then. */
async function untilSlot(
  { clock }: PinnedStore,
  draw: () => ReturnType<TestReplica["draw"]>,
): Promise<{ readonly slotUs: number; readonly told: readonly Granted[] }> {
  const told: Granted[] = [];
  for (;;) {
    const reply = await draw();
    const [slotUs] = slotsOf(reply);
    if (slotUs !== undefined) return { slotUs, told };
    told.push(reply.granted[0]!);
    clock.advanceMs(50);
  }
}

describe.each(storeKinds())("the time before which no call can start, in $name", ({ open }) => {
  it.each<[string, PolicyOptions, string | undefined]>([
    ["a bucket", { rate: "1/s" }, undefined],
    ["a bucket with a burst", { rate: "1/s", burst: 3 }, undefined],
    ["a key beside shared limits", { rate: "100/s", perKey: { rate: "1/s" } }, "k"],
    ["a key", { perKey: { rate: "1/s" } }, "k"],
  ])("is never later than the call's slot while a cut rate grows back, of %s", async (...given) => {
    const [, options, key] = given;
    const pinned = open();
    const a = createTestReplica(pinned.store, {
      bucket: "b",
      name: "a",
      policy: policyOf(options),
    });
    const draw = () => a.drawAll([key === undefined ? { wanted: 1 } : { wanted: 1, key }]);
    const { slotUs: lastUs } = await untilSlot(pinned, draw);
    const cut = { factor: 300, floor: 50, recoverUs: 10 * SECOND_US, durationUs: 0 };
    await a.steer({ do: "cut", ...cut, slotUs: lastUs }, key);

    const { slotUs, told } = await untilSlot(pinned, draw);

    expect(slotUs - lastUs).toBeGreaterThan(1.5 * SECOND_US);
    expect(Math.max(...told.map(({ soonestUs }) => soonestUs))).toBeLessThanOrEqual(slotUs);
    // Most of that wait is known from the beginning.
    expect(told[0]!.soonestUs - lastUs).toBeGreaterThan(SECOND_US);
  });

  it("ignores the distance that a response asked for, since the next response may end it", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s" });
    const a = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    await a.steer({ do: "space", gapUs: SECOND_US, durationUs: 60 * SECOND_US });
    await a.draw(1);

    const { soonestUs } = (await a.draw(1)).granted[0]!;
    await a.steer({ do: "space", gapUs: 0, durationUs: 0 });
    const { slotUs } = await untilSlot(pinned, () => a.draw(1));

    expect(soonestUs).toBeLessThanOrEqual(slotUs);
  });

  it.each<[string, PolicyOptions, string | undefined, number]>([
    ["a bucket", { limits: [concurrency(1), leakyBucket("1/h")] }, undefined, 2],
    ["a key", { rate: "100/s", perKey: { limits: [concurrency(1), leakyBucket("1/h")] } }, "k", 3],
    ["a bucket, with a lease of a key", { rate: "1/h", perKey: { concurrency: 1 } }, "k", 1],
  ])("names the rate, though all leases are out too: of %s", async (...given) => {
    const [, options, key, number] = given;
    const pinned = open();
    const a = createTestReplica(pinned.store, {
      bucket: "b",
      name: "a",
      policy: policyOf(options),
    });
    const wanted = { wanted: 1, ...(key === undefined ? {} : { key }) };
    const [slotUs] = slotsOf(await a.drawAll([wanted]));

    const { soonestUs, bindsAt } = (await a.drawAll([wanted])).granted[0]!;

    expect({ bindsAt, inUs: soonestUs - slotUs! }).toEqual({
      bindsAt: number,
      inUs: 3_600 * SECOND_US,
    });
  });
});
