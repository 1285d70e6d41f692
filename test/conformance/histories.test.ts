import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { compilePolicy } from "../../src/core/policy.ts";
import type { DrawReply, Store } from "../../src/core/store.ts";
import { createMemoryStore } from "../../src/memory/memory-store.ts";
import { createManualClock } from "../../src/testing/manual-clock.ts";
import { createAsker, slotsOf, type Asker } from "../support/asker.ts";
import { createPinnedRedisStore } from "../support/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const rate = fc
  .record({
    calls: fc.integer({ min: 1, max: 20_000 }),
    per: fc.constantFrom("1s", "3s", "1min", "1h"),
  })
  .map(({ calls, per }) => ({ calls, per }));
const policy = fc
  .record({ rate, burst: fc.integer({ min: 1, max: 40 }) })
  .map((options) => compilePolicy("test", options));

const step = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant("draw" as const),
      asker: fc.nat(3),
      wanted: fc.integer({ min: 1, max: 300 }),
      cost: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("wait" as const),
      us: fc.oneof(fc.nat(2_000), fc.nat(60_000), fc.nat(3_000_000)),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("giveBack" as const),
      asker: fc.nat(3),
      count: fc.nat(20),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("stepBack" as const), us: fc.nat(20_000_000) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget" as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface Bench {
  readonly store: Store;
  readonly askers: readonly Asker[];
  readonly forget: () => Promise<void>;
}

/** What one store answers to one step, in full. */
async function take({ askers, forget }: Bench, given: Step): Promise<DrawReply | string> {
  if (given.do === "forget") {
    await forget();
    return "forgotten";
  }
  if (given.do === "draw") {
    const asker = askers[given.asker]!;
    return asker.draw(given.wanted, given.cost).catch((error: Error) => refusal(error));
  }
  if (given.do === "giveBack") {
    const asker = askers[given.asker]!;
    const slots = asker.last === undefined ? [] : slotsOf(asker.last);
    await asker.giveBack(slots.toReversed().slice(0, given.count));
  }
  return "done";
}

function refusal(error: Error): string {
  const isTooLarge =
    error.name === "CostTooLargeError" ||
    /^SLUICE_COST_TOO_LARGE|^SLUICE_BAD_ARGUMENT/.test(error.message);
  return isTooLarge ? "cost too large" : error.message;
}

it("answers every random history in Redis and in memory with the same numbers", async () => {
  const policies = fc.array(policy, { minLength: 4, maxLength: 4 });
  const isShared = fc.boolean();
  const history = fc.array(step, { minLength: 1, maxLength: 60 });

  await fc.assert(
    fc.asyncProperty(policies, isShared, history, async (given, shared, steps) => {
      const clock = createManualClock();
      const prefix = `t${randomUUID()}`;
      const inMemory = createMemoryStore(clock.nowUs);
      const inRedis = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });
      const bucket = "b";
      const askersOf = (store: Store): Asker[] =>
        given.map((each, index) =>
          createAsker(store, { bucket, name: `r${index}`, policy: shared ? given[0]! : each }),
        );
      const memory = {
        store: inMemory,
        askers: askersOf(inMemory),
        forget: () => inMemory.close(),
      };
      const forgetKeys = async (): Promise<void> => {
        await redis.del(`${prefix}:{b}:state`, `${prefix}:{b}:turns`, `${prefix}:{b}:holes`);
      };
      const shipped = { store: inRedis, askers: askersOf(inRedis), forget: forgetKeys };

      for (const each of steps) {
        if (each.do === "wait") clock.advanceMs(each.us / 1_000);
        if (each.do === "stepBack") clock.set(clock.nowUs() - each.us);

        expect(await take(shipped, each)).toEqual(await take(memory, each));
      }
      await forgetKeys();
    }),
    { numRuns: 1_500 },
  );
});
