import { describe, expect, it } from "vitest";
import { boundBy, PAUSED } from "../../../src/core/store.ts";
import { concurrency, leakyBucket, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import { createTestReplica, policyOf } from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const SECOND_US = 1_000_000;
const [SOON_US, LATE_US] = [10 * SECOND_US, 3_600 * SECOND_US];

describe.each(storeKinds())("a try while a bucket or a key is paused in $name", ({ open }) => {
  it.each([
    ["all leases are held", [concurrency(1)], 1],
    ["what is used comes back sooner", [tokenBucket({ capacity: 1, refill: "1/s" })], 1],
    ["nothing else refuses it", [leakyBucket("100/s")], 0],
  ])("gets the time at which the last pause ends, where %s", async (_where, limits, used) => {
    const policy = policyOf({ limits: [...limits, leakyBucket("1000/s")], perKey: { limits } });
    const replica = createTestReplica(open().store, { bucket: "b", name: "a", policy });
    const attempt = async (): Promise<{ afterUs: number; bindsAt: number }> => {
      const { nowUs, granted } = await replica.drawAll([{ wanted: 1, key: "k", isTry: true }]);
      return { afterUs: granted[0]!.notBeforeUs - nowUs, bindsAt: granted[0]!.bindsAt };
    };
    if (used > 0) await replica.drawAll([{ wanted: used, key: "k" }]);

    await replica.steer({ do: "pause", durationUs: LATE_US }, "k");
    expect(await attempt()).toEqual({ afterUs: LATE_US, bindsAt: boundBy(PAUSED, 1) });
    await replica.steer({ do: "pause", durationUs: SOON_US });
    expect(await attempt()).toEqual({ afterUs: LATE_US, bindsAt: boundBy(PAUSED, 1) });
    await replica.steer({ do: "pause", durationUs: SOON_US }, "k");
    await replica.steer({ do: "pause", durationUs: LATE_US });
    expect(await attempt()).toEqual({ afterUs: LATE_US, bindsAt: PAUSED });
  });

  it("gets the time at which a shared limit or the key's own limit has room after that", async () => {
    const limits = [tokenBucket({ capacity: 1, refill: "1/h" })];
    for (const options of [{ limits }, { rate: "1000/s", perKey: { limits } }]) {
      const replica = createTestReplica(open().store, {
        bucket: "b",
        name: "a",
        policy: policyOf(options),
      });
      await replica.drawAll([{ wanted: 1, key: "k" }]);
      await replica.steer({ do: "pause", durationUs: SOON_US });

      const { nowUs, granted } = await replica.drawAll([{ wanted: 1, key: "k", isTry: true }]);

      expect(granted[0]!.notBeforeUs - nowUs).toBeGreaterThan(LATE_US - 2 * SOON_US);
    }
  });
});
