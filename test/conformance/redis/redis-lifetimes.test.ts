import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import {
  budget,
  concurrency,
  slidingLog,
  type BudgetOptions,
} from "../../../src/core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import type { Change } from "../../../src/core/store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica, policyOf, type TestReplica } from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const HOUR_MS = 3_600_000;
const MONTH_MS = 720 * HOUR_MS;
const HOUR_US = 3_600_000_000;
const cut = { do: "cut", factor: 500, floor: 1, durationUs: 0, slotUs: 2 ** 52 } as const;
const cool = { do: "cool", rampUs: 0, slotUs: 2 ** 52 } as const;
const slowKeys = { rate: "100/s", perKey: { rate: "1/h" } };
const DAY_MS = 24 * HOUR_MS;
const startMs = createManualClock().nowUs() / 1_000;
const toMidnight = DAY_MS - (startMs % DAY_MS);
const budgetOf = (given: Partial<BudgetOptions>): PolicyOptions => ({
  limits: [budget({ unit: "calls", amount: 10, per: "day", ...given })],
});
const alone = { perKey: { rate: "1/h" } };

/** What was done to a bucket of a policy, a key of it, and for how long that is kept then. */
const CASES: [string, PolicyOptions, (replica: TestReplica) => Promise<unknown>, string, number][] =
  [
    ["a bucket that was drawn from", { rate: "100/s" }, drawn, "state", HOUR_MS],
    ["a bucket that was drawn from twice", { rate: "100/s" }, drawnTwice, "state", HOUR_MS],
    ["a bucket with a debt", { rate: "1/h" }, drawn, "state", 2 * HOUR_MS],
    ["a bucket with a debt, drawn from twice", { rate: "1/h" }, drawnTwice, "state", 2 * HOUR_MS],
    ["a configured bucket", { rate: "100/s" }, configured(drawn), "state", MONTH_MS],
    [
      "a configured bucket that was drawn from twice",
      { rate: "100/s" },
      configured(drawnTwice),
      "state",
      MONTH_MS,
    ],
    ["a configured bucket that was tried", alone, configured(tried), "state", MONTH_MS],
    ["a bucket that was tried", alone, tried, "state", HOUR_MS],
    [
      "a paused bucket",
      { rate: "100/s" },
      steered({ do: "pause", durationUs: HOUR_US }),
      "state",
      MONTH_MS,
    ],
    [
      "a bucket in a cooldown",
      { rate: "100/s" },
      steered({ ...cool, durationUs: 2 * HOUR_US }),
      "state",
      3 * HOUR_MS,
    ],
    [
      "a bucket with a gap",
      { rate: "100/s" },
      steered({ do: "space", gapUs: 9, durationUs: 2 * HOUR_US }),
      "state",
      3 * HOUR_MS,
    ],
    [
      "a bucket that was cut",
      { rate: "100/s" },
      steered({ ...cut, recoverUs: 2 * HOUR_US }),
      "state",
      3 * HOUR_MS,
    ],
    ["a key with a debt", slowKeys, drawn, "key:k:state", HOUR_MS],
    ["a key with a debt of a try", alone, tried, "key:k:state", HOUR_MS],
    [
      "a paused key",
      slowKeys,
      steered({ do: "pause", durationUs: 2 * HOUR_US }, "k"),
      "key:k:state",
      2 * HOUR_MS,
    ],
    [
      "a key paused for good",
      slowKeys,
      steered({ do: "pause", durationUs: 2 ** 51 }, "k"),
      "key:k:state",
      MONTH_MS,
    ],
    ["a budget", budgetOf({}), drawn, "budget:calls:day", toMidnight + DAY_MS],
    [
      "a budget that carries up to 2.5 days over",
      budgetOf({ carryOver: { max: 25 } }),
      drawn,
      "budget:calls:day",
      toMidnight + 6 * DAY_MS,
    ],
    [
      "a budget that carries everything over",
      budgetOf({ carryOver: true }),
      drawn,
      "budget:calls:day",
      toMidnight + 101 * DAY_MS,
    ],
    ["a log", { limits: [slidingLog(5, "1h")] }, drawn, "log:0", HOUR_MS],
    [
      "a lease",
      { limits: [concurrency(5, { leaseMs: HOUR_MS / 6 })] },
      drawn,
      "leases:0",
      HOUR_MS / 6,
    ],
    [
      "a lease that was renewed",
      { limits: [concurrency(5, { leaseMs: HOUR_MS / 6 })] },
      renewed,
      "leases:0",
      HOUR_MS / 6,
    ],
    [
      "a turn",
      { rate: "1/h" },
      (replica) => replica.drawAll([{ wanted: 3, key: "k" }]),
      "turns",
      500,
    ],
  ];

function drawn(replica: TestReplica): Promise<unknown> {
  return replica.drawAll([{ wanted: 1, key: "k" }]);
}
async function drawnTwice(replica: TestReplica): Promise<void> {
  await replica.draw(1);
  await replica.draw(1);
}
async function renewed(replica: TestReplica): Promise<void> {
  await replica.draw(1);
  await replica.renew([1]);
}
function tried(replica: TestReplica): Promise<unknown> {
  return replica.drawAll([{ wanted: 1, key: "k", isTry: true }]);
}
function configured(then: (replica: TestReplica) => Promise<unknown>) {
  return async (replica: TestReplica): Promise<void> => {
    await replica.steer({ do: "configure", source: "override", doesYield: false });
    await then(replica);
  };
}
function steered(change: Change, key?: string) {
  return async (replica: TestReplica): Promise<void> => {
    await replica.drawAll([{ wanted: 1, key: "k" }]);
    await replica.steer(change, key);
  };
}

it.each(CASES)(
  "%s is kept for as long as it matters, and about a minute more",
  async (_what, policy, use, name, ms) => {
    const prefix = `t${randomUUID()}`;
    const clock = createManualClock();
    const store = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });

    await use(createTestReplica(store, { bucket: "b", name: "a", policy: policyOf(policy) }));

    const lifeMs = await redis.pttl(`${prefix}:{b}:${name}`);
    expect(lifeMs).toBeGreaterThan(ms - 10_000);
    expect(lifeMs).toBeLessThan(ms + 120_000);
  },
);
