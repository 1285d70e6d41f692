import { describe, expect, it } from "vitest";
import { RANKS } from "../../../src/core/input/options.ts";
import {
  concurrency,
  leakyBucket,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { EXCESS } from "../../support/draws/bounds.ts";
import { simulateParties, type Grant, type Party } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const countOf = (grants: readonly Grant[], by: number, slotRequest: number): number =>
  grants.filter((each) => each.by === by && each.slotRequest === slotRequest).length;

describe.each(storeKinds())("limits per key in $name", ({ open }) => {
  const replicaOf = ({ store }: PinnedStore, policy: ReturnType<typeof policyOf>, name = "a") =>
    createTestReplica(store, { bucket: "b", name, policy });

  it.each(["slow first", "slow last"])(
    "let the calls of other keys pass those of a slow one (%s)",
    async (order) => {
      const pinned = open();
      const policy = policyOf({
        rate: "200/s",
        perKey: (key: string) => ({ rate: key === "slow" ? "1/s" : "100/s" }),
      });
      const keys = order === "slow first" ? ["slow", "x", "y"] : ["x", "y", "slow"];
      const slotRequests = keys.map((key) => ({ key, wanted: 20 }));

      const grants = await simulateParties(
        pinned,
        [{ replica: replicaOf(pinned, policy), slotRequests }],
        10_000,
      );

      const byKey = (key: string): number => countOf(grants, 0, keys.indexOf(key));
      expect(byKey("slow")).toBeGreaterThanOrEqual(9);
      expect(byKey("slow")).toBeLessThanOrEqual(11);
      for (const key of ["x", "y"]) expect(byKey(key)).toBeGreaterThan(0.95 * 990);
    },
  );

  it.each([
    { what: "none", shared: {}, least: 3 * 103 },
    { what: "a wide one", shared: { rate: "5000/s" }, least: 3 * 101 },
    { what: "a narrow one", shared: { rate: "30/s" }, least: 149 },
    {
      what: "several",
      shared: { limits: [leakyBucket("500/s"), concurrency(1_000)] },
      least: 3 * 101,
    },
  ])("are exceeded in no window, whatever limits keys share: $what", async ({ shared, least }) => {
    const pinned = open();
    const policy = policyOf({ ...shared, perKey: { rate: "20/s", burst: 4 } });
    const keys = ["x", "y", "z"];
    const slotRequests = keys.map((key) => ({ key, wanted: 10 }));
    const parties = ["a", "b", "c"].map((name) => ({
      replica: replicaOf(pinned, policy, name),
      slotRequests,
    }));

    const grants = await simulateParties(pinned, parties, 5_000);

    const limit = policy.perKey!.scopesOf("x")[0]!.limits[0]!;
    expect(grants.length).toBeGreaterThanOrEqual(least);
    for (const index of keys.keys()) {
      const own = grants.filter(({ slotRequest }) => slotRequest === index);
      const passed = own.map(({ slotUs }) => ({ slotUs, cost: 1 }));
      expect(EXCESS["leaky-bucket"]!(limit, passed)).toBeLessThanOrEqual(0);
    }
  });

  it.each([
    { what: "alone", shared: {} },
    { what: "beside a shared limit", shared: { rate: "1000/s" } },
  ])("share a key fairly between two replicas, $what", async ({ shared }) => {
    const pinned = open();
    const policy = policyOf({ ...shared, perKey: { rate: "20/s" } });
    const parties: Party[] = ["a", "b"].map((name) => ({
      replica: replicaOf(pinned, policy, name),
      slotRequests: [{ key: "k", wanted: 30 }],
    }));

    const grants = await simulateParties(pinned, parties, 20_000);

    const counts = [countOf(grants, 0, 0), countOf(grants, 1, 0)];
    expect(grants.length).toBeGreaterThanOrEqual(0.98 * 400);
    expect(Math.min(...counts)).toBeGreaterThanOrEqual(0.4 * grants.length);
  });

  it("apply to a thousand keys, each at its own rate", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100000/s", perKey: { rate: "2/s" } });
    const replica = replicaOf(pinned, policy);
    const counts = new Map<string, number>();

    for (let round = 0; round < 9; round++) {
      for (let batch = 0; batch < 10; batch++) {
        const keys = Array.from({ length: 100 }, (_, index) => `k${batch * 100 + index}`);
        const reply = await replica.drawAll(keys.map((key) => ({ key, wanted: 2 })));
        for (const [index, key] of keys.entries()) {
          counts.set(key, (counts.get(key) ?? 0) + slotsOf(reply, index).length);
        }
      }
      pinned.clock.advanceMs(250);
    }

    // One at once and one each half second, for two seconds.
    expect(counts.size).toBe(1_000);
    expect(new Set(counts.values())).toEqual(new Set([5]));
  });

  it("keep the state of each key apart, and of each bucket", async () => {
    const pinned = open();
    const policy = policyOf({ perKey: { rate: "1/s" } });
    const here = replicaOf(pinned, policy);
    const there = createTestReplica(pinned.store, { bucket: "other", name: "a", policy });

    const slots = [
      ...slotsOf(await here.drawAll([{ key: "x", wanted: 1 }])),
      ...slotsOf(await here.drawAll([{ key: "y", wanted: 1 }])),
      ...slotsOf(await there.drawAll([{ key: "x", wanted: 1 }])),
      ...slotsOf(await here.drawAll([{ key: "x", wanted: 1 }])),
    ];

    expect(slots).toEqual([1, 1, 1].map(() => pinned.clock.nowUs()));
  });

  it("accept any text as the name of a key", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "1000/s", perKey: { rate: "1/s" } });
    const replica = replicaOf(pinned, policy);
    const keys = ["{x}", "a b", "", "state", "x:turns", "ключ", "\u0000", "k".repeat(1_000_000)];

    const first = await replica.drawAll(keys.map((key) => ({ key, wanted: 1 })));
    const second = await replica.drawAll(keys.map((key) => ({ key, wanted: 1 })));

    expect(keys.map((_key, index) => slotsOf(first, index).length)).toEqual(keys.map(() => 1));
    expect(keys.map((_key, index) => slotsOf(second, index).length)).toEqual(keys.map(() => 0));
  });

  it("return a redraw time at which the key just allows a call", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s", perKey: { rate: "1/s" } });
    const [busy, replica] = [replicaOf(pinned, policy, "b"), replicaOf(pinned, policy)];
    await replica.drawAll([{ key: "x", wanted: 1 }]);
    const passesUs = pinned.clock.nowUs() + 1_000_000;
    await busy.draw(5);

    const [granted] = (await replica.drawAll([{ key: "x", wanted: 1 }])).granted;

    // The bucket gives slots that lie 60 ms ahead by now.
    expect(granted).toMatchObject({ slotsUs: [], notBeforeUs: passesUs - 60_000 });
  });

  it.each([
    ["bucket", undefined, 0],
    ["key", "x", 1],
  ])("start nothing while the %s is paused, where nothing is shared", async (_, key, others) => {
    const pinned = open();
    const policy = policyOf({ perKey: { rate: "100/s" } });
    const replica = replicaOf(pinned, policy);
    await replica.steer({ do: "pause", durationUs: 5_000_000 }, key);
    const slotRequests = ["x", "y"].map((each) => ({ key: each, wanted: 1 }));

    const paused = await replica.drawAll(slotRequests);
    pinned.clock.advanceMs(5_000);
    const after = await replica.drawAll(slotRequests);

    expect([0, 1].map((slotRequest) => slotsOf(paused, slotRequest).length)).toEqual([0, others]);
    expect([0, 1].map((slotRequest) => slotsOf(after, slotRequest).length)).toEqual([1, 1]);
  });

  it("leave no line behind after a pause that ends early, without shared limits", async () => {
    const pinned = open();
    const policy = policyOf({ perKey: { rate: "1/s" } });
    const [waiting, trying] = [replicaOf(pinned, policy, "w"), replicaOf(pinned, policy, "t")];
    await waiting.steer({ do: "pause", durationUs: 60_000_000 });
    const [paused] = (await waiting.drawAll([{ key: "x", wanted: 1 }])).granted;
    await waiting.steer({ do: "pause", durationUs: 0 });
    pinned.clock.advanceMs(100);

    const tried = await trying.drawAll([{ key: "x", wanted: 1, isTry: true }]);

    expect(paused!.notBeforeUs).toBeGreaterThan(pinned.clock.nowUs() + 50_000_000);
    expect(slotsOf(tried)).toHaveLength(1);
  });

  it("do not change when a try with other limits is rejected", async () => {
    const pinned = open();
    const tryUnder = async (limit: Limit, wanted: number): Promise<number> => {
      const replica = replicaOf(pinned, policyOf({ perKey: { limits: [limit] } }), limit.kind);
      return slotsOf(await replica.drawAll([{ key: "k", wanted, isTry: true }])).length;
    };

    const before = await tryUnder(slidingWindow(6, "1s"), 6);
    const between = await tryUnder(slidingWindow(5, "1min"), 1);
    const after = await tryUnder(slidingWindow(8, "1s"), 3);

    // Six of the eight are used; under the limit between them, no more than five could be.
    expect([before, between, after]).toEqual([6, 0, 2]);
  });

  it("do not change when a try with another kind of limit is rejected", async () => {
    const pinned = open();
    const leaky = leakyBucket("6/min", { burst: 6 });
    const tokens = tokenBucket({ capacity: 6, refill: "6/min" });
    const tryUnder = async (limit: Limit, pausedForUs: number): Promise<number> => {
      const replica = replicaOf(pinned, policyOf({ perKey: { limits: [limit] } }), limit.kind);
      await replica.steer({ do: "pause", durationUs: pausedForUs });
      return slotsOf(await replica.drawAll([{ key: "k", wanted: 6, isTry: true }])).length;
    };

    const before = await tryUnder(leaky, 0);
    const between = await tryUnder(tokens, 60_000_000);
    const after = await tryUnder(leaky, 0);

    // Had the other kind come into force, the key would have begun anew.
    expect([before, between, after]).toEqual([6, 0, 0]);
  });

  it("keep the position of a caller that waits for a lease through a pause, without shared limits", async () => {
    const pinned = open();
    const policy = policyOf({ perKey: { limits: [concurrency(1)] } });
    const [holding, waiting] = [replicaOf(pinned, policy, "h"), replicaOf(pinned, policy, "w")];
    const leaseOrder = async (replica: typeof waiting): Promise<number> =>
      (await replica.drawAll([{ key: "k", wanted: 1 }])).granted[0]!.positions[0]!.leaseOrder;
    await leaseOrder(holding);
    pinned.clock.advanceMs(10);

    const before = await leaseOrder(waiting);
    await waiting.steer({ do: "pause", durationUs: 60_000_000 });
    pinned.clock.advanceMs(600);
    const during = await leaseOrder(waiting);

    const sinceUs = pinned.clock.nowUs() - 600_000;
    expect(before).toBe(RANKS.normal * 2 ** 51 + sinceUs - (sinceUs % 1_000));
    expect(during).toBe(before);
  });

  it("keep the used units when a key changes its tier, for tries too", async () => {
    const { store } = open();
    let tier = "fast";
    const tiers = { fast: { rate: "10/s", burst: 5 }, slow: { rate: "1/s", burst: 5 } };
    const policy = policyOf({ perKey: { tiers, tierOf: () => tier } });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
    const count = async (wanted: number): Promise<number> =>
      slotsOf(await replica.drawAll([{ wanted, key: "k", isTry: true }])).length;
    await count(1);
    await count(4);

    tier = "slow";

    expect(await count(1)).toBe(0);
  });
});
