import { setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { concurrency } from "../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { collectGarbage } from "../../support/garbage.ts";

const US = 1_000_000;

describe("a memory store", () => {
  it("is garbage after its last run, once its owner drops it", async () => {
    const dropped = await drawOnce();
    await setImmediate();

    collectGarbage();

    expect(dropped.deref()).toBeUndefined();
  });

  it("notifies listeners of a change after the script, so that they may draw and change at once", async () => {
    const store = createMemoryStore(createManualClock().nowUs);
    const [steering, listening] = ["s", "l"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy: policyOf({ rate: "10/s" }) }),
    ) as [TestReplica, TestReplica];
    const inWake: Promise<unknown>[] = [];
    store.listen("l", () => {
      if (inWake.length === 0) {
        inWake.push(listening.draw(1), listening.steer({ do: "pause", durationUs: 2 * US }));
      }
    });

    const steered = steering.steer({ do: "pause", durationUs: US });
    const wakesInRun = inWake.length;
    await steered;
    await Promise.all(inWake);

    const { nowUs, pausedUntilUs } = await steering.peek();
    expect([wakesInRun, inWake.length]).toEqual([0, 2]);
    expect(listening.last!.closedUntilUs - nowUs).toBe(US);
    expect(pausedUntilUs - nowUs).toBe(2 * US);
  });

  it("wakes all that wait for leases, even if the first one releases in its wake", async () => {
    const clock = createManualClock();
    const store = createMemoryStore(clock.nowUs);
    const policy = policyOf({ limits: [concurrency(2)] });
    const [holder, first, second] = ["h", "x", "y"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy }),
    ) as [TestReplica, TestReplica, TestReplica];
    for (const replica of [holder, holder, first, second]) {
      await replica.draw(1);
      clock.advanceMs(10);
    }
    const woken: string[] = [];
    const inWake: Promise<unknown>[] = [];
    store.listen("x", () => {
      woken.push("x");
      inWake.push(first.draw(1), first.release([1]));
    });
    store.listen("y", () => {
      woken.push("y");
      inWake.push(second.draw(1));
    });

    await holder.release([1, 2]);
    await Promise.all(inWake);

    expect(woken.slice(0, 2)).toEqual(["x", "y"]);
    expect([first, second].map(({ last }) => slotsOf(last!).length)).toEqual([1, 1]);
  });
});

/** Draws from a store that nothing refers to afterwards, and returns its clock. */
async function drawOnce(): Promise<WeakRef<() => number>> {
  const clock = createManualClock();
  const nowUs = (): number => clock.nowUs();
  const store = createMemoryStore(nowUs);
  await createTestReplica(store, {
    bucket: "b",
    name: "a",
    policy: policyOf({ rate: "9/s" }),
  }).draw(1);
  return new WeakRef(nowUs);
}
