import { describe, expect, it } from "vitest";
import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { hasPace, RULES } from "../../../src/core/limits/registry.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const unit = "tokens";
const LIMITS: readonly Limit[] = [
  leakyBucket("10/s", { unit, burst: 20 }),
  tokenBucket({ unit, capacity: 20, refill: "10/s" }),
  slidingLog(20, "2s", { unit }),
  slidingWindow(20, "2s", { unit }),
  fixedWindow(20, "2s", { unit }),
];
const cases = LIMITS.map((limit) => [limit.kind, limit] as const);

/** When a call of each cost would start that is drawn as soon as it can be. */
async function slotOf(
  { clock }: PinnedStore,
  replica: TestReplica,
  tokens: number,
): Promise<number> {
  for (;;) {
    const reply = await replica.drawAll([{ wanted: 1, cost: { tokens } }]);
    const [slotUs] = slotsOf(reply);
    if (slotUs !== undefined) return slotUs;
    clock.set(Math.max(clock.nowUs() + 1, reply.position.turnUs));
  }
}

describe("the limits in this suite", () => {
  // What a budget counts is settled per period: see budgets.test.ts.
  it("include every kind that counts units per time", () => {
    const kinds = [...RULES.keys()].filter(hasPace);

    expect(LIMITS.map(({ kind }) => kind)).toEqual(kinds);
  });
});

describe.each(storeKinds())("the true cost of a call in $name", ({ open }) => {
  it("is counted exactly in a daily window as large as those of providers", async () => {
    const pinned = open();
    const limit = fixedWindow(1_000_000_000, "1d", {
      unit,
      align: { at: "00:00", timeZone: "UTC" },
    });
    const policy = policyOf({ limits: [limit] });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });

    const startUs = await slotOf(pinned, replica, 999_000_000);
    await replica.settle(startUs, { tokens: -900_000_001 });
    const { statuses } = await replica.peek();

    expect(statuses[0]!.remaining).toBe(1_000_000_000 - 98_999_999);
    await replica.settle(startUs, { tokens: 901_000_001 });
    const nextUs = await slotOf(pinned, replica, 1);
    expect(nextUs % 86_400_000_000).toBe(0);
    expect(nextUs).toBeGreaterThan(startUs);
  });

  /** The slots of two calls, the first of which is settled as soon as it has its slot. */
  async function slotsAfter(limit: Limit, first: number, delta: number): Promise<number[]> {
    const pinned = open();
    const policy = policyOf({ limits: [limit] });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const startUs = await slotOf(pinned, replica, first);
    if (delta !== 0) await replica.settle(startUs, { tokens: delta });
    const slots = [await slotOf(pinned, replica, 12), await slotOf(pinned, replica, 7)];
    return slots.map((slotUs) => slotUs - startUs);
  }

  it.each(cases)("delays later calls if it was above the estimate: %s", async (_, limit) => {
    expect(await slotsAfter(limit, 5, 9)).toEqual(await slotsAfter(limit, 14, 0));
  });

  it.each(cases)("frees the unused units if it was below the estimate: %s", async (_, limit) => {
    expect(await slotsAfter(limit, 14, -9)).toEqual(await slotsAfter(limit, 5, 0));
  });

  it.each([
    ["leaky-bucket", 3_200_000],
    ["token-bucket", 3_200_000],
    ["sliding-log", 2_000_000],
  ])("puts the limit into debt if it exceeds the capacity: %s", async (kind, waitUs) => {
    const limit = LIMITS.find((each) => each.kind === kind)!;

    // 5 + 35 tokens of 20 are used, and the next call takes 12.
    const [slotUs] = await slotsAfter(limit, 5, 35);

    expect(slotUs).toBe(waitUs);
  });

  it.each(cases)("is booked for its own call if two calls start at once: %s", async (_, limit) => {
    const slotsFor = async (costs: readonly number[], delta: number): Promise<number[]> => {
      const pinned = open();
      const policy = policyOf({ limits: [limit] });
      const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
      const startUs = pinned.clock.nowUs();
      for (const cost of costs) await slotOf(pinned, replica, cost);
      if (delta !== 0) await replica.settle(startUs, { tokens: delta });
      const slots = [await slotOf(pinned, replica, 12), await slotOf(pinned, replica, 7)];
      return slots.map((slotUs) => slotUs - startUs);
    };

    expect(await slotsFor([2, 14], -9)).toEqual(await slotsFor([2, 5], 0));
  });

  it.each(cases)("never lets calls start at once beyond the capacity: %s", async (_, limit) => {
    const pinned = open();
    const policy = policyOf({ limits: [limit] });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const firstUs = await slotOf(pinned, replica, 20);
    pinned.clock.advanceMs(6_000);

    // All has drained by now, and half of it is used again when the first call turns out to have cost 1.
    await slotOf(pinned, replica, 10);
    await replica.settle(firstUs, { tokens: -19 });
    const second = slotsOf(await replica.drawAll([{ wanted: 9, cost: { tokens: 2 } }]));

    const atOnce = second.filter((slotUs) => slotUs === pinned.clock.nowUs());
    expect(atOnce).toHaveLength(10 / 2);
  });

  it("is ignored if the policy has changed since", async () => {
    const pinned = open();
    const old = policyOf({ limits: [LIMITS[0]!] });
    const now = policyOf({ limits: [leakyBucket("20/s", { unit, burst: 20 })] });
    const before = createTestReplica(pinned.store, { bucket: "b", name: "before", policy: old });
    const after = createTestReplica(pinned.store, { bucket: "b", name: "after", policy: now });
    const slotUs = await slotOf(pinned, before, 5);
    await slotOf(pinned, after, 1);
    const peeked = await after.peek();

    await before.settle(slotUs, { tokens: 15 });

    expect(await after.peek()).toEqual(peeked);
  });

  it("is also settled in the limits of the key", async () => {
    const pinned = open();
    const policy = policyOf({
      limits: [LIMITS[0]!],
      perKey: { limits: [slidingLog(9, "1h", { unit })] },
    });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const [slotUs] = slotsOf(await replica.drawAll([{ key: "k", wanted: 1, cost: { tokens: 2 } }]));

    await replica.settle(slotUs!, { tokens: 4 }, "k");

    const { statuses } = await replica.peek("k");
    expect(statuses.map(({ remaining }) => remaining)).toEqual([14, 3]);
  });

  it.each([
    [4, 4],
    [-1, 9],
  ])("is settled by %i with a key's quota of a local day", async (delta, left) => {
    const pinned = open();
    const align = { at: "03:30", timeZone: "Asia/Tokyo" };
    const policy = policyOf({ perKey: { limits: [fixedWindow(10, "1d", { unit, align })] } });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const [slotUs] = slotsOf(await replica.drawAll([{ key: "k", wanted: 1, cost: { tokens: 2 } }]));

    await replica.settle(slotUs!, { tokens: delta }, "k");

    expect((await replica.peek("k")).statuses).toMatchObject([{ remaining: left }]);
  });
});

describe.each(storeKinds())("a slot that no call used, in $name", ({ open }) => {
  const SLOW = { limits: [leakyBucket("200/s")], perKey: { rate: "1/h" } };
  const HOUR_US = 3_600_000_000;

  async function nextSlot(clock: PinnedStore["clock"], replica: TestReplica): Promise<number> {
    for (;;) {
      const reply = await replica.drawAll([{ wanted: 1, key: "k" }]);
      const [slotUs] = slotsOf(reply);
      if (slotUs !== undefined) return slotUs;
      clock.set(reply.granted[0]!.notBeforeUs);
    }
  }

  it("frees the slow limit of its key, so that the key gets a slot immediately", async () => {
    const { clock, store } = open();
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy: policyOf(SLOW) });
    const [lateUs] = slotsOf(await replica.drawAll([{ wanted: 1, key: "k" }]));
    clock.set(lateUs! + 50_000);
    await replica.settle(lateUs!, { calls: -1 }, "k", true);

    const [slotUs] = slotsOf(await replica.drawAll([{ wanted: 1, key: "k" }]));

    expect(slotUs! - lateUs!).toBe(50_000);
  });

  it("frees nothing before a later slot, whose time would be granted twice", async () => {
    const { clock, store } = open();
    const policy = policyOf({ limits: [leakyBucket("200/s")], perKey: { rate: "20/s" } });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
    const lateUs = await nextSlot(clock, replica);
    const laterUs = await nextSlot(clock, replica);
    expect(laterUs - lateUs).toBe(50_000);
    await replica.settle(lateUs, { calls: -1 }, "k", true);

    expect((await nextSlot(clock, replica)) - laterUs).toBe(50_000);
  });

  it("does not change a key that took no slot", async () => {
    const { clock, store } = open();
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy: policyOf(SLOW) });
    const [firstUs] = slotsOf(await replica.drawAll([{ wanted: 1, key: "k" }]));
    await replica.settle(firstUs!, { calls: -1 }, "other", true);
    clock.set(firstUs! + 1_000);

    const reply = await replica.drawAll([{ wanted: 1, key: "k" }]);

    expect(slotsOf(reply)).toEqual([]);
    expect(reply.granted[0]!.notBeforeUs).toBeGreaterThan(firstUs! + HOUR_US / 2);
  });
});
