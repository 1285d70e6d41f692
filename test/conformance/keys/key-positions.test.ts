import { describe, expect, it } from "vitest";
import { leakyBucket } from "../../../src/core/policy/limit-makers.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
  type Wanted,
} from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const ROUNDS = 20;
const KEY = { wanted: 1, key: "acme" };

describe.each(storeKinds())("the position of a key in $name", ({ open }) => {
  it.each<[string, readonly Wanted[]]>([
    [
      "priorities",
      [
        { ...KEY, priority: "high" },
        { ...KEY, priority: "low" },
      ],
    ],
    ["costs", [KEY, { ...KEY, cost: 2 }]],
  ])(
    "counts once, so that a replica with several %s leaves others their turn",
    async (_of, slotRequests) => {
      const pinned = open();
      const limits = [leakyBucket("1000/s", { burst: 9 })];
      const policy = policyOf({ limits, perKey: { concurrency: 1 } });
      const [many, one] = ["many", "one"].map((name) =>
        createTestReplica(pinned.store, { bucket: "b", name, policy }),
      ) as [TestReplica, TestReplica];
      const served = new Map([
        [many, 0],
        [one, 0],
      ]);

      for (let round = 0; round < ROUNDS; round++) {
        for (const [replica, wanted] of [[many, slotRequests] as const, [one, [KEY]] as const]) {
          const { lease } = replica;
          const reply = await replica.drawAll(wanted);
          pinned.clock.advanceMs(20);
          if (!wanted.some((_wish, index) => slotsOf(reply, index).length > 0)) continue;
          served.set(replica, served.get(replica)! + 1);
          await replica.release([lease], "acme");
        }
      }

      expect(served.get(one)!).toBeGreaterThanOrEqual(ROUNDS / 4);
      expect(served.get(many)!).toBeGreaterThanOrEqual(ROUNDS / 4);
    },
  );

  it("is that of its first call, so that a new call waits behind all earlier ones", async () => {
    const pinned = open();
    const policy = policyOf({ perKey: { concurrency: 3 } });
    const [holder, first, second] = ["holder", "first", "second"].map((name) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy }),
    ) as [TestReplica, TestReplica, TestReplica];
    const slotRequests: readonly Wanted[] = [
      { ...KEY, wanted: 2, priority: "high" },
      { ...KEY, priority: "normal" },
    ];
    await holder.drawAll([{ ...KEY, wanted: 3 }]);
    pinned.clock.advanceMs(10);
    await first.drawAll(slotRequests);
    pinned.clock.advanceMs(10);
    await second.drawAll([KEY]);
    pinned.clock.advanceMs(10);
    await holder.release([1, 2, 3], "acme");

    const reply = await first.drawAll(slotRequests);
    const after = await second.drawAll([KEY]);

    // A share of three is one; the call that is left of the first slot request is more urgent than the newcomer's.
    const counts = [slotsOf(reply, 0), slotsOf(reply, 1), slotsOf(after)].map((all) => all.length);
    expect(counts).toEqual([1, 1, 0]);
  });
});
