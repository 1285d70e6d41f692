import { describe, expect, it } from "vitest";
import { budget, leakyBucket, type BudgetOptions } from "../../../src/core/policy/limit-makers.ts";
import { scopesOf } from "../../../src/core/policy/per-key.ts";
import { toMillionths } from "../../../src/core/limits/budget.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import {
  isNone,
  type BudgetBalance,
  type DrawReply,
  type Settled,
} from "../../../src/core/store.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const usd = (amount: number): { usd: number } => ({ usd: toMillionths(amount) });
const berlin = (given: Partial<BudgetOptions>): Limit =>
  budget({ unit: "usd", amount: 10, per: "month", timeZone: "Europe/Berlin", ...given });

function replicaOf(
  { store }: PinnedStore,
  limits: readonly Limit[],
  name = "a",
  perKey?: readonly Limit[],
): TestReplica {
  const policy = policyOf({
    ...(limits.length > 0 && { limits }),
    ...(perKey && { perKey: { limits: perKey } }),
  });
  return createTestReplica(store, { bucket: "b", name, policy });
}

async function balanceOf({ store }: PinnedStore, replica: TestReplica): Promise<BudgetBalance> {
  const request = { bucket: "b", terms: replica.terms(), scopes: [] };
  return (await store.budgets({ ...request, change: { do: "look" } })).balances[0]!;
}

const passed = (reply: DrawReply): number => slotsOf(reply).length;
const partsOf = (reply: Settled | undefined): number[] =>
  (reply?.crossed ?? []).map(({ part }) => part);

describe.each(storeKinds())("a budget in $name", ({ open }) => {
  const at = (pinned: PinnedStore, time: string): void =>
    pinned.clock.set(Date.parse(time) * 1_000);

  it("lets calls pass up to its amount, and refuses the next one until the period ends", async () => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const replica = replicaOf(pinned, [berlin({})]);

    const first = await replica.drawAll([{ wanted: 5, cost: usd(3) }]);
    const next = await replica.drawAll([{ wanted: 2, cost: usd(1) }]);

    expect(passed(first)).toBe(3);
    expect(passed(next)).toBe(1);
    const { granted } = await replica.drawAll([{ wanted: 1, cost: usd(0.000001) }]);
    const endUs = Date.parse("2026-12-01T00:00:00+01:00") * 1_000;
    expect(granted[0]).toMatchObject({ slotsUs: [], bindsAt: 1, soonestUs: endUs });
    expect(granted[0]!.spent).toEqual({ spent: 10_000_000, total: 10_000_000, endUs });
  });

  it("refuses a call that costs more than is left, and lets smaller calls of the same draw pass", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, [berlin({}), leakyBucket("100/s", { burst: 10 })]);

    const reply = await replica.drawAll([
      { wanted: 1, cost: usd(11) },
      { wanted: 2, cost: usd(5) },
    ]);

    expect(reply.granted[0]!.spent).toMatchObject({ spent: 0 });
    expect(slotsOf(reply, 1)).toHaveLength(2);
  });

  it.each([
    ["of the bucket", [berlin({ amount: 1 })], undefined],
    ["of the bucket, beside a rate", [berlin({ amount: 1 }), leakyBucket("10/s")], undefined],
    ["of a key", [], [berlin({ amount: 1 })]],
    [
      "of a key, beside a shared rate",
      [leakyBucket("99/s", { burst: 9 })],
      [berlin({ amount: 1 })],
    ],
  ])("%s refuses at once those calls of a draw that no longer fit", async (_, limits, perKey) => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const [a, b] = ["a", "b"].map((name) => replicaOf(pinned, limits, name, perKey));
    const wanted = { wanted: 3, cost: usd(0.4), key: "acme" };
    const endUs = Date.parse("2026-12-01T00:00:00+01:00") * 1_000;

    const reply = await a!.drawAll([{ ...wanted, wanted: 1 }]);
    pinned.clock.advanceMs(1_000);
    const { granted, position } = await a!.drawAll([wanted]);
    pinned.clock.advanceMs(1_000);
    const small = await b!.drawAll([{ ...wanted, cost: usd(0.2) }]);

    expect(passed(reply)).toBe(1);
    expect(granted[0]).toMatchObject({ soonestUs: endUs, notBeforeUs: endUs });
    expect(granted[0]!.spent).toEqual({ spent: 800_000, total: 1_000_000, endUs });
    expect([position, ...granted[0]!.positions].every(isNone)).toBe(true);
    expect(passed(small)).toBe(1);
  });

  it("never lets four replicas pass more than the amount, at any mix of costs", async () => {
    const pinned = open();
    const limits = [berlin({ amount: 7 })];
    const replicas = ["a", "b", "c", "d"].map((name) => replicaOf(pinned, limits, name));
    let spent = 0;

    for (let round = 0; round < 40; round++) {
      for (const [index, replica] of replicas.entries()) {
        const cost = usd(0.013 * (index + 1));
        spent += passed(await replica.drawAll([{ wanted: 3, cost }])) * cost.usd;
      }
      pinned.clock.advanceMs(50);
    }

    const { spent: counted } = await balanceOf(pinned, replicas[0]!);
    expect(counted).toBe(spent);
    expect(spent).toBeLessThanOrEqual(7_000_000);
    expect(spent).toBeGreaterThan(7_000_000 - 13_000);
  });

  it.each([
    ["day", "2026-03-29T00:30:00+01:00", "2026-03-30T00:00:00+02:00"],
    ["day", "2026-10-25T00:30:00+02:00", "2026-10-26T00:00:00+01:00"],
    ["week", "2026-11-29T23:30:00+01:00", "2026-11-30T00:00:00+01:00"],
    ["month", "2026-03-15T00:00:00+01:00", "2026-04-01T00:00:00+02:00"],
    ["month", "2028-02-29T23:59:59+01:00", "2028-03-01T00:00:00+01:00"],
    ["quarter", "2026-11-23T12:00:00+01:00", "2027-01-01T00:00:00+01:00"],
    ["year", "2026-01-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"],
  ] as const)("of a %s that contains %s begins again at %s", async (per, now, end) => {
    const pinned = open();
    at(pinned, now);
    const replica = replicaOf(pinned, [berlin({ per, amount: 1 })]);

    await replica.drawAll([{ wanted: 1, cost: usd(1) }]);
    const before = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);
    pinned.clock.set(Date.parse(end) * 1_000 - 200_000);
    const late = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);
    at(pinned, end);
    const after = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);

    expect(before.granted[0]!.soonestUs).toBe(Date.parse(end) * 1_000);
    expect([before, late, after].map(passed)).toEqual([0, 0, 1]);
  });

  it("of weeks from Sunday begins again on Sunday", async () => {
    const pinned = open();
    at(pinned, "2026-11-28T12:00:00Z");
    const limit = budget({ unit: "usd", amount: 1, per: "week", weekStart: "sunday" });
    const replica = replicaOf(pinned, [limit]);

    await replica.drawAll([{ wanted: 1, cost: usd(1) }]);
    const { granted } = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);

    expect(granted[0]!.soonestUs).toBe(Date.parse("2026-11-29T00:00:00Z") * 1_000);
  });

  it("of rolling days counts today and the days before, and gives each day back when it leaves", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, [berlin({ per: { days: 3 }, amount: 10 })]);
    const spend = async (time: string, cost: number): Promise<number> => {
      at(pinned, time);
      return passed(await replica.drawAll([{ wanted: 1, cost: usd(cost) }]));
    };

    expect(await spend("2026-10-24T12:00:00+02:00", 4)).toBe(1);
    expect(await spend("2026-10-25T23:00:00+01:00", 4)).toBe(1);
    expect(await spend("2026-10-26T12:00:00+01:00", 4)).toBe(0);
    expect(await spend("2026-10-26T12:00:00+01:00", 2)).toBe(1);
    const { granted } = await replica.drawAll([{ wanted: 1, cost: usd(5) }]);
    expect(granted[0]!.soonestUs).toBe(Date.parse("2026-10-28T00:00:00+01:00") * 1_000);
    expect(await spend("2026-10-26T23:59:59+01:00", 4)).toBe(0);
    expect(await spend("2026-10-27T00:00:00+01:00", 4)).toBe(1);
    expect(await spend("2026-10-27T00:00:01+01:00", 1)).toBe(0);
    expect(await spend("2026-10-28T00:00:00+01:00", 4)).toBe(1);
  });

  it("of rolling days returns a cost to the day of its slot, over a day of 25 hours", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, [berlin({ per: { days: 3 } })]);
    const days = [
      "2026-10-24T12:00:00+02:00",
      "2026-10-25T00:30:00+02:00",
      "2026-10-26T12:00:00+01:00",
    ];
    const slots: number[] = [];
    for (const day of days) {
      at(pinned, day);
      slots.push(...slotsOf(await replica.drawAll([{ wanted: 1, cost: usd(3) }])));
    }

    for (const slotUs of slots) await replica.settle(slotUs, usd(-2));
    const spent: number[] = [];
    for (const day of ["2026-10-26", "2026-10-27", "2026-10-28", "2026-10-29"]) {
      at(pinned, `${day}T12:00:00+01:00`);
      spent.push((await balanceOf(pinned, replica)).spent);
    }

    expect(spent).toEqual([3e6, 2e6, 1e6, 0]);
  });

  it("carries the rest of a period over, up to its bound, also over idle periods", async () => {
    const pinned = open();
    at(pinned, "2026-01-10T12:00:00Z");
    const replica = replicaOf(pinned, [berlin({ carryOver: { max: 15 } })]);

    await replica.drawAll([{ wanted: 1, cost: usd(4) }]);
    at(pinned, "2026-02-10T12:00:00Z");
    expect(await balanceOf(pinned, replica)).toMatchObject({
      carried: 6_000_000,
      total: 16_000_000,
    });
    expect(passed(await replica.drawAll([{ wanted: 20, cost: usd(1) }]))).toBe(16);
    at(pinned, "2026-05-01T12:00:00Z");
    expect(await balanceOf(pinned, replica)).toMatchObject({ carried: 15_000_000, spent: 0 });
  });

  it.each([
    ["month", "2026-12-01T00:00:00+01:00"],
    [{ days: 3 }, "2026-11-26T00:00:00+01:00"],
  ] as const)("of %j loses a grant when its period ends", async (per, end) => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const replica = replicaOf(pinned, [berlin({ per })]);
    const first = await balanceOf(pinned, replica);
    const request = { bucket: "b", terms: replica.terms(), scopes: [] };
    const grant = (amount: number, startUs: number) => {
      const grants = [{ scopeNumber: 0, limitNumber: 1, startUs, amount }];
      return pinned.store.budgets({ ...request, change: { do: "grant", grants } });
    };

    await grant(5e6, first.startUs);
    await grant(7e6, first.startUs - 1);
    expect(passed(await replica.drawAll([{ wanted: 9, cost: usd(3) }]))).toBe(5);
    await grant(-2e6, 0);
    expect(await balanceOf(pinned, replica)).toMatchObject({
      granted: 3e6,
      total: 13e6,
      spent: 15e6,
    });
    pinned.clock.set(Date.parse(end) * 1_000 - 1);
    expect(await balanceOf(pinned, replica)).toMatchObject({ granted: 3e6, spent: 15e6 });
    at(pinned, end);

    expect(await balanceOf(pinned, replica)).toMatchObject({ granted: 0, total: 10e6, spent: 0 });
    await replica.drawAll([{ wanted: 1, cost: usd(3) }]);
    expect(await balanceOf(pinned, replica)).toMatchObject({ granted: 0, total: 10e6, spent: 3e6 });
  });

  it("keeps its balance when the policy changes, also while it is no part of the policy", async () => {
    const pinned = open();
    const before = replicaOf(pinned, [berlin({})], "a");
    await before.drawAll([{ wanted: 1, cost: usd(4) }]);
    pinned.clock.advanceMs(10);
    const without = replicaOf(pinned, [leakyBucket("10/s")], "b");
    await without.draw(1);
    pinned.clock.advanceMs(10);

    const after = replicaOf(pinned, [leakyBucket("10/s"), berlin({ amount: 20 })], "c");
    await after.drawAll([{ wanted: 1, cost: usd(1) }]);

    expect(await balanceOf(pinned, after)).toMatchObject({ spent: 5_000_000, total: 20_000_000 });
  });

  it.each([
    ["another policy is active", 1],
    ["the policy was declared again after another one", 2],
  ])("gets unused slots back although %s", async (_, changes) => {
    const pinned = open();
    const limits = [leakyBucket("10/s"), berlin({})];
    const perKey = [berlin({})];
    const replica = replicaOf(pinned, limits, "a", perKey);
    const slots = slotsOf(await replica.drawAll([{ wanted: 1, cost: usd(2), key: "acme" }]));
    for (const other of [[leakyBucket("20/s")], limits].slice(0, changes)) {
      pinned.clock.advanceMs(10);
      await replicaOf(pinned, other, "b", perKey).draw(1);
    }

    await replica.giveBack(slots, usd(2), "acme");

    const scopes = scopesOf(replica.policy, "acme");
    const request = {
      bucket: "b",
      terms: replica.terms(),
      scopes,
      change: { do: "look" },
    } as const;
    const { balances } = await pinned.store.budgets(request);
    expect(slots).toHaveLength(1);
    expect(balances.map(({ spent }) => spent)).toEqual([0, 0]);
  });

  it("settles more or less than the estimate, and gives unused slots back", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, [berlin({}), leakyBucket("10/s")]);
    const slots = slotsOf(await replica.drawAll([{ wanted: 1, cost: usd(2) }]));
    await replica.settle(slots[0]!, usd(1.5));
    expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 3_500_000 });
    await replica.settle(slots[0]!, usd(-2.5));
    expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 1_000_000 });

    const more = slotsOf(await replica.drawAll([{ wanted: 1, cost: usd(3) }]));
    await replica.giveBack(more, usd(3));

    expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 1_000_000 });
  });

  it("ignores a cost that is returned for a period that is over", async () => {
    const pinned = open();
    at(pinned, "2026-11-30T22:00:00Z");
    const replica = replicaOf(pinned, [berlin({})]);
    const slots = slotsOf(await replica.drawAll([{ wanted: 1, cost: usd(5) }]));
    at(pinned, "2026-11-30T23:30:00Z");
    await replica.drawAll([{ wanted: 1, cost: usd(2) }]);

    await replica.settle(slots[0]!, usd(-4));
    expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 2_000_000 });
    await replica.settle(slots[0]!, usd(3));
    expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 5_000_000 });
  });

  describe("whose calls settle their cost", () => {
    const reserving = async (pinned: PinnedStore, given: Partial<BudgetOptions> = {}) => {
      at(pinned, "2026-11-23T12:00:00Z");
      const replica = replicaOf(pinned, [berlin({ reserveMs: 60_000, ...given })]);
      const wanted = { wanted: 1, cost: usd(6), settles: true };
      const [slotUs] = slotsOf(await replica.drawAll([wanted]));
      return { replica, wanted, slotUs: slotUs! };
    };

    it("reserves the estimate until the call settles", async () => {
      const pinned = open();
      const { replica, wanted, slotUs } = await reserving(pinned);
      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 6e6, reserved: 6e6 });
      expect(passed(await replica.drawAll([wanted]))).toBe(0);

      await replica.settle(slotUs, usd(-5), undefined, false, usd(6));

      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 1e6, reserved: 0 });
      expect(passed(await replica.drawAll([wanted]))).toBe(1);
    });

    it("gives the estimate back if nothing is settled in time", async () => {
      const pinned = open();
      const { replica, wanted } = await reserving(pinned);

      pinned.clock.advanceMs(59_999);
      expect(passed(await replica.drawAll([wanted]))).toBe(0);
      pinned.clock.advanceMs(1);

      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 0, reserved: 0 });
      expect(passed(await replica.drawAll([wanted]))).toBe(1);
      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 6e6, reserved: 6e6 });
    });

    it("books the whole cost of a call that settles after its reservation was given back", async () => {
      const pinned = open();
      const { replica, slotUs } = await reserving(pinned);
      pinned.clock.advanceMs(61_000);
      expect(passed(await replica.drawAll([{ wanted: 1, cost: usd(10) }]))).toBe(1);

      await replica.settle(slotUs, usd(1), undefined, false, usd(6));

      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 17e6 });
    });

    it("settles calls at one slot one by one", async () => {
      const pinned = open();
      const { replica, wanted, slotUs } = await reserving(pinned, { amount: 100 });
      const others = slotsOf(await replica.drawAll([{ ...wanted, wanted: 2 }]));
      expect(others).toEqual([slotUs, slotUs]);

      await replica.settle(slotUs, usd(-6), undefined, false, usd(6));
      await replica.settle(slotUs, usd(-5), undefined, false, usd(6));
      pinned.clock.advanceMs(61_000);

      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 1e6, reserved: 0 });
    });

    it("does not give a reservation of an earlier period back to this one", async () => {
      const pinned = open();
      const { replica } = await reserving(pinned, { reserveMs: 3_600_000 });
      at(pinned, "2026-12-01T00:00:00Z");
      await replica.drawAll([{ wanted: 1, cost: usd(9) }]);

      expect(passed(await replica.drawAll([{ wanted: 1, cost: usd(2) }]))).toBe(0);
      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 9e6, reserved: 0 });
    });

    it("returns an unused slot together with its reservation", async () => {
      const pinned = open();
      const { replica, wanted } = await reserving(pinned, { amount: 100 });
      const key = { bucket: "b", asker: "a", terms: replica.terms() };
      const slotsUs = slotsOf(await replica.drawAll([{ ...wanted, wanted: 1 }]));
      const slotRequest = { name: "x", scopes: [], costs: [6e6], reserves: true };
      const { position, generation } = replica.last!;

      await pinned.store.giveBack({ ...key, generation, position, slotRequest, slotsUs });

      expect(await balanceOf(pinned, replica)).toMatchObject({ spent: 6e6, reserved: 6e6 });
    });
  });

  it("reports each threshold once in a period, by what is settled and not by what is reserved", async () => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const [a, b] = ["a", "b"].map((name) =>
      replicaOf(pinned, [berlin({ warnAt: [0.5, 0.8] })], name),
    );

    const [slotUs] = slotsOf(await a!.drawAll([{ wanted: 1, cost: usd(4), settles: true }]));
    expect(partsOf(await b!.drawAll([{ wanted: 1, cost: usd(4) }]))).toEqual([]);
    const settled = await a!.settle(slotUs!, usd(0.9), undefined, false, usd(4));
    expect(partsOf(settled)).toEqual([0.5, 0.8]);
    expect(settled!.crossed![1]).toMatchObject({ key: undefined, spent: 8.9e6, total: 10e6 });
    expect(partsOf(await b!.settle(slotUs!, usd(-4)))).toEqual([]);
    expect(partsOf(await b!.drawAll([{ wanted: 1, cost: usd(5) }]))).toEqual([]);
    at(pinned, "2026-12-23T12:00:00Z");
    expect(partsOf(await b!.drawAll([{ wanted: 1, cost: usd(5) }]))).toEqual([0.5]);
  });

  it("logs each threshold for each reader until it has handled it", async () => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const { store } = pinned;
    const replica = replicaOf(pinned, [berlin({ warnAt: [0.5, 0.8] })], "a", [
      berlin({ warnAt: [1] }),
    ]);
    const read = (reader: string, handled = 0) =>
      store.readWarnings({ bucket: "b", reader, handled });

    await replica.drawAll([{ wanted: 1, cost: usd(9) }]);
    const both = await read("one");
    await replica.drawAll([{ wanted: 1, cost: usd(1), key: "a: %" }]);
    await read("one", both[0]!.number);
    // Another process of the reader knows only an earlier warning.
    await read("one", both[0]!.number - 1);
    const left = await read("one");
    const resetsUs = Date.parse("2026-11-30T23:00:00Z") * 1_000;

    const facts = { key: undefined, unit: "usd", per: "month", count: 10e6, endUs: resetsUs };
    expect(both).toMatchObject([
      { ...facts, part: 0.5, spent: 9e6, total: 10e6 },
      { ...facts, part: 0.8, spent: 9e6, total: 10e6 },
    ]);
    expect(left.map(({ part }) => part)).toEqual([0.8]);
    expect(await read("other")).toHaveLength(2);
    at(pinned, "2026-11-23T12:02:00Z");
    expect(await read("later")).toEqual([]);
    at(pinned, "2026-12-02T12:00:00Z");
    await replica.drawAll([{ wanted: 1, cost: usd(5) }]);
    expect((await read("other")).map(({ part }) => part)).toEqual([0.5]);
  });

  it.each([
    ["a call that fits", 9, 1],
    ["a call that does not fit", 11, 0],
  ])("reports the thresholds that an undone grant reaches with %s", async (_, cost, fits) => {
    const pinned = open();
    at(pinned, "2026-11-23T12:00:00Z");
    const replica = replicaOf(pinned, [berlin({ warnAt: [0.5, 0.8] })]);
    const grant = (amount: number) => {
      const grants = [{ scopeNumber: 0, limitNumber: 1, startUs: 0, amount }];
      const request = { bucket: "b", terms: replica.terms(), scopes: [] };
      return pinned.store.budgets({ ...request, change: { do: "grant", grants } });
    };

    await grant(20e6);
    const before = await replica.drawAll([{ wanted: 1, cost: usd(cost) }]);
    await grant(-20e6);
    await replica.giveBack([pinned.clock.nowUs()], usd(0.01));
    const next = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);
    const last = await replica.drawAll([{ wanted: 1, cost: usd(1) }]);

    expect(passed(next)).toBe(fits);
    expect([before, next, last].map(partsOf)).toEqual([[], [0.5, 0.8], []]);
  });
});
