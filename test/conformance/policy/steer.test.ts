import { describe, expect, it } from "vitest";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { simulate } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const policy = policyOf({ rate: "100/s" });
const SECOND_US = 1_000_000;

describe.each(storeKinds())(
  "a bucket under control of an operator or of responses, in $name",
  ({ open }) => {
    const replicasOf = ({ store }: PinnedStore, names: string): TestReplica[] =>
      names.split("").map((name) => createTestReplica(store, { bucket: "b", name, policy }));
    const cool = (slotUs: number, durationUs = 5 * SECOND_US, rampUs = 1) =>
      ({ do: "cool", durationUs, rampUs, slotUs }) as const;
    const cut = (
      slotUs: number,
      { factor = 500, floor = 1, recoverUs = 3_600 * SECOND_US, durationUs = 0 } = {},
    ) => ({ do: "cut", factor, floor, recoverUs, durationUs, slotUs }) as const;

    it("starts no call of any replica during its cooldown", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const [slotUs] = slotsOf(await a!.draw(1));
      await a!.steer(cool(slotUs!));
      const startUs = pinned.clock.nowUs();

      const slots = (await simulate(pinned, [a!, b!], { forMs: 6_000, backlog: 50 })).flat();

      expect(Math.min(...slots)).toBe(startUs + 5 * SECOND_US);
      expect(slots.length).toBeGreaterThan(100);
    });

    it("changes its generation once, however many earlier calls return a 429", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const slots = slotsOf(await a!.draw(5));
      const { generation } = await b!.draw(1);
      pinned.clock.advanceMs(60);

      const generations = [];
      for (const slotUs of slots) {
        await a!.steer(cool(slotUs, 5 * SECOND_US, SECOND_US));
        generations.push((await a!.peek()).generation);
        pinned.clock.advanceMs(10);
      }

      expect(new Set(generations).size).toBe(1);
      expect(generations[0]).toBeGreaterThan(generation);
    });

    it("cools down for the longest time of all responses", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const [slotUs] = slotsOf(await a!.draw(1));
      const startUs = pinned.clock.nowUs();

      for (const seconds of [3, 9, 1]) await a!.steer(cool(slotUs!, seconds * SECOND_US));

      expect((await a!.peek()).coolUntilUs).toBe(startUs + 9 * SECOND_US);
    });

    it("ramps up after a cooldown, from a quarter of its rate to all of it", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const [slotUs] = slotsOf(await a!.draw(1));
      await a!.steer(cool(slotUs!, 5 * SECOND_US, 10 * SECOND_US));
      const startUs = pinned.clock.nowUs() + 5 * SECOND_US;

      const slots = (await simulate(pinned, [a!, b!], { forMs: 25_000, backlog: 50 })).flat();

      const inSecond = (second: number): number =>
        slots.filter((us) => Math.floor((us - startUs) / SECOND_US) === second).length;
      expect(inSecond(-1)).toBe(0);
      expect(inSecond(0)).toBeGreaterThanOrEqual(24);
      expect(inSecond(0)).toBeLessThanOrEqual(36);
      expect(inSecond(4)).toBeGreaterThan(inSecond(0));
      expect(inSecond(4)).toBeLessThan(85);
      expect(inSecond(12)).toBeGreaterThanOrEqual(99);
      expect(inSecond(12)).toBeLessThanOrEqual(101);
    });

    it.each([
      ["as fast as it was", 1_000, 250],
      ["slower than a quarter of its rate", 100, 200],
    ])(
      "that was %s starts again after a cooldown at a quarter of its rate, or at less",
      async (_was, factor, again) => {
        const pinned = open();
        const [a] = replicasOf(pinned, "a");
        const { nowUs } = await a!.draw(1);
        await a!.steer(cut(nowUs, { factor, recoverUs: 10 * SECOND_US }));
        pinned.clock.advanceMs(1_000);

        // By then a tenth of the rate has grown back.
        await a!.steer(cool(pinned.clock.nowUs(), 5 * SECOND_US, 10 * SECOND_US));
        pinned.clock.advanceMs(5_000);

        expect((await a!.peek()).factor).toBe(again);
      },
    );

    it("does not grow back during a cooldown that was there before it was cut", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const { nowUs } = await a!.draw(1);
      await a!.steer(cut(nowUs, { durationUs: 5 * SECOND_US }));
      pinned.clock.advanceMs(1_000);
      await a!.steer(cut(pinned.clock.nowUs(), { recoverUs: 10 * SECOND_US }));
      pinned.clock.advanceMs(4_000);

      expect((await a!.peek()).factor).toBe(250);
    });

    it("keeps slots valid when calls from before its cooldown return", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const slots = slotsOf(await a!.draw(5));
      await b!.steer(cool(slots[0]!));
      const { generation } = await b!.peek();
      pinned.clock.set(slots[4]!);
      await a!.steer(cool(slots[4]!, 9 * SECOND_US));

      const coolUntilUs = pinned.clock.nowUs() + 9 * SECOND_US;
      expect(await b!.peek()).toMatchObject({ generation, coolUntilUs });
    });

    it("invalidates all slots from before a pause, and from before its end", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const before = await a!.draw(1);
      await a!.steer({ do: "pause", durationUs: SECOND_US });
      const paused = await a!.peek();
      await a!.steer({ do: "pause", durationUs: 0 });

      expect(paused.generation).toBeGreaterThan(before.generation);
      expect((await a!.peek()).generation).toBeGreaterThan(paused.generation);
    });

    it("keeps the distance of its cut rate when a response asks for a shorter one", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const { nowUs } = await a!.draw(1);
      await a!.steer(cut(nowUs, { factor: 100 }));
      await a!.steer({ do: "space", gapUs: 20_000, durationUs: SECOND_US });
      const slots = (await simulate(pinned, [a!], { forMs: 900, backlog: 50 })).flat();
      const gaps = slots.slice(1).map((us, index) => us - slots[index]!);
      expect(Math.min(...gaps)).toBe(100_000);
    });

    it("starts no call while it is paused, and continues immediately after a resume", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      await a!.draw(1);
      await a!.steer({ do: "pause", durationUs: 30 * SECOND_US });
      const paused = (await simulate(pinned, [a!, b!], { forMs: 20_000, backlog: 50 })).flat();
      await a!.steer({ do: "pause", durationUs: 0 });

      const slots = slotsOf(await b!.draw(5));

      expect(paused).toEqual([]);
      expect(slots).toEqual(
        [0, 10_000, 20_000, 30_000, 40_000].map((us) => pinned.clock.nowUs() + us),
      );
    });

    it("continues by itself when its pause ends", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      await a!.steer({ do: "pause", durationUs: 3 * SECOND_US });
      const startUs = pinned.clock.nowUs();

      const slots = (await simulate(pinned, [a!], { forMs: 4_000, backlog: 9 })).flat();

      expect(slots[0]).toBe(startUs + 3 * SECOND_US);
    });

    it("is never cut below its minimum, and recovers", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const factors = [];
      for (let round = 0; round < 5; round++) {
        const { nowUs } = await a!.peek();
        await a!.steer(cut(nowUs, { floor: 200, recoverUs: 10 * SECOND_US }));
        factors.push((await a!.peek()).factor);
        pinned.clock.advanceMs(1);
      }
      pinned.clock.advanceMs(4_000);
      const halfWay = (await a!.peek()).factor;
      pinned.clock.advanceMs(4_000);
      const atLast = (await a!.peek()).factor;

      expect(factors).toEqual([500, 250, 200, 200, 200]);
      expect(halfWay).toBe(600);
      expect(atLast).toBe(1_000);
    });

    it("is cut once for all calls that were in flight", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const slots = slotsOf(await a!.draw(5));
      pinned.clock.advanceMs(100);

      for (const slotUs of slots) await a!.steer(cut(slotUs));

      expect((await a!.peek()).factor).toBe(500);
    });

    it("starts no call of any replica until the cooldown of a cut is over, while responses arrive", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const slots = slotsOf(await a!.draw(5));
      pinned.clock.advanceMs(60);
      const drawn = [];

      for (const slotUs of slots) {
        await a!.steer(cut(slotUs, { durationUs: SECOND_US }));
        drawn.push(...slotsOf(await b!.draw(5)));
        pinned.clock.advanceMs(1);
      }

      expect(drawn).toEqual([]);
    });

    it("is cut once per generation, however many responses arrive and in whatever way", async () => {
      const pinned = open();
      const replicas = replicasOf(pinned, "abc");
      const seen = new Map<number, Set<number>>();
      const handedOut: number[] = [];

      for (let round = 0; round < 60; round++) {
        const reply = await replicas[round % 3]!.draw(1 + (round % 7));
        handedOut.push(...slotsOf(reply));
        const { nowUs } = reply;
        // Answers come back in any order, the newest first or long after: some with a time to wait.
        const answered = handedOut.filter((slotUs) => slotUs <= nowUs);
        const slotUs = answered[(round * 7) % answered.length] ?? nowUs;
        await replicas[(round + 1) % 3]!.steer(
          cut(slotUs, { factor: 900, durationUs: (round % 4) * 40_000 }),
        );
        const { generation, factor } = await replicas[2]!.peek();
        seen.set(generation, (seen.get(generation) ?? new Set()).add(factor));
        pinned.clock.advanceMs(25);
      }

      const factors = [...seen.values()].map((each) => [...each]);
      expect(factors.every((each) => each.length === 1)).toBe(true);
      expect(new Set(factors.flat()).size).toBe(seen.size);
      expect(seen.size).toBeGreaterThan(3);
    });

    it("is cut again by the response to a call that started after its cooldown", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const [first] = slotsOf(await a!.draw(1));
      await a!.steer(cut(first!, { durationUs: SECOND_US }));
      pinned.clock.advanceMs(1_000);
      const [second] = slotsOf(await a!.draw(1));

      await a!.steer(cut(second!, { durationUs: SECOND_US }));

      expect(await a!.peek()).toMatchObject({
        factor: 250,
        coolUntilUs: pinned.clock.nowUs() + SECOND_US,
      });
    });

    it("cools down for longer after a response that does not cut it again", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      const [first, second] = slotsOf(await a!.draw(2));
      pinned.clock.advanceMs(50);
      await a!.steer(cut(first!, { durationUs: SECOND_US }));

      await a!.steer(cut(second!, { durationUs: 3 * SECOND_US }));

      expect(await a!.peek()).toMatchObject({
        factor: 500,
        coolUntilUs: pinned.clock.nowUs() + 3 * SECOND_US,
      });
    });

    it("is not cut again by responses to calls with slots from before the cut", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      const slots = slotsOf(await a!.draw(5));
      await b!.steer(cut(slots[0]!));
      const { factor } = await b!.peek();

      // The call on the last of them leaves before its process hears of the cut.
      pinned.clock.set(slots[4]!);
      await a!.steer(cut(slots[4]!));

      expect((await b!.peek()).factor).toBe(factor);
    });

    it("counts the replicas that drew recently, and forgets them after two seconds", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      await a!.draw(1);
      await b!.draw(1);

      const { alive } = await a!.peek();
      pinned.clock.advanceMs(2_000);

      expect([alive, (await a!.peek()).alive]).toEqual([2, 0]);
    });

    it("starts no more calls than its reduced rate allows", async () => {
      const pinned = open();
      const [a, b] = replicasOf(pinned, "ab");
      await a!.draw(1);
      const slotUs = pinned.clock.nowUs();
      await a!.steer(cut(slotUs, { factor: 300, recoverUs: 1_000_000 * SECOND_US }));

      const slots = (await simulate(pinned, [a!, b!], { forMs: 10_000, backlog: 50 })).flat();

      expect(slots.length).toBeGreaterThanOrEqual(295);
      expect(slots.length).toBeLessThanOrEqual(304);
    });

    it("keeps the requested distance between calls for the requested time", async () => {
      const pinned = open();
      const [a] = replicasOf(pinned, "a");
      await a!.draw(1);
      await a!.steer({ do: "space", gapUs: 50_000, durationUs: 2 * SECOND_US });
      const startUs = pinned.clock.nowUs();

      const slots = (await simulate(pinned, [a!], { forMs: 4_000, backlog: 50 })).flat();
      slots.sort((a, b) => a - b);

      const spaced = slots.filter((us) => us < startUs + 2 * SECOND_US - 100_000);
      const gaps = spaced.slice(1).map((us, index) => us - spaced[index]!);
      expect(Math.min(...gaps)).toBe(50_000);
      expect(slots.at(-1)! - slots.at(-2)!).toBe(10_000);
    });

    it("pauses one key without invalidating slots of other keys", async () => {
      const pinned = open();
      const perKey = policyOf({ rate: "100/s", perKey: { rate: "50/s" } });
      const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy: perKey });
      const { generation, nowUs } = await replica.drawAll([{ key: "x", wanted: 1 }]);
      await replica.steer(cool(nowUs), "x");
      pinned.clock.advanceMs(100);

      const reply = await replica.drawAll([
        { key: "x", wanted: 1 },
        { key: "y", wanted: 1 },
      ]);

      expect([slotsOf(reply, 0).length, slotsOf(reply, 1).length]).toEqual([0, 1]);
      expect(reply.generation).toBe(generation);
      expect(reply.granted[0]!.notBeforeUs).toBeGreaterThan(reply.nowUs);
    });

    it("reports the lower of a key's own rate and the bucket's", async () => {
      const pinned = open();
      const perKey = policyOf({ rate: "100/s", perKey: { rate: "50/s" } });
      const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy: perKey });
      const { nowUs } = await replica.drawAll(["x", "y"].map((key) => ({ key, wanted: 1 })));
      await replica.steer(cut(nowUs, { factor: 300 }), "x");
      await replica.steer(cut(nowUs, { factor: 700 }), "y");
      await replica.steer(cut(nowUs, { factor: 500 }));

      const factors = [];
      for (const key of ["x", "y", "z", undefined]) factors.push((await replica.peek(key)).factor);

      expect(factors).toEqual([300, 500, 500, 500]);
    });
  },
);
