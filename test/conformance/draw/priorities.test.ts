import { describe, expect, it } from "vitest";
import { HORIZON_US } from "../../../src/core/policy/limit-makers.ts";
import type { Priority } from "../../../src/core/input/options.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { simulateParties, type Party } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const SHARES: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};
const MORE_URGENT: readonly Priority[] = ["normal", "high", "critical"];

/** Who passes whom, at every rate. */
const PASSINGS = (
  [
    ["normal", ["low"]],
    ["high", ["low"]],
    ["high", ["normal"]],
    ["high", ["normal", "low"]],
    ["critical", ["low"]],
    ["critical", ["normal"]],
    ["critical", ["high"]],
    ["critical", ["high", "normal"]],
  ] satisfies [Priority, Priority[]][]
).flatMap(([urgent, waiting]) =>
  ["2/s", "20/s", "1000/s"].map((rate) => ({ urgent, waiting, rate, those: waiting.join(", ") })),
);

describe.each(storeKinds())("priorities over replicas in $name", ({ open }) => {
  const policyAt = (rate: string) => policyOf({ rate, shares: SHARES });
  const partiesOf = (
    { store }: PinnedStore,
    names: string,
    { rate, priority, wanted = 100 }: { rate: string; priority: Priority; wanted?: number },
  ): Party[] =>
    names.split("").map((name) => ({
      replica: createTestReplica(store, { bucket: "b", name, policy: policyAt(rate) }),
      slotRequests: [{ wanted, priority }],
    }));

  it.each(["low", "normal", "high", "critical"] as const)(
    "let a backlog of %s fill its part of the horizon, and no more",
    async (priority) => {
      const pinned = open();
      const [party] = partiesOf(pinned, "a", { rate: "1000/s", priority });

      const slots = [];
      for (let round = 0; round < 30; round++)
        slots.push(...slotsOf(await party!.replica.drawAll(party!.slotRequests)));

      const farthestUs = Math.max(...slots) - pinned.clock.nowUs();
      expect(farthestUs).toBe(SHARES[priority] * HORIZON_US);
    },
  );

  it.each(MORE_URGENT)(
    "give a call of %s a slot at once, in the part of the horizon that low may not use",
    async (priority) => {
      const pinned = open();
      const low = partiesOf(pinned, "abc", { rate: "1000/s", priority: "low" });
      await simulateParties(pinned, low, 2_000);
      const [urgent] = partiesOf(pinned, "d", { rate: "1000/s", priority, wanted: 1 });

      const slots = slotsOf(await urgent!.replica.drawAll(urgent!.slotRequests));

      expect(slots).toHaveLength(1);
      expect(slots[0]! - pinned.clock.nowUs()).toBeLessThanOrEqual(SHARES.low * HORIZON_US + 1_000);
    },
  );

  /** Eight replicas with a backlog, and one that has an urgent call once they have drawn for a while. */
  async function openPassing({ urgent, waiting, rate }: (typeof PASSINGS)[number]) {
    const pinned = open();
    const backlog = "abcdefgh"
      .split("")
      .flatMap((name, index) =>
        partiesOf(pinned, name, { rate, priority: waiting[index % waiting.length]! }),
      );
    await simulateParties(pinned, backlog, 2_000);
    const [late] = partiesOf(pinned, "z", { rate, priority: urgent, wanted: 1 });
    return { pinned, backlog, late: late!, stepUs: 1_000_000 / Number.parseInt(rate) };
  }

  it.each(PASSINGS)(
    "let a call of $urgent pass all that wait elsewhere, but not what is booked: $those at $rate",
    async (passing) => {
      const { pinned, backlog, late, stepUs } = await openPassing(passing);
      const bookedUs = Math.max(...passing.waiting.map((each) => SHARES[each])) * HORIZON_US;
      const startUs = pinned.clock.nowUs();

      const grants = await simulateParties(pinned, [...backlog, late], 2_000);

      const own = grants.find(({ by }) => by === backlog.length);
      expect(own!.slotUs - startUs).toBeLessThanOrEqual(bookedUs + stepUs);
    },
  );

  it.each(PASSINGS)(
    "let a call of $urgent take the very next slot: past $those at $rate",
    async (passing) => {
      const { late, stepUs } = await openPassing(passing);

      const { nowUs, position } = await late.replica.drawAll(late.slotRequests);

      expect(position.turnUs - nowUs).toBeLessThanOrEqual(stepUs);
    },
  );

  it("give low calls the slots that critical calls do not use, and none under a flood", async () => {
    const pinned = open();
    const rate = "200/s";
    const low = partiesOf(pinned, "abc", { rate, priority: "low" });
    const urgent = partiesOf(pinned, "de", { rate, priority: "critical" });

    const calm = await simulateParties(pinned, low, 5_000);
    const flooded = await simulateParties(pinned, [...low, ...urgent], 10_000);

    expect(calm.length).toBeGreaterThan(0.98 * 1_000);
    const counts = [0, 0];
    for (const { by } of flooded) counts[by < 3 ? 0 : 1]! += 1;
    expect(counts[1]).toBeGreaterThan(0.9 * 2_000);
    expect(counts[0]).toBeLessThan(0.1 * 2_000);
  });

  it("apply within one request too: urgent calls come first", async () => {
    const pinned = open();
    const replica = createTestReplica(pinned.store, {
      bucket: "b",
      name: "a",
      policy: policyAt("100/s"),
    });

    const reply = await replica.drawAll([
      { wanted: 3, priority: "critical" },
      { wanted: 9, priority: "low" },
    ]);

    const [urgent, low] = [slotsOf(reply, 0), slotsOf(reply, 1)];
    expect(urgent).toHaveLength(3);
    expect(Math.min(...low)).toBeGreaterThan(Math.max(...urgent));
    expect(Math.max(...low) - pinned.clock.nowUs()).toBeLessThanOrEqual(SHARES.low * HORIZON_US);
  });
});
