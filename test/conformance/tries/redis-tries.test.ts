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
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type Wanted,
} from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const unit = "tokens";
const llm = {
  limits: [
    leakyBucket("500/min"),
    leakyBucket("90000/min", { unit, burst: 4_000 }),
    concurrency(25),
  ],
};
/** Policies with what uses one of their limits up, and a call that has no room then. */
const CASES: Readonly<Record<string, [PolicyOptions, Wanted, Wanted]>> = {
  "calls, tokens and leases; tokens": [
    llm,
    { wanted: 1, cost: { tokens: 4_000 } },
    { wanted: 1, cost: { tokens: 3_500 } },
  ],
  "calls, tokens and leases; leases": [
    { limits: [concurrency(1), leakyBucket("500/s")] },
    { wanted: 1 },
    { wanted: 1 },
  ],
  "a log": [{ limits: [slidingLog(3, "1h")] }, { wanted: 1, cost: 3 }, { wanted: 1 }],
  "a window": [{ limits: [slidingWindow(3, "1h")] }, { wanted: 1, cost: 3 }, { wanted: 1 }],
  "a day": [{ limits: [fixedWindow(3, "1d")] }, { wanted: 1, cost: 3 }, { wanted: 1 }],
  tokens: [
    { limits: [tokenBucket({ capacity: 3, refill: "1/h" })] },
    { wanted: 1, cost: 3 },
    { wanted: 1 },
  ],
  "a key's log beside a rate": [
    { rate: "100/s", perKey: { limits: [slidingLog(1, "1h")] } },
    { wanted: 1, key: "k" },
    { wanted: 1, key: "k" },
  ],
  "a key's lease alone": [
    { perKey: { concurrency: 1 } },
    { wanted: 1, key: "k" },
    { wanted: 1, key: "k" },
  ],
};

function openStore() {
  const prefix = `t${randomUUID()}`;
  const clock = createManualClock();
  const store = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });
  const bytes = async (): Promise<Record<string, string>> => {
    const keys = (await redis.keys(`${prefix}*`)).sort();
    const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
    return Object.fromEntries(keys.map((key, index) => [key, dumps[index]!.toString("hex")]));
  };
  return { prefix, clock, store, bytes };
}

describe("a try in Redis", () => {
  it.each(Object.entries(CASES))(
    "that is refused leaves every byte as it was: %s",
    async (_name, [options, first, second]) => {
      const { store, clock, bytes } = openStore();
      const policy = policyOf(options);
      const holder = createTestReplica(store, { bucket: "b", name: "a", policy });
      const trier = createTestReplica(store, { bucket: "b", name: "b", policy });
      await holder.drawAll([first]);
      await holder.drawAll([second]);
      clock.advanceMs(1_000);
      const before = await bytes();

      const refused = await trier.drawAll([{ ...second, isTry: true }]);

      expect(slotsOf(refused)).toEqual([]);
      expect(refused.granted[0]!.bindsAt).toBeGreaterThan(0);
      expect(await bytes()).toEqual(before);
    },
  );

  it("writes nothing for a key that rejects it, although another key granted it", async () => {
    const { store, bytes } = openStore();
    const policy = policyOf({ rate: "1/s", perKey: { rate: "1/s" } });
    const trier = createTestReplica(store, { bucket: "b", name: "b", policy });

    const reply = await trier.drawAll(
      ["first", "second"].map((key) => ({ key, wanted: 1, isTry: true })),
    );

    expect([0, 1].map((slotRequest) => slotsOf(reply, slotRequest).length)).toEqual([1, 0]);
    expect(Object.keys(await bytes()).filter((name) => name.includes(":key:second"))).toEqual([]);
  });

  it("is booked like a draw if it is granted", async () => {
    const { store, bytes, clock } = openStore();
    const policy = policyOf({ limits: [leakyBucket("10/s"), slidingLog(1, "1h")] });
    const trier = createTestReplica(store, { bucket: "b", name: "b", policy });

    const granted = await trier.drawAll([{ wanted: 1, isTry: true }]);
    const refused = await trier.drawAll([{ wanted: 1, isTry: true }]);

    expect(slotsOf(granted)).toEqual([clock.nowUs()]);
    expect(slotsOf(refused)).toEqual([]);
    expect(Object.keys(await bytes())).toHaveLength(2);
  });

  it("returns the state of each limit if it is granted", async () => {
    const { store } = openStore();
    const policy = policyOf(llm);
    const trier = createTestReplica(store, { bucket: "b", name: "b", policy });

    const { granted } = await trier.drawAll([{ wanted: 1, cost: { tokens: 1_500 }, isTry: true }]);

    expect(granted[0]!.statuses.map(({ remaining }) => remaining)).toEqual([0, 2_500, 24]);
  });
});

describe("the Redis keys of several limits", () => {
  it("each expire by themselves: states, logs, leases, waiters, turns and holes", async () => {
    const { store, prefix } = openStore();
    const perKey = { limits: [slidingLog(9, "1s"), concurrency(1)] };
    const policy = policyOf({
      limits: [leakyBucket("100/s"), slidingLog(60, "1s"), concurrency(3)],
      perKey,
    });
    const replicas = ["a", "b", "c"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy }),
    );
    for (const replica of replicas) {
      const reply = await replica.drawAll(["x", "y"].map((key) => ({ key, wanted: 9 })));
      await replica.settle(reply.nowUs, { calls: 1 }, "x");
      await replica.renew([1, 2]);
    }
    await replicas[0]!.release([2], "y");
    await replicas[1]!.steer({ do: "pause", durationUs: 1_000_000 }, "z");
    await replicas[2]!.steer({ do: "pause", durationUs: 1_000_000 });

    const keys = await redis.keys(`${prefix}*`);
    const lives = await Promise.all(keys.map((key) => redis.pttl(key)));

    const names = keys.map((key) => key.slice(prefix.length + 5)).sort();
    expect(names).toEqual(
      expect.arrayContaining([
        "state",
        "log:1",
        "leases:0",
        "key:x:state",
        "key:x:log:0",
        "key:x:leases:0",
        "key:x:waiters:0",
        "key:z:state",
      ]),
    );
    expect(names.some((name) => name.includes("waiters"))).toBe(true);
    expect(Math.min(...lives)).toBeGreaterThan(0);
  });

  it("each expire by themselves after a return, a renewal or a settlement", async () => {
    const { store, prefix, clock } = openStore();
    const policy = policyOf({ rate: "100/s", perKey: { limits: [slidingLog(90, "1s")] } });
    const [a, b] = ["a", "b"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy }),
    );
    const slots = slotsOf(await a!.drawAll([{ key: "x", wanted: 5 }]));
    await b!.drawAll([{ key: "x", wanted: 5 }]);
    await a!.giveBack(slots.slice(1).toReversed(), 1, "x");
    await a!.settle(clock.nowUs(), { calls: 5 }, "x");

    const keys = await redis.keys(`${prefix}*`);
    const lives = await Promise.all(keys.map((key) => redis.pttl(key)));

    expect(keys.some((key) => key.endsWith(":holes"))).toBe(true);
    expect(Math.min(...lives)).toBeGreaterThan(0);
  });

  it("are gone about a minute after an idle key has drained", async () => {
    const { store, prefix } = openStore();
    const policy = policyOf({ rate: "10000/s", perKey: { rate: "1/s" } });
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });

    await replica.drawAll([{ key: "x", wanted: 1 }]);

    const lifeMs = await redis.pttl(`${prefix}:{b}:key:x:state`);
    expect(lifeMs).toBeGreaterThanOrEqual(1_000);
    expect(lifeMs).toBeLessThanOrEqual(62_000);
  });
});
