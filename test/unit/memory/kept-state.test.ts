import { describe, expect, it } from "vitest";
import { concurrency, fixedWindow } from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";

const MINUTE_MS = 60_000;
const MINUTES = 3 * 60;

/** A bucket with this policy, in a process whose other bucket is used all the time. */
function open(policy: PolicyOptions) {
  const clock = createManualClock();
  const store = createMemoryStore(clock.nowUs);
  const replica = createTestReplica(store, { bucket: "b", name: "a", policy: policyOf(policy) });
  const other = createTestReplica(store, {
    bucket: "o",
    name: "a",
    policy: policyOf({ rate: "9/s" }),
  });
  async function pass(each: () => Promise<unknown> = async () => undefined): Promise<void> {
    for (let minute = 0; minute < MINUTES; minute++) {
      clock.advanceMs(MINUTE_MS / 2);
      await each();
      clock.advanceMs(MINUTE_MS / 2);
      await each();
      await other.draw(1);
    }
  }
  return { replica, pass };
}

const leased = concurrency(1, { leaseMs: MINUTE_MS });
const daily = fixedWindow(5, "1d");

describe("the memory store keeps for three hours, while only another bucket is used,", () => {
  it.each<[string, PolicyOptions, string | undefined]>([
    ["of the bucket", { limits: [leased] }, undefined],
    ["of a key", { rate: "9/s", perKey: { limits: [leased] } }, "k"],
    ["of a key, where all limits are per key", { perKey: { limits: [leased] } }, "k"],
  ])("a lease that is renewed: %s", async (_which, policy, key) => {
    const { replica, pass } = open(policy);
    const slotRequest = key === undefined ? { wanted: 1 } : { wanted: 1, key };
    const drawn = slotsOf(await replica.drawAll([slotRequest])).length;
    const lost: number[] = [];

    await pass(async () => lost.push(...(await replica.renew([1], key))));

    expect([drawn, lost]).toEqual([1, []]);
    expect(slotsOf(await replica.drawAll([slotRequest]))).toEqual([]);
  });

  it.each<[string, PolicyOptions, string | undefined]>([
    ["of the bucket", { limits: [daily] }, undefined],
    ["of a key", { rate: "9/s", burst: 9, perKey: { limits: [daily] } }, "k"],
    ["of a key, where all limits are per key", { perKey: { limits: [daily] } }, "k"],
  ])("the usage of a day: %s", async (_which, policy, key) => {
    const { replica, pass } = open(policy);
    const whole = { wanted: 1, cost: 5 };
    await replica.drawAll([key === undefined ? whole : { ...whole, key }]);
    const before = await remaining(replica, key);

    await pass();

    expect(before).toBe(0);
    expect(await remaining(replica, key)).toBe(0);
  });

  it.each([
    ["of the bucket", undefined],
    ["of a key", "k"],
  ])("a pause and a cooldown: %s", async (_which, key) => {
    const { replica, pass } = open({ rate: "9/s", perKey: { rate: "9/s" } });
    const durationUs = 1_000_000_000_000;
    await replica.steer({ do: "pause", durationUs }, key);
    await replica.steer({ do: "cool", durationUs, rampUs: 1, slotUs: 2 ** 52 }, key);
    const before = await replica.peek(key);

    await pass();

    const after = await replica.peek(key);
    expect(after.pausedUntilUs).toBe(before.pausedUntilUs);
    expect(after.coolUntilUs).toBe(before.coolUntilUs);
    expect(after.pausedUntilUs).toBeGreaterThan(after.nowUs);
  });

  it("a policy that an operator configured", async () => {
    const { replica, pass } = open({ rate: "9/s" });
    await replica.steer({ do: "configure", source: "override", doesYield: false });

    await pass();

    expect((await replica.peek()).source).toBe("override");
  });
});

async function remaining(replica: TestReplica, key: string | undefined): Promise<number> {
  return (await replica.peek(key)).statuses.at(-1)!.remaining;
}
