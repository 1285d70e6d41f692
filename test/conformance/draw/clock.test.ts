import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import { createTestReplica, policyOf, type TestReplica } from "../../support/draws/test-replica.ts";
import { mostIn } from "../../support/draws/bounds.ts";
import { simulateParties } from "../../support/draws/simulate.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const SECOND_US = 1_000_000;
const MIXES = {
  "leaky bucket and log": { limits: [leakyBucket("100/s", { burst: 5 }), slidingLog(90, "1s")] },
  "token bucket and windows": {
    limits: [
      tokenBucket({ capacity: 10, refill: "100/s" }),
      slidingWindow(100, "1s"),
      fixedWindow(100, "1s"),
    ],
  },
  "a rate, per key too": { rate: "100/s", perKey: { rate: "60/s", burst: 3 } },
  "a rate and many leases": { limits: [leakyBucket("100/s"), concurrency(100_000)] },
};
/** The most that any second may see, when clocks stand still in between. */
const MOST = 110;

describe.each(storeKinds())("the server's clock of $name", ({ open }) => {
  const partiesOf = ({ store }: PinnedStore, policy: ReturnType<typeof policyOf>) =>
    ["a", "b"].map((name) => ({
      replica: createTestReplica(store, { bucket: "b", name, policy }) as TestReplica,
      slotRequests: ["x", "y"].map((key) => ({ key, wanted: 20 })),
    }));

  it.each(Object.entries(MIXES))(
    "may step back by ten seconds: no burst, and no stall (%s)",
    async (_name, options) => {
      const pinned = open();
      const parties = partiesOf(pinned, policyOf(options));
      const before = await simulateParties(pinned, parties, 3_000);
      const lastUs = Math.max(...before.map(({ slotUs }) => slotUs));

      pinned.clock.advanceMs(-10_000);
      const after = await simulateParties(pinned, parties, 3_000);

      const passed = [...before, ...after].map(({ slotUs }) => ({ slotUs, cost: 1 }));
      const firstUs = Math.min(...after.map(({ slotUs }) => slotUs));
      expect(mostIn(passed, SECOND_US)).toBeLessThanOrEqual(MOST);
      // The bucket's own clock goes on from where it was.
      expect(firstUs).toBeGreaterThanOrEqual(lastUs - 100_000);
      expect(firstUs - lastUs).toBeLessThanOrEqual(SECOND_US);
      expect(after.length).toBeGreaterThanOrEqual(0.85 * before.length);
    },
  );

  it.each(Object.entries(MIXES))(
    "may jump an hour ahead and back again: no burst, and no stall (%s)",
    async (_name, options) => {
      const pinned = open();
      const parties = partiesOf(pinned, policyOf(options));
      const before = await simulateParties(pinned, parties, 2_000);

      pinned.clock.advanceMs(3_600_000);
      const ahead = await simulateParties(pinned, parties, 2_000);
      pinned.clock.advanceMs(-3_600_000);
      const after = await simulateParties(pinned, parties, 2_000);

      const passed = [...before, ...ahead, ...after].map(({ slotUs }) => ({ slotUs, cost: 1 }));
      expect(mostIn(passed, SECOND_US)).toBeLessThanOrEqual(MOST);
      expect(ahead.length).toBeGreaterThanOrEqual(0.85 * before.length);
      expect(after.length).toBeGreaterThanOrEqual(0.85 * before.length);
    },
  );

  it("may jump during a draw: the lease still lasts for its normal time", async () => {
    const pinned = open();
    const policy = policyOf({ limits: [concurrency(1, { leaseMs: 5_000 })] });
    const [holder, waiter] = ["a", "b"].map((name) =>
      createTestReplica(pinned.store, { bucket: "b", name, policy }),
    );
    await holder!.draw(1);
    pinned.clock.advanceMs(-10_000);
    const early = await waiter!.draw(1);
    pinned.clock.advanceMs(5_000);
    const late = await waiter!.draw(1);

    expect(early.granted[0]!.slotsUs).toHaveLength(0);
    expect(late.granted[0]!.slotsUs).toHaveLength(1);
  });

  it("does not advance with a rejected try", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "1/s" });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    const { nowUs } = await replica.draw(1);
    pinned.clock.advanceMs(500);
    const refused = await replica.drawAll([{ wanted: 1, isTry: true }]);

    pinned.clock.set(nowUs + 200_000);

    expect(refused.granted[0]!.run).toBeUndefined();
    expect((await replica.peek()).nowUs).toBe(nowUs + 200_000);
  });
});

describe("the clock of a bucket that no test pins", () => {
  let redis: Redis;
  beforeAll(() => {
    redis = new Redis(inject("redisUrl"));
  });
  afterAll(() => redis.disconnect());

  async function serverUs(): Promise<number> {
    const [seconds, us] = await redis.time();
    return Number(seconds) * SECOND_US + Number(us);
  }

  it.each(["draw", "try"] as const)(
    "is that of the server, to the microsecond (%s)",
    async (kind) => {
      const store = createPinnedRedisStore(redis, { prefix: randomUUID(), nowUs: () => 0 });
      const policy = policyOf({ perKey: { rate: "1000/s" } });
      const replica = createTestReplica(store, { bucket: "b", name: "a", policy });

      // Several, since the microseconds of one may be too few to tell a wrong sum.
      for (let draws = 0; draws < 5; draws += 1) {
        const beforeUs = await serverUs();
        const { nowUs } = await replica.drawAll([{ key: "k", wanted: 1, isTry: kind === "try" }]);
        const afterUs = await serverUs();

        expect(nowUs).toBeGreaterThanOrEqual(beforeUs);
        expect(nowUs).toBeLessThanOrEqual(afterUs);
      }
    },
  );
});
