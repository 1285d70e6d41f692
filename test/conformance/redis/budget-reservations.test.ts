import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { budget } from "../../../src/core/policy/limit-makers.ts";
import { createManualClock, type ManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { createTestReplica, policyOf, type TestReplica } from "../../support/draws/test-replica.ts";

const DAY_MS = 86_400_000;

describe("reservations of a budget in Redis", () => {
  let redis: Redis;
  let prefix: string;
  let clock: ManualClock;
  let replica: TestReplica;
  beforeAll(() => {
    redis = new Redis(inject("redisUrl"));
  });
  beforeEach(() => {
    prefix = `t${randomUUID()}`;
    clock = createManualClock();
    const limit = budget({ unit: "calls", amount: 1_000, per: "day", reserveMs: 60_000 });
    const store = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });
    replica = createTestReplica(store, {
      bucket: "b",
      name: "a",
      policy: policyOf({ limits: [limit] }),
    });
  });
  afterAll(async () => {
    await redis.quit();
  });

  async function reserve(count: number): Promise<void> {
    for (let each = 0; each < count; each++) {
      await replica.drawAll([{ wanted: 1, settles: true }]);
      clock.advanceMs(1);
    }
  }
  const pttl = (name: string): Promise<number> => redis.pttl(`${prefix}:{b}:${name}:calls:day`);
  async function reservations(): Promise<number> {
    const fields = await redis.hkeys(`${prefix}:{b}:budget:calls:day`);
    return fields.filter((field) => field.startsWith("for ")).length;
  }

  it("that ended are given back a few at a time, although each call fits", async () => {
    await reserve(30);
    clock.advanceMs(60_000);

    await replica.draw(1);
    const left = await reservations();
    await replica.draw(1);

    expect([left, await reservations()]).toEqual([10, 0]);
  });

  it("of an earlier day are given back when a new day begins", async () => {
    await reserve(1);
    clock.advanceMs(DAY_MS);

    await replica.draw(1);

    expect(await reservations()).toBe(0);
  });

  it("keep their ends as long as the ledger has their amounts", async () => {
    await reserve(1);

    expect(Math.abs((await pttl("reserved")) - (await pttl("budget")))).toBeLessThan(1_000);
    expect(await pttl("reserved")).toBeGreaterThan(0);
  });
});
