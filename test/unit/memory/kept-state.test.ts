import { describe, expect, it } from "vitest";
import { concurrency, fixedWindow } from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/sluice/testing/manual-clock.ts";
import { createAsker, policyOf, slotsOf, type Asker } from "../../support/draws/asker.ts";

const MINUTE_MS = 60_000;
const MINUTES = 3 * 60;

/** A bucket with this policy, in a process whose other bucket is used all the time. */
function open(policy: PolicyOptions) {
  const clock = createManualClock();
  const store = createMemoryStore(clock.nowUs);
  const asker = createAsker(store, { bucket: "b", name: "a", policy: policyOf(policy) });
  const other = createAsker(store, { bucket: "o", name: "a", policy: policyOf({ rate: "9/s" }) });
  async function pass(each: () => Promise<unknown> = async () => undefined): Promise<void> {
    for (let minute = 0; minute < MINUTES; minute++) {
      clock.advanceMs(MINUTE_MS / 2);
      await each();
      clock.advanceMs(MINUTE_MS / 2);
      await each();
      await other.draw(1);
    }
  }
  return { asker, pass };
}

const leased = concurrency(1, { leaseMs: MINUTE_MS });
const daily = fixedWindow(5, "1d");

describe("the memory store keeps for three hours, while only another bucket is used,", () => {
  it.each<[string, PolicyOptions, string | undefined]>([
    ["of the bucket", { limits: [leased] }, undefined],
    ["of a key", { rate: "9/s", perKey: { limits: [leased] } }, "k"],
    ["of a key, where all limits are per key", { perKey: { limits: [leased] } }, "k"],
  ])("a lease that is renewed: %s", async (_which, policy, key) => {
    const { asker, pass } = open(policy);
    const slotRequest = key === undefined ? { wanted: 1 } : { wanted: 1, key };
    const drawn = slotsOf(await asker.drawAll([slotRequest])).length;
    const lost: number[] = [];

    await pass(async () => lost.push(...(await asker.renew([1], key))));

    expect([drawn, lost]).toEqual([1, []]);
    expect(slotsOf(await asker.drawAll([slotRequest]))).toEqual([]);
  });

  it.each<[string, PolicyOptions, string | undefined]>([
    ["of the bucket", { limits: [daily] }, undefined],
    ["of a key", { rate: "9/s", burst: 9, perKey: { limits: [daily] } }, "k"],
    ["of a key, where all limits are per key", { perKey: { limits: [daily] } }, "k"],
  ])("the usage of a day: %s", async (_which, policy, key) => {
    const { asker, pass } = open(policy);
    const whole = { wanted: 1, cost: 5 };
    await asker.drawAll([key === undefined ? whole : { ...whole, key }]);
    const before = await remaining(asker, key);

    await pass();

    expect(before).toBe(0);
    expect(await remaining(asker, key)).toBe(0);
  });

  it.each([
    ["of the bucket", undefined],
    ["of a key", "k"],
  ])("a pause and a cooldown: %s", async (_which, key) => {
    const { asker, pass } = open({ rate: "9/s", perKey: { rate: "9/s" } });
    const durationUs = 1_000_000_000_000;
    await asker.steer({ do: "pause", durationUs }, key);
    await asker.steer({ do: "cool", durationUs, rampUs: 1, slotUs: 2 ** 52 }, key);
    const before = await asker.peek(key);

    await pass();

    const after = await asker.peek(key);
    expect(after.pausedUntilUs).toBe(before.pausedUntilUs);
    expect(after.coolUntilUs).toBe(before.coolUntilUs);
    expect(after.pausedUntilUs).toBeGreaterThan(after.nowUs);
  });

  it("a policy that an operator configured", async () => {
    const { asker, pass } = open({ rate: "9/s" });
    await asker.steer({ do: "configure", source: "override", doesYield: false });

    await pass();

    expect((await asker.peek()).source).toBe("override");
  });
});

async function remaining(asker: Asker, key: string | undefined): Promise<number> {
  return (await asker.peek(key)).statuses.at(-1)!.remaining;
}
