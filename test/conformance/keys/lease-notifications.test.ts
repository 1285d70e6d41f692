import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { concurrency } from "../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { wakeChannel } from "../../../src/stores/redis/scripts/bucket/leases.ts";
import { createNotifications } from "../../../src/stores/redis/pubsub.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica, policyOf } from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const policy = policyOf({ limits: [concurrency(2)], perKey: { concurrency: 1 } });

/** One waits for the lease of a key, and maybe for one of those that all share, and both are given back together. */
async function giveBackTo(store: Store, alsoWaitsForOthers: boolean): Promise<void> {
  const [holder, waiter] = ["h", "x"].map((name) =>
    createTestReplica(store, { bucket: "b", name, policy }),
  );
  const drawFor = (key: string) => ({ wanted: 1, key });
  await holder!.drawAll([drawFor("acme")]);
  await waiter!.drawAll([drawFor("acme")]);
  if (alsoWaitsForOthers) {
    await holder!.drawAll([drawFor("other")]);
    await waiter!.drawAll([drawFor("bolt")]);
  }
  await holder!.release([1], "acme");
}

describe("a caller that waits for a lease is notified which lease is free", () => {
  const OF_KEY = ["b", "lease", "acme"];
  const NEWS = [
    [false, [OF_KEY]],
    [true, [["b", "lease", undefined], OF_KEY]],
  ] as const;

  it.each(NEWS)("in memory, also if keys share the lease: %j", async (alsoOthers, told) => {
    const store = createMemoryStore(createManualClock().nowUs);
    const news: unknown[] = [];
    store.listen("x", (...each) => news.push(each));

    await giveBackTo(store, alsoOthers);

    expect(news).toEqual(told);
  });

  it.each(NEWS)("in Redis, also if keys share the lease: %j", async (alsoOthers, told) => {
    const redis = new Redis(inject("redisUrl"));
    const prefix = `t${randomUUID()}`;
    const wakeCalls = createNotifications(() => new Redis(inject("redisUrl")), prefix);
    const news: unknown[] = [];
    wakeCalls.listen("x", (...each) => news.push(each));
    await waitUntil(async () => {
      const [, listeners] = await redis.pubsub("NUMSUB", wakeChannel(prefix, "x"));
      return listeners === 1;
    }, "it listens");

    const { nowUs } = createManualClock();
    await giveBackTo(createPinnedRedisStore(redis, { prefix, nowUs }), alsoOthers);
    await waitUntil(() => news.length >= told.length, "it is told");
    wakeCalls.close();
    await redis.quit();

    expect(news).toEqual(told);
  });
});
