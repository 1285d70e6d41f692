import { describe, expect, it } from "vitest";
import { compilePolicy } from "../../src/core/policy.ts";
import { createAsker, slotsOf } from "../support/asker.ts";
import { storeKinds } from "../support/store-kinds.ts";

const policy = compilePolicy("test", { rate: "100/s" });

describe.each(storeKinds())("slots given back to $name", ({ open }) => {
  const two = ({ store }: ReturnType<typeof open>) =>
    ["a", "b"].map((name) => createAsker(store, { bucket: "b", name, policy }));

  it("are unbooked when nothing was booked behind them", async () => {
    const [a, b] = two(open());
    const slots = slotsOf(await a!.draw(4));

    await a!.giveBack(slots.slice(1).toReversed());

    expect(slotsOf(await b!.draw(2))).toEqual(slots.slice(1, 3));
  });

  it("go to the next asker, in their old places, when others are booked behind them", async () => {
    const [a, b] = two(open());
    const first = slotsOf(await a!.draw(3));
    const second = slotsOf(await b!.draw(2));

    await a!.giveBack([first[2]!, first[1]!]);
    const third = slotsOf(await b!.draw(3));

    expect(third).toEqual([first[1]!, first[2]!, second.at(-1)! + 10_000]);
  });

  it("are handed out once only", async () => {
    const [a, b] = two(open());
    const first = slotsOf(await a!.draw(3));
    const second = slotsOf(await b!.draw(2));
    await a!.giveBack([first[1]!]);

    const all = [...slotsOf(await b!.draw(2)), ...slotsOf(await a!.draw(2))];

    expect(new Set([...all, ...second]).size).toBe(all.length + second.length);
  });

  it("are worthless once their time has passed", async () => {
    const pinned = open();
    const [a, b] = two(pinned);
    const first = slotsOf(await a!.draw(3));
    await b!.draw(1);
    await a!.giveBack([first[1]!]);
    pinned.clock.advanceMs(500);

    const slots = slotsOf(await b!.draw(2));

    expect(slots[0]).toBe(pinned.clock.nowUs());
  });

  it("are worthless under another policy", async () => {
    const pinned = open();
    const [a] = two(pinned);
    const first = slotsOf(await a!.draw(3));
    const slower = compilePolicy("test", { rate: "50/s" });
    const c = createAsker(pinned.store, { bucket: "b", name: "c", policy: slower });
    const changed = slotsOf(await c.draw(1));

    await a!.giveBack([first[2]!, first[1]!]);

    expect(slotsOf(await c.draw(1))).toEqual([changed[0]! + 20_000]);
  });
});
