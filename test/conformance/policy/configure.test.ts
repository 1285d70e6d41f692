import { describe, expect, it } from "vitest";
import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import type { Policy } from "../../../src/core/policy/policy.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

/** A limit, and one of the same kind that holds twice as much. */
const PAIRS: readonly (readonly [string, Limit, Limit])[] = [
  ["leaky-bucket", leakyBucket("1/min", { burst: 10 }), leakyBucket("1/min", { burst: 20 })],
  [
    "token-bucket",
    tokenBucket({ capacity: 10, refill: "1/min" }),
    tokenBucket({ capacity: 20, refill: "1/min" }),
  ],
  ["sliding-log", slidingLog(10, "1h"), slidingLog(20, "1h")],
  ["sliding-window", slidingWindow(10, "1h"), slidingWindow(20, "1h")],
  ["fixed-window", fixedWindow(10, "1d"), fixedWindow(20, "1d")],
];
const fast = policyOf({ rate: "100/s" });
const slow = policyOf({ rate: "10/s" });
const override = { do: "configure", source: "override", doesYield: false } as const;

describe.each(storeKinds())("a bucket with an override in $name", ({ open }) => {
  const replicaOf = ({ store }: PinnedStore, name: string, policy: Policy): TestReplica =>
    createTestReplica(store, { bucket: "b", name, policy });

  it.each(PAIRS)("keeps the used units: %s", async (_kind, from, to) => {
    const pinned = open();
    const before = replicaOf(pinned, "a", policyOf({ limits: [from] }));
    const used = [];
    for (let round = 0; round < 20; round++) used.push(...slotsOf(await before.draw(10)));
    const after = replicaOf(pinned, "b", policyOf({ limits: [to] }));

    await after.steer(override);

    expect(used).toHaveLength(10);
    expect((await after.peek()).statuses[0]).toMatchObject({ remaining: 10 });
  });

  it.each(PAIRS)(
    "has nothing left when it is made narrower than what was used: %s",
    async (_kind, to, from) => {
      const pinned = open();
      const before = replicaOf(pinned, "a", policyOf({ limits: [from] }));
      await before.draw(1, 15);
      const after = replicaOf(pinned, "b", policyOf({ limits: [to] }));

      await after.steer(override);

      expect((await after.peek()).statuses[0]).toMatchObject({ remaining: 0 });
    },
  );

  it("keeps its policy when a process declares that of its code again", async () => {
    const pinned = open();
    await replicaOf(pinned, "old", fast).draw(1);
    await replicaOf(pinned, "operator", slow).steer(override);

    const started = await replicaOf(pinned, "new", fast).draw(1);

    expect(started.newText).toBe(slow.text);
    expect(slotsOf(started)).toEqual([]);
    expect(await replicaOf(pinned, "operator", slow).peek()).toMatchObject({
      text: slow.text,
      source: "override",
    });
  });

  it("prefers the override to rules, and rules to the code", async () => {
    const pinned = open();
    const rules = { do: "configure", source: "rules", doesYield: true } as const;
    const [coded, ruled] = [replicaOf(pinned, "code", fast), replicaOf(pinned, "rules", slow)];
    await coded.draw(1);

    await ruled.steer(rules);
    const { generation } = await ruled.peek();
    await ruled.steer(rules);
    expect(await ruled.peek()).toMatchObject({ text: slow.text, source: "rules", generation });
    expect((await replicaOf(pinned, "new", fast).draw(1)).newText).toBe(slow.text);

    await coded.steer(override);
    await ruled.steer(rules);
    expect(await coded.peek()).toMatchObject({ text: fast.text, source: "override" });

    await ruled.steer({ ...rules, doesYield: false });
    expect(await ruled.peek()).toMatchObject({ text: slow.text, source: "rules" });
    await coded.steer({ ...rules, source: "code" });
    expect(await coded.peek()).toMatchObject({ text: fast.text, source: "code" });
  });

  it("notifies each replica at its next draw, and gives it slots by the new policy after that", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, "a", fast);
    const held = await replica.draw(3);
    await replicaOf(pinned, "operator", slow).steer(override);

    const told = await replica.draw(1);
    pinned.clock.advanceMs(50);
    const follower = replicaOf(pinned, "a", slow);
    const [slotUs] = slotsOf(await follower.draw(1));

    expect(told.newText).toBe(slow.text);
    expect(told.generation).toBeGreaterThan(held.generation);
    expect(slotUs).toBe(slotsOf(held).at(-1)! + 100_000);
  });

  it("follows the code again once the override is lifted", async () => {
    const pinned = open();
    await replicaOf(pinned, "operator", slow).steer(override);
    await replicaOf(pinned, "operator", slow).steer({
      do: "configure",
      source: "code",
      doesYield: false,
    });

    const started = await replicaOf(pinned, "new", fast).draw(1);

    expect(started.newText).toBeUndefined();
    expect((await replicaOf(pinned, "new", fast).peek()).text).toBe(fast.text);
  });

  it("keeps an earlier cooldown and pause", async () => {
    const pinned = open();
    const replica = replicaOf(pinned, "a", fast);
    const { nowUs } = await replica.draw(1);
    await replica.steer({ do: "cool", durationUs: 5_000_000, rampUs: 1, slotUs: nowUs });
    await replica.steer({ do: "pause", durationUs: 9_000_000 });

    await replicaOf(pinned, "operator", slow).steer(override);

    const peeked = await replicaOf(pinned, "operator", slow).peek();
    expect(peeked).toMatchObject({
      coolUntilUs: nowUs + 5_000_000,
      pausedUntilUs: nowUs + 9_000_000,
    });
  });

  it("still resets at the same local time, and keeps the used units", async () => {
    const pinned = open();
    const align = { at: "03:30", timeZone: "Europe/Berlin" };
    const policyAt = (max: number): Policy =>
      policyOf({ limits: [fixedWindow(max, "1d", { align })] });
    const before = replicaOf(pinned, "a", policyAt(10));
    await before.draw(1, 8);
    const [standing] = (await before.peek()).statuses;
    const after = replicaOf(pinned, "b", policyAt(20));

    await after.steer(override);

    const [configured] = (await after.peek()).statuses;
    const atOnce = slotsOf(await after.draw(20));
    pinned.clock.advanceMs(1_000);
    const later = slotsOf(await after.draw(20));
    expect(configured).toEqual({ ...standing, remaining: 12 });
    expect([...atOnce, ...later]).toHaveLength(12);
  });

  it.each([
    ["counts in the new one", "1h", "1min", 0, 6],
    ["counts no more once it was over", "1min", "1h", 61_000, 10],
  ])(
    "starts a new window, in which the used units of the old one %s",
    async (_, from, to, waitMs, left) => {
      const pinned = open();
      const hourMs = 3_600_000;
      pinned.clock.set(
        Math.ceil(pinned.clock.nowUs() / 1_000 / hourMs) * hourMs * 1_000 + 600_000_000,
      );
      const before = replicaOf(pinned, "a", policyOf({ limits: [fixedWindow(10, from)] }));
      await before.draw(1, 4);
      pinned.clock.advanceMs(waitMs);
      const after = replicaOf(pinned, "b", policyOf({ limits: [fixedWindow(10, to)] }));

      await after.steer(override);

      expect((await after.peek()).statuses[0]).toMatchObject({ remaining: left });
    },
  );
});
