import { describe, expect, it } from "vitest";
import { tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { simulateParties } from "../../support/draws/simulate.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

/** From 0.2 to 1.5 ms, as timers and the way there are late by. */
function createLateness(): () => number {
  let number = 0;
  return () => 200 + ((number++ * 337) % 1_300);
}

describe.each(storeKinds())("slots that are moved later for a key, in $name", ({ open }) => {
  const openReplica = (options: PolicyOptions) => {
    const pinned = open();
    const policy = policyOf(options);
    return {
      clock: pinned.clock,
      replica: createTestReplica(pinned.store, { bucket: "b", name: "a", policy }),
    };
  };

  it("are one interval of the key apart, although each draw comes a little late", async () => {
    const { clock, replica } = openReplica({ rate: "1000/s", perKey: { rate: "50/s" } });
    const startUs = clock.nowUs();
    const slots: number[] = [];

    for (let call = 0; call < 10; call++) {
      const reply = await replica.drawAll([{ key: "x", wanted: 10 - call }]);
      slots.push(...slotsOf(reply, 0));
      const { notBeforeUs } = reply.granted[0]!;
      if (notBeforeUs > 0) clock.advanceMs((notBeforeUs - clock.nowUs()) / 1_000 + 1.5);
    }

    expect(slots).toEqual(Array.from({ length: 10 }, (_, call) => startUs + call * 20_000));
  });

  it("are moved by at most 2 ms", async () => {
    const { clock, replica } = openReplica({ rate: "1000/s", perKey: { rate: "50/s" } });
    const passesUs = clock.nowUs() + 20_000;
    await replica.drawAll([{ key: "x", wanted: 1 }]);
    clock.advanceMs(17.999);

    const tooSoon = await replica.drawAll([{ key: "x", wanted: 1 }]);
    clock.advanceMs(0.001);
    const inTime = await replica.drawAll([{ key: "x", wanted: 1 }]);

    expect(tooSoon.granted[0]).toMatchObject({ slotsUs: [], notBeforeUs: passesUs - 2_000 });
    expect(slotsOf(inTime, 0)).toEqual([passesUs]);
  });

  it("cost other keys no more of their rate than that, with any number of keys", async () => {
    const { clock, replica } = openReplica({ rate: "1000/s", perKey: { rate: "50/s" } });
    const slotRequests = Array.from({ length: 12 }, (_, key) => ({ key: `key ${key}`, wanted: 1 }));
    for (const slotRequest of slotRequests) {
      await replica.drawAll([slotRequest]);
      clock.advanceMs(0.001);
    }
    clock.advanceMs(30);
    const asksUs = clock.nowUs();
    await replica.drawAll(slotRequests);
    clock.advanceMs(18.5);

    const reply = await replica.drawAll(slotRequests);

    const slots = slotRequests.flatMap((_, slotRequest) => slotsOf(reply, slotRequest));
    expect(slots).toEqual(Array.from({ length: 12 }, (_, each) => asksUs + 20_000 + each * 1_000));
  });

  it.each([
    { keys: 1, rate: 50, replicas: 1, least: 0.99 },
    { keys: 10, rate: 50, replicas: 4, least: 0.99 },
    { keys: 1, rate: 500, replicas: 4, least: 0.99 },
    { keys: 2, rate: 500, replicas: 2, least: 0.99 },
    { keys: 4, rate: 250, replicas: 8, least: 0.95 },
    { keys: 10, rate: 200, replicas: 8, least: 0.99 },
  ])(
    "leave $keys keys with $rate/s on $replicas replicas their full share of 1000/s",
    async ({ keys, rate, replicas, least }) => {
      const pinned = open();
      const policy = policyOf({ rate: "1000/s", perKey: { rate: `${rate}/s` } });
      const slotRequests = Array.from({ length: keys }, (_, key) => ({
        key: `key ${key}`,
        wanted: 20,
      }));
      const parties = Array.from({ length: replicas }, (_, name) => ({
        replica: createTestReplica(pinned.store, { bucket: "b", name: `a${name}`, policy }),
        slotRequests,
      }));
      const endUs = pinned.clock.nowUs() + 2_000_000;

      const grants = await simulateParties(pinned, parties, 2_000, createLateness());

      const perSecond = grants.filter(({ slotUs }) => slotUs < endUs).length / 2;
      expect(perSecond).toBeGreaterThan(least * Math.min(1_000, keys * rate));
    },
  );

  it("are not taken from replicas with an earlier turn", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100000/s", perKey: { rate: "1000/s" } });
    const replicaOf = (name: string) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy });
    const [filler, first, second] = [replicaOf("filler"), replicaOf("first"), replicaOf("second")];
    const passesUs = pinned.clock.nowUs() + 25_000;
    await filler.drawAll([{ key: "x", wanted: 1 }]);
    await filler.settle(pinned.clock.nowUs(), { calls: 24 }, "x");
    await first.drawAll([{ key: "x", wanted: 1 }]);
    pinned.clock.advanceMs(1);
    await second.drawAll([{ key: "x", wanted: 1 }]);
    pinned.clock.advanceMs(23.5);

    const before = await second.drawAll([{ key: "x", wanted: 1 }]);
    const inTurn = await first.drawAll([{ key: "x", wanted: 1 }]);

    expect(slotsOf(before)).toEqual([]);
    expect(slotsOf(inTurn)).toEqual([passesUs]);
  });

  it.each<[string, PolicyOptions]>([
    ["a rate", { rate: "100000/s" }],
    ["a number of calls at once", { concurrency: 1_000 }],
    ["a token bucket", { limits: [tokenBucket({ capacity: 20_000, refill: "20000/s" })] }],
  ])("cause no try to be rejected, under %s", async (_which, shared) => {
    const { clock, replica } = openReplica({ ...shared, perKey: { rate: "50/s" } });
    await replica.drawAll([{ key: "y", wanted: 1, isTry: true }]);
    clock.advanceMs(0.1);
    await replica.drawAll([{ wanted: 1 }]);
    clock.advanceMs(0.1);
    const passesUs = clock.nowUs() + 20_000;
    await replica.drawAll([{ key: "x", wanted: 1 }]);
    clock.advanceMs(18.5);

    const early = await replica.drawAll([{ key: "x", wanted: 1 }]);
    const tried = await replica.drawAll([{ key: "z", wanted: 1, isTry: true }]);

    expect(early.granted[0]).toMatchObject({ slotsUs: [], notBeforeUs: passesUs });
    expect(slotsOf(tried)).toEqual([clock.nowUs()]);
  });

  it("are granted again once no call has tried for an hour", async () => {
    const { clock, replica } = openReplica({ rate: "1000/s", perKey: { rate: "50/s" } });
    await replica.drawAll([{ key: "y", wanted: 1, isTry: true }]);
    const pushed: boolean[] = [];

    for (const waitMs of [3_599_900, 100]) {
      clock.advanceMs(waitMs);
      await replica.drawAll([{ key: "x", wanted: 1 }]);
      clock.advanceMs(18.5);
      pushed.push(slotsOf(await replica.drawAll([{ key: "x", wanted: 1 }])).length === 1);
      clock.advanceMs(20);
    }

    expect(pushed).toEqual([false, true]);
  });

  it("are not granted to a try", async () => {
    const { clock, replica } = openReplica({ rate: "1000/s", perKey: { rate: "50/s" } });
    const passesUs = clock.nowUs() + 20_000;
    await replica.drawAll([{ key: "x", wanted: 1, isTry: true }]);
    clock.advanceMs(19);

    const reply = await replica.drawAll([{ key: "x", wanted: 1, isTry: true }]);

    expect(slotsOf(reply, 0)).toEqual([]);
    expect(reply.granted[0]!.notBeforeUs).toBe(passesUs);
  });
});
