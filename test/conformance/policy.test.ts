import { describe, expect, it } from "vitest";
import { compilePolicy } from "../../src/core/policy.ts";
import { createAsker, slotsOf } from "../support/asker.ts";
import { storeKinds } from "../support/store-kinds.ts";

const fast = compilePolicy("test", { rate: "100/s" });
const slow = compilePolicy("test", { rate: "20/s" });

describe.each(storeKinds())("the policy of a bucket in $name", ({ open }) => {
  it("is the one that was declared last, for all askers", async () => {
    const { store, clock } = open();
    const older = createAsker(store, { bucket: "b", name: "older", policy: fast });
    const newer = createAsker(store, { bucket: "b", name: "newer", policy: slow });
    await older.draw(1);
    clock.advanceMs(5_000);

    const declared = await newer.draw(1);
    const learned = await older.draw(1);

    expect(declared.policy).toEqual(slow);
    expect(learned.policy).toEqual(slow);
    expect(learned.generation).toBe(declared.generation);
    expect(slotsOf(learned)[0]! - slotsOf(declared)[0]!).toBe(50_000);
  });

  it("is not changed by a process that declares the same again", async () => {
    const { store, clock } = open();
    const first = createAsker(store, { bucket: "b", name: "first", policy: fast });
    const second = createAsker(store, { bucket: "b", name: "second", policy: fast });
    const before = await first.draw(1);
    clock.advanceMs(50);

    const after = await second.draw(1);

    expect(after.generation).toBe(before.generation);
  });

  it("keeps what was booked where it was when the rate falls, and spaces the rest anew", async () => {
    const { store } = open();
    const older = createAsker(store, { bucket: "b", name: "older", policy: fast });
    const newer = createAsker(store, { bucket: "b", name: "newer", policy: slow });
    const booked = slotsOf(await older.draw(5));

    const slots = slotsOf(await newer.draw(1));

    expect(slots).toEqual([booked[4]! + 50_000]);
  });

  it("is restored from what askers know when the state is lost, newest first", async () => {
    const { store, clock } = open();
    const older = createAsker(store, { bucket: "b", name: "older", policy: fast });
    const newer = createAsker(store, { bucket: "b", name: "newer", policy: slow });
    await older.draw(1);
    clock.advanceMs(1_000);
    const declared = await newer.draw(1);

    const fresh = open();
    fresh.clock.set(clock.nowUs());
    const known = { bucket: "b", wanted: 1, cost: 1, horizonUs: 100_000, drewUs: 0, turnUs: 0 };
    const stale = { policy: fast, generation: declared.generation - 1_000_000 };
    await fresh.store.draw({ ...known, asker: "older", ...stale });
    await fresh.store.draw({
      ...known,
      asker: "newer",
      policy: slow,
      generation: declared.generation,
    });
    const answer = await fresh.store.draw({ ...known, asker: "older", ...stale });

    expect(answer.policy).toEqual(slow);
    expect(answer.generation).toBe(declared.generation);
  });
});
