import { describe, expect, it } from "vitest";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const policy = policyOf({ rate: "100/s" });
/** With 20 units used within the first 400 ms, each has room for 10 again after so many ms. */
const LIMITS = [
  { limit: leakyBucket("6/s", { burst: 18 }), freeMs: 2_000 },
  { limit: tokenBucket({ capacity: 18, refill: "6/s" }), freeMs: 2_000 },
  { limit: slidingLog(20, "2s"), freeMs: 2_000 },
  { limit: slidingWindow(20, "2s"), freeMs: 3_000 },
  { limit: fixedWindow(20, "2s"), freeMs: 2_000 },
];

describe.each(storeKinds())("slots given back to $name", ({ open }) => {
  const two = ({ store }: ReturnType<typeof open>) =>
    ["a", "b"].map((name) => createTestReplica(store, { bucket: "b", name, policy }));

  it("free their time if no later slot was booked", async () => {
    const [a, b] = two(open());
    const slots = slotsOf(await a!.draw(4));

    await a!.giveBack(slots.slice(1).toReversed());

    expect(slotsOf(await b!.draw(2))).toEqual(slots.slice(1, 3));
  });

  it("are not granted again after their time has passed", async () => {
    const pinned = open();
    const [a, b] = two(pinned);
    const slots = slotsOf(await a!.draw(5));
    pinned.clock.set(slots[4]! + 5_000);

    await a!.giveBack(slots.toReversed());

    expect(slotsOf(await b!.draw(2))).toEqual([slots[4]! + 10_000, slots[4]! + 20_000]);
  });

  it("go to the next replica at their old times if later slots are booked", async () => {
    const [a, b] = two(open());
    const first = slotsOf(await a!.draw(3));
    const second = slotsOf(await b!.draw(2));

    await a!.giveBack([first[2]!, first[1]!]);
    const third = slotsOf(await b!.draw(3));

    expect(third).toEqual([first[1]!, first[2]!, second.at(-1)! + 10_000]);
  });

  it("stay unused if later slots are booked and calls hold leases", async () => {
    const pinned = open();
    const leased = policyOf({ limits: [leakyBucket("100/s"), concurrency(5)] });
    const [a, b] = ["a", "b"].map((name) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy: leased }),
    );
    const slots = slotsOf(await a!.draw(3));

    await a!.giveBack([slots[1]!]);

    expect(slotsOf(await b!.draw(1))).toEqual([slots[2]! + 10_000]);
  });

  it("go to the next replica up to the number that it wants, the earliest first", async () => {
    const [a, b] = two(open());
    const first = slotsOf(await a!.draw(4));
    await b!.draw(1);
    await a!.giveBack(first.slice(1).toReversed());

    const draws = [slotsOf(await b!.draw(1)), slotsOf(await b!.draw(2))];

    expect(draws).toEqual([[first[1]], [first[2], first[3]]]);
  });

  it("are discarded when the generation changes, also if they wait as holes", async () => {
    const [a, b] = two(open());
    const slots = slotsOf(await a!.draw(5));
    const behind = slotsOf(await b!.draw(1));
    await a!.giveBack([slots[1]!]);
    await b!.steer({ do: "pause", durationUs: 0 });

    await a!.giveBack([slots[2]!, slots[3]!]);

    expect(slotsOf(await b!.draw(1))).toEqual([behind[0]! + 10_000]);
  });

  it("also give back the turn of their replica", async () => {
    const { store } = open();
    const slow = policyOf({ rate: "2/s" });
    const [a, b, c] = ["a", "b", "c"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy: slow }),
    );
    await a!.draw(1);
    const { turnUs } = (await b!.draw(1)).position;

    await b!.giveBack([]);

    expect((await c!.draw(1)).position.turnUs).toBe(turnUs);
  });

  it("are granted only once more", async () => {
    const [a, b] = two(open());
    const first = slotsOf(await a!.draw(3));
    const second = slotsOf(await b!.draw(2));
    await a!.giveBack([first[1]!]);

    const all = [...slotsOf(await b!.draw(2)), ...slotsOf(await a!.draw(2))];

    expect(new Set([...all, ...second]).size).toBe(all.length + second.length);
  });

  it("are discarded once their time has passed", async () => {
    const pinned = open();
    const [a, b] = two(pinned);
    const first = slotsOf(await a!.draw(3));
    await b!.draw(1);
    await a!.giveBack([first[1]!]);
    pinned.clock.advanceMs(500);

    const slots = slotsOf(await b!.draw(2));

    expect(slots[0]).toBe(pinned.clock.nowUs());
  });

  it("are discarded under another policy", async () => {
    const pinned = open();
    const [a] = two(pinned);
    const first = slotsOf(await a!.draw(3));
    const slower = policyOf({ rate: "50/s" });
    const c = createTestReplica(pinned.store, { bucket: "b", name: "c", policy: slower });
    const changed = slotsOf(await c.draw(1));

    await a!.giveBack([first[2]!, first[1]!]);

    expect(slotsOf(await c.draw(1))).toEqual([changed[0]! + 20_000]);
  });

  it("delay no other key if keys share no limit", async () => {
    const { store, clock } = open();
    const perKey = policyOf({ perKey: { rate: "100/s", burst: 9 } });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy: perKey });
    await replica.drawAll([{ key: "x", wanted: 9 }]);
    const [, slotUs] = slotsOf(await replica.drawAll([{ key: "x", wanted: 2 }]));

    await replica.giveBack([slotUs!], 1, "x");

    const slots = slotsOf(await replica.drawAll([{ key: "y", wanted: 1 }]));
    expect(slots).toEqual([clock.nowUs()]);
  });

  it.each(LIMITS.map((each) => [each.limit.kind, each] as const))(
    "are as free again as they were: %s",
    async (_kind, { limit, freeMs }) => {
      const { store, clock } = open();
      const given = policyOf({ limits: [limit] });
      const replica = createTestReplica(store, { bucket: "b", name: "a", policy: given });
      const startUs = clock.nowUs();
      await replica.draw(1, 10);
      clock.advanceMs(400);
      await replica.draw(1, 10);
      clock.set(startUs + (freeMs - 60) * 1_000);

      const booked = [];
      for (let round = 0; round < 3; round++) {
        const slots = slotsOf(await replica.draw(2, 10));
        booked.push(slots.map((slotUs) => (slotUs - startUs) / 1_000));
        await replica.giveBack(slots.toReversed(), 10);
      }

      expect(booked[0]![0]).toBe(freeMs);
      expect(booked[1]).toEqual(booked[0]);
      expect(booked[2]).toEqual(booked[0]);
    },
  );
});
