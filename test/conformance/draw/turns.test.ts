import { describe, expect, it } from "vitest";
import { leakyBucket, slidingLog } from "../../../src/core/policy/limit-makers.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { jainIndex, simulate } from "../../support/draws/simulate.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

describe.each(storeKinds())("turns in $name", ({ open }) => {
  const openReplicas = (pinned: ReturnType<typeof open>, count: number, rate: string) => {
    const policy = policyOf({ rate });
    return Array.from({ length: count }, (_, index) =>
      createTestReplica(pinned.store, { bucket: "b", name: `r${index}`, policy }),
    );
  };

  it.each([
    { count: 8, rate: "2/s", forMs: 60_000, calls: 120 },
    { count: 4, rate: "100/s", forMs: 20_000, calls: 2_000 },
    { count: 32, rate: "1000/s", forMs: 10_000, calls: 10_000 },
    { count: 4, rate: "5000/s", forMs: 3_000, calls: 15_000 },
  ])(
    "shares $rate evenly among $count replicas and wastes nothing",
    async ({ count, rate, forMs, calls }) => {
      const pinned = open();

      const grants = await simulate(pinned, openReplicas(pinned, count, rate), {
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
    const [dead, ...living] = openReplicas(pinned, 4, "2/s");
    await simulate(pinned, [dead!, ...living], { forMs: 10_000, backlog: 100 });

    const grants = await simulate(pinned, living, { forMs: 30_000, backlog: 100 });

    const total = grants.reduce((sum, slots) => sum + slots.length, 0);
    expect(total).toBeGreaterThanOrEqual(59);
  });

  it("divides a horizon by the replicas that drew, so that none takes it all", async () => {
    const pinned = open();
    const replicas = openReplicas(pinned, 4, "1000/s");
    for (const replica of replicas) await replica.draw(1);
    pinned.clock.advanceMs(500);

    const reply = await replicas[0]!.draw(1_000);

    expect(slotsOf(reply)).toHaveLength(25);
  });

  it("count all slot requests of a replica as one share", async () => {
    const pinned = open();
    const replicas = openReplicas(pinned, 4, "1000/s");
    for (const replica of replicas) await replica.draw(1);
    pinned.clock.advanceMs(500);

    const { granted } = await replicas[0]!.drawAll(
      ["a", "b", "c"].map((key) => ({ wanted: 25, key })),
    );

    const counts = granted.map(({ slotsUs, run }) => slotsUs.length + (run?.count ?? 0));
    expect(counts).toEqual([25, 0, 0]);
  });

  it.each([
    [49, 0],
    [51, 1],
  ])(
    "reserve an absent replica's share for half a horizon: after %d ms another gets %d",
    async (lateMs, count) => {
      const pinned = open();
      const [first, second, late, other] = openReplicas(pinned, 4, "10/s");
      for (const replica of [first!, second!]) await replica.draw(1);
      const { turnUs } = (await late!.draw(1)).position;

      pinned.clock.set(turnUs + lateMs * 1_000);

      expect(slotsOf(await other!.draw(1))).toHaveLength(count);
    },
  );

  it("keep the free room of a window for the replica that came first", async () => {
    const pinned = open();
    const policy = policyOf({ limits: [slidingLog(20, "1s")] });
    const [first, second] = ["a", "b"].map((name) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy }),
    );
    await first!.draw(19);
    pinned.clock.advanceMs(30);

    const later = await second!.drawAll([{ wanted: 11 }, { wanted: 5, cost: 3 }]);
    const rest = await first!.draw(3);

    expect([slotsOf(later), slotsOf(rest)].map((slots) => slots.length)).toEqual([1, 3]);
  });

  it("come later by the number of more urgent calls, and by no more", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "10/s", shares: { low: 0.7 } });
    const [waiter, urgent] = ["a", "b"].map((name) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy }),
    );
    const low = [{ wanted: 1, priority: "low" }] as const;
    await waiter!.drawAll(low);
    const { turnUs } = (await waiter!.drawAll(low)).position;
    pinned.clock.set(turnUs - 10_000);
    const passing = await urgent!.drawAll([{ wanted: 1, priority: "critical" }]);

    const { position } = await waiter!.drawAll(low);

    expect(slotsOf(passing)).toHaveLength(1);
    expect(position.turnUs).toBe(turnUs + 100_000);
  });

  it("lets a replica with one call in before the backlog of another has drained", async () => {
    const pinned = open();
    const [busy, rare] = openReplicas(pinned, 2, "1000/s");
    await simulate(pinned, [busy!], { forMs: 1_000, backlog: 100_000 });
    const first = await rare!.draw(1);

    const waitUs = slotsOf(first).length === 1 ? 0 : first.position.turnUs - first.nowUs;

    expect(waitUs).toBeLessThanOrEqual(100_000);
  });

  it.each([
    ["one limit", policyOf({ rate: "100/s" }), []],
    ["calls of two costs", policyOf({ rate: "100/s", burst: 2 }), [{ wanted: 20, cost: 2 }]],
    ["several", policyOf({ limits: [leakyBucket("100/s"), leakyBucket("200/s")] }), []],
  ])(
    "wait for a whole share instead of taking a small part before another replica (%s)",
    async (_what, policy, more) => {
      const pinned = open();
      const [first, second] = ["a", "b"].map((name) =>
        createTestReplica(pinned.store, { bucket: "b", name, policy }),
      );
      const draw = async (replica: TestReplica): Promise<number> =>
        slotsOf(await replica.drawAll([{ wanted: 20 }, ...more])).length;
      await draw(first!);
      pinned.clock.advanceMs(1);
      await draw(second!);
      // The first is late; beside what it needs, three slots of this horizon are left.
      pinned.clock.advanceMs(79);

      const early = await draw(second!);
      const late = await draw(first!);

      expect(early).toBe(0);
      expect(late).toBeGreaterThan(3);
    },
  );

  it.each<[string, (waiter: TestReplica) => Promise<unknown>]>([
    ["another policy", async () => undefined],
    ["a pause", async (waiter) => waiter.steer({ do: "pause", durationUs: 0 })],
  ])("are dropped by %s, and delay no replica afterwards", async (what, change) => {
    const slow = policyOf({ rate: "1/h" });
    const after = what === "a pause" ? slow : policyOf({ rate: "100/s" });
    const turnAfterUs = async (isWaiting: boolean): Promise<number> => {
      const pinned = open();
      const [holder, waiter] = ["a", "b"].map((name) =>
        createTestReplica(pinned.store, { bucket: "b", name, policy: slow }),
      );
      await holder!.draw(1);
      if (isWaiting) await waiter!.draw(1);
      pinned.clock.advanceMs(5_000);
      await change(waiter!);
      const [third, fourth] = ["c", "d"].map((name) =>
        createTestReplica(pinned.store, { bucket: "b", name, policy: after }),
      );
      await third!.draw(50);
      const reply = await fourth!.draw(50);
      return reply.position.turnUs - reply.nowUs;
    };

    const turnUs = await turnAfterUs(true);

    expect(turnUs).toBe(await turnAfterUs(false));
  });
});
