import { describe, expect, it } from "vitest";
import { HORIZON_US } from "../../../src/core/policy/limit-makers.ts";
import { worstWindow } from "../../../src/entries/testing/worst-window.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const hundred = policyOf({ rate: "100/s" });

describe.each(storeKinds())("a draw from $name", ({ open }) => {
  const replicaOf = ({ store }: PinnedStore, policy = hundred, name = "a") =>
    createTestReplica(store, { bucket: "b", name, policy });

  it("spaces slots evenly, and grants the first one immediately", async () => {
    const pinned = open();
    const startUs = pinned.clock.nowUs();

    const slots = slotsOf(await replicaOf(pinned).draw(4));

    expect(slots).toEqual([0, 10_000, 20_000, 30_000].map((us) => startUs + us));
  });

  it("lets a burst of 7 calls start immediately, then one call per interval", async () => {
    const pinned = open();
    const startUs = pinned.clock.nowUs();
    const policy = policyOf({ rate: "100/s", burst: 7 });

    const slots = slotsOf(await replicaOf(pinned, policy).draw(9));

    const expected = [0, 0, 0, 0, 0, 0, 0, 10_000, 20_000];
    expect(slots).toEqual(expected.map((us) => startUs + us));
  });

  it("books no slot beyond the horizon", async () => {
    const pinned = open();
    const replica = replicaOf(pinned);

    const slots = [];
    for (let round = 0; round < 20; round++) slots.push(...slotsOf(await replica.draw(100)));

    expect(slots).toHaveLength(11);
    expect(Math.max(...slots)).toBe(pinned.clock.nowUs() + HORIZON_US);
  });

  it("returns the time of its turn to a refused replica, and grants the slot then", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "1/s" });
    const startUs = pinned.clock.nowUs();
    await replicaOf(pinned, policy, "other").draw(1);
    const replica = replicaOf(pinned, policy);

    const refused = await replica.draw(1);
    pinned.clock.set(refused.position.turnUs);
    const granted = await replica.draw(1);

    expect(slotsOf(refused)).toEqual([]);
    expect(refused.position.turnUs).toBe(startUs + 1_000_000 - HORIZON_US);
    expect(slotsOf(granted)).toEqual([startUs + 1_000_000]);
  });

  it("never lets the slots of all replicas pass the rate in any window", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "3000/s", burst: 5 });
    const replicas = ["a", "b", "c"].map((name) => replicaOf(pinned, policy, name));

    const slots: number[] = [];
    for (let round = 0; round < 400; round++) {
      slots.push(...slotsOf(await replicas[round % 3]!.draw(1 + (round % 50))));
      pinned.clock.advanceMs((round % 7) * 2);
    }

    const slotsMs = slots.map((us) => us / 1_000);
    for (const windowMs of [1, 10, 100, 1_000]) {
      expect(worstWindow(slotsMs, windowMs)).toBeLessThanOrEqual(5 - 1 + Math.ceil(3 * windowMs));
    }
  });

  it("counts a call of cost 3 as three", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s", burst: 3 });
    const startUs = pinned.clock.nowUs();

    const slots = slotsOf(await replicaOf(pinned, policy).draw(3, 3));

    expect(slots).toEqual([0, 30_000, 60_000].map((us) => startUs + us));
  });

  it("rejects a cost above the burst, and changes nothing", async () => {
    const pinned = open();
    const replica = replicaOf(pinned);

    await expect(replica.draw(1, 2)).rejects.toThrow(
      /allows at most 1 at once|COST_TOO_LARGE 2 1$/,
    );

    expect(slotsOf(await replica.draw(1))).toEqual([pinned.clock.nowUs()]);
  });

  it("keeps the rate when the server's clock steps back by ten seconds", async () => {
    const pinned = open();
    const replica = replicaOf(pinned);
    const before = slotsOf(await replica.draw(8));

    pinned.clock.advanceMs(-10_000);
    const reply = await replica.draw(3);

    expect(slotsOf(reply)).toEqual([80_000, 90_000, 100_000].map((us) => before[0]! + us));
    expect(reply.nowUs).toBe(before[0]);
  });

  it("lets at most the burst start at once after the clock jumped an hour ahead", async () => {
    const pinned = open();
    const replica = replicaOf(pinned);
    await replica.draw(8);

    pinned.clock.advanceMs(3_600_000);
    const slots = slotsOf(await replica.draw(8));

    expect(worstWindow(slots, 10_000)).toBe(1);
  });
});
