import { describe, expect, it } from "vitest";
import { createAsker, policyOf, slotsOf } from "../support/asker.ts";
import { jainIndex, simulate } from "../support/simulate.ts";
import { storeKinds } from "../support/store-kinds.ts";

describe.each(storeKinds())("turns in $name", ({ open }) => {
  const replicas = (pinned: ReturnType<typeof open>, count: number, rate: string) => {
    const policy = policyOf({ rate });
    return Array.from({ length: count }, (_, index) =>
      createAsker(pinned.store, { bucket: "b", name: `r${index}`, policy }),
    );
  };

  it.each([
    { count: 8, rate: "2/s", forMs: 60_000, calls: 120 },
    { count: 4, rate: "100/s", forMs: 20_000, calls: 2_000 },
    { count: 32, rate: "1000/s", forMs: 5_000, calls: 5_000 },
    { count: 4, rate: "5000/s", forMs: 3_000, calls: 15_000 },
  ])(
    "shares $rate evenly among $count replicas and wastes nothing",
    async ({ count, rate, forMs, calls }) => {
      const pinned = open();

      const grants = await simulate(pinned, replicas(pinned, count, rate), {
        forMs,
        backlog: 2_000,
      });

      const counts = grants.map((slots) => slots.length);
      const total = counts.reduce((sum, each) => sum + each, 0);
      expect(total).toBeGreaterThanOrEqual(calls * 0.998);
      expect(jainIndex(counts)).toBeGreaterThanOrEqual(0.98);
    },
  );

  it("gives the slots of a replica that has died to the others", async () => {
    const pinned = open();
    const [dead, ...living] = replicas(pinned, 4, "2/s");
    await simulate(pinned, [dead!, ...living], { forMs: 10_000, backlog: 100 });

    const grants = await simulate(pinned, living, { forMs: 30_000, backlog: 100 });

    const total = grants.reduce((sum, slots) => sum + slots.length, 0);
    expect(total).toBeGreaterThanOrEqual(59);
  });

  it("divides a horizon by the replicas that drew, so that none takes it all", async () => {
    const pinned = open();
    const askers = replicas(pinned, 4, "1000/s");
    for (const asker of askers) await asker.draw(1);
    pinned.clock.advanceMs(500);

    const reply = await askers[0]!.draw(1_000);

    expect(slotsOf(reply)).toHaveLength(25);
  });

  it("lets a replica with one call in before the backlog of another has drained", async () => {
    const pinned = open();
    const [busy, rare] = replicas(pinned, 2, "1000/s");
    await simulate(pinned, [busy!], { forMs: 1_000, backlog: 100_000 });
    const first = await rare!.draw(1);

    const waitUs = slotsOf(first).length === 1 ? 0 : first.place.turnUs - first.nowUs;

    expect(waitUs).toBeLessThanOrEqual(100_000);
  });
});
