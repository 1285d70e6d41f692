import { describe, expect, it } from "vitest";
import { createAsker, policyOf, slotsOf } from "../support/asker.ts";
import { storeKinds } from "../support/store-kinds.ts";

describe.each(storeKinds())("slots pushed back to suit a key in $name", ({ open }) => {
  const openAsker = (options: Parameters<typeof policyOf>[0]) => {
    const pinned = open();
    const policy = policyOf(options);
    return {
      clock: pinned.clock,
      asker: createAsker(pinned.store, { bucket: "b", name: "a", policy }),
    };
  };

  it("lie an interval of the key apart, although each is asked for a little late", async () => {
    const { clock, asker } = openAsker({ rate: "1000/s", perKey: { rate: "50/s" } });
    const startUs = clock.nowUs();
    const slots: number[] = [];

    for (let call = 0; call < 10; call++) {
      const reply = await asker.drawAll([{ key: "x", wanted: 10 - call }]);
      slots.push(...slotsOf(reply, 0));
      const { notBeforeUs } = reply.granted[0]!;
      if (notBeforeUs > 0) clock.advanceMs((notBeforeUs - clock.nowUs()) / 1_000 + 1.5);
    }

    expect(slots).toEqual(Array.from({ length: 10 }, (_, call) => startUs + call * 20_000));
  });

  it("are not pushed back by more than 2 ms", async () => {
    const { clock, asker } = openAsker({ rate: "1000/s", perKey: { rate: "50/s" } });
    const passesUs = clock.nowUs() + 20_000;
    await asker.drawAll([{ key: "x", wanted: 1 }]);
    clock.advanceMs(17.999);

    const tooSoon = await asker.drawAll([{ key: "x", wanted: 1 }]);
    clock.advanceMs(0.001);
    const inTime = await asker.drawAll([{ key: "x", wanted: 1 }]);

    expect(tooSoon.granted[0]).toMatchObject({ slotsUs: [], notBeforeUs: passesUs - 2_000 });
    expect(slotsOf(inTime, 0)).toEqual([passesUs]);
  });

  it("take no more than that of the others' rate, however many keys there are", async () => {
    const { clock, asker } = openAsker({ rate: "1000/s", perKey: { rate: "50/s" } });
    const wishes = Array.from({ length: 12 }, (_, key) => ({ key: `key ${key}`, wanted: 1 }));
    for (const wish of wishes) {
      await asker.drawAll([wish]);
      clock.advanceMs(0.001);
    }
    clock.advanceMs(30);
    const asksUs = clock.nowUs();
    await asker.drawAll(wishes);
    clock.advanceMs(18.5);

    const reply = await asker.drawAll(wishes);

    const slots = wishes.flatMap((_, wish) => slotsOf(reply, wish));
    expect(slots).toEqual(Array.from({ length: 12 }, (_, each) => asksUs + 20_000 + each * 1_000));
  });

  it("are not given to one that tries", async () => {
    const { clock, asker } = openAsker({ rate: "1000/s", perKey: { rate: "50/s" } });
    const passesUs = clock.nowUs() + 20_000;
    await asker.drawAll([{ key: "x", wanted: 1, isTry: true }]);
    clock.advanceMs(19);

    const reply = await asker.drawAll([{ key: "x", wanted: 1, isTry: true }]);

    expect(slotsOf(reply, 0)).toEqual([]);
    expect(reply.granted[0]!.notBeforeUs).toBe(passesUs);
  });
});
