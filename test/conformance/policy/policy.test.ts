import { describe, expect, it } from "vitest";
import { slidingLog } from "../../../src/core/policy/limit-makers.ts";
import type { Policy } from "../../../src/core/policy/policy.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const fast = policyOf({ rate: "100/s" });
const slow = policyOf({ rate: "20/s" });

describe.each(storeKinds())("the policy of a bucket in $name", ({ open }) => {
  it("is the one that was declared last, for all replicas", async () => {
    const { store, clock } = open();
    const older = createTestReplica(store, { bucket: "b", name: "older", policy: fast });
    const newer = createTestReplica(store, { bucket: "b", name: "newer", policy: slow });
    await older.draw(1);
    clock.advanceMs(5_000);

    const declared = await newer.draw(1);
    const learned = await older.draw(1);
    const follower = createTestReplica(store, { bucket: "b", name: "older", policy: slow });
    const followed = await follower.draw(1);

    expect(slotsOf(learned)).toEqual([]);
    expect(slotsOf(followed)[0]! - slotsOf(declared)[0]!).toBe(50_000);
    expect(declared.newText).toBeUndefined();
    expect(learned.newText).toBe(slow.text);
    expect(learned.generation).toBe(declared.generation);
    expect(learned.version).toBe(declared.version);
  });

  it("is not changed by a process that declares the same again", async () => {
    const { store, clock } = open();
    const first = createTestReplica(store, { bucket: "b", name: "first", policy: fast });
    const second = createTestReplica(store, { bucket: "b", name: "second", policy: fast });
    const before = await first.draw(1);
    clock.advanceMs(50);

    const after = await second.draw(1);

    expect(after.generation).toBe(before.generation);
  });

  it("remembers up to twice the old limit of a log when a larger limit replaces it", async () => {
    const { store, clock } = open();
    const startUs = clock.nowUs();
    const few = policyOf({ limits: [slidingLog(5, "1s")] });
    const older = createTestReplica(store, { bucket: "b", name: "older", policy: few });
    for (let second = 0; second < 3; second++) {
      for (let draw = 0; draw < 6; draw++) await older.draw(5);
      clock.advanceMs(1_000);
    }
    const more = policyOf({ limits: [slidingLog(12, "1min")] });
    const newer = createTestReplica(store, { bucket: "b", name: "newer", policy: more });
    clock.advanceMs(1);

    const { granted } = await newer.drawAll([{ wanted: 1, isTry: true }]);

    expect(granted[0]!.statuses[0]!.nextUs - startUs).toBe(61_000_000);
  });

  it("keeps booked slots when the rate falls, and spaces later ones by the new rate", async () => {
    const { store } = open();
    const older = createTestReplica(store, { bucket: "b", name: "older", policy: fast });
    const newer = createTestReplica(store, { bucket: "b", name: "newer", policy: slow });
    const booked = slotsOf(await older.draw(5));

    const slots = slotsOf(await newer.draw(1));

    expect(slots).toEqual([booked[4]! + 50_000]);
  });

  it("is restored from the newest policy of a replica after the state was lost", async () => {
    const { store, clock } = open();
    const older = createTestReplica(store, { bucket: "b", name: "older", policy: fast });
    const newer = createTestReplica(store, { bucket: "b", name: "newer", policy: slow });
    await older.draw(1);
    clock.advanceMs(1_000);
    const declared = await newer.draw(1);

    const fresh = open();
    fresh.clock.set(clock.nowUs());
    const survivorOf = (name: string, policy: Policy, version: number): TestReplica =>
      createTestReplica(fresh.store, { bucket: "b", name, policy, version });
    const stale = survivorOf("older", fast, declared.version - 1_000_000);
    await stale.draw(1);
    await survivorOf("newer", slow, declared.version).draw(1);
    const answer = await stale.draw(1);

    expect(answer.newText).toBe(slow.text);
    expect(answer.version).toBe(declared.version);
  });
});
