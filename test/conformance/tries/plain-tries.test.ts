import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { fixedWindow, leakyBucket, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { compilePolicy } from "../../../src/core/policy/policy.ts";
import { NO_POSITION, type Change, type KeyScope, type Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica, slotsOf, type TestReplica } from "../../support/draws/test-replica.ts";
import { runScript } from "../../../src/stores/redis/scripts/script.ts";
import { slotsDraw } from "../../../src/stores/redis/scripts/bucket/slots-draw.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const rate = fc
  .record({ count: fc.integer({ min: 1, max: 5_000 }), per: fc.constantFrom("1s", "7s", "1h") })
  .map(({ count, per }) => `${count}/${per}` as const);
const capacity = fc.integer({ min: 3, max: 40 });
/** The kinds that `lua/lib/fast/plain-try-take.lua` knows. */
const limit: fc.Arbitrary<Limit> = fc.oneof(
  fc.tuple(rate, capacity).map(([each, burst]) => leakyBucket(each, { burst })),
  fc.tuple(rate, capacity).map(([refill, most]) => tokenBucket({ capacity: most, refill })),
  fc
    .tuple(capacity, fc.constantFrom("1s" as const, "7s" as const, "1d" as const))
    .map(([most, per]) => fixedWindow(most, per)),
);
const key = fc.constantFrom("a", "b", "c", "d", "e");
const slotRequest = fc.record({
  key,
  wanted: fc.integer({ min: 1, max: 12 }),
  cost: fc.integer({ min: 1, max: 3 }),
});
const us = fc.oneof(fc.nat(2_000), fc.nat(200_000), fc.nat(9_000_000));
const change: fc.Arbitrary<Change> = fc.record({
  do: fc.constant("pause" as const),
  durationUs: us,
});
const replica = fc.nat(1);
const step = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      do: fc.constant("try" as const),
      replica,
      slotRequests: fc.uniqueArray(slotRequest, {
        minLength: 1,
        maxLength: 5,
        selector: (each) => each.key,
      }),
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("wait" as const), us }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("draw" as const), replica, slotRequest }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("twice" as const), replica, slotRequest }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      replica,
      key,
      delta: fc.integer({ min: -2, max: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("giveBack" as const), replica, key }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("steer" as const), replica, key, change }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("stepBack" as const), us }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

async function take(replicas: readonly TestReplica[], given: Step): Promise<unknown> {
  if (given.do === "wait" || given.do === "stepBack") return undefined;
  const own = replicas[given.replica]!;
  const atUs = own.last?.nowUs ?? 0;
  switch (given.do) {
    case "try":
      return own.drawAll(given.slotRequests.map((each) => ({ ...each, isTry: true })));
    case "twice":
      return own.drawAll([given.slotRequest, { ...given.slotRequest, cost: 1 }].map(asTry));
    case "draw":
      return own.drawAll([given.slotRequest]);
    case "settle":
      return atUs === 0 ? undefined : own.settle(atUs, { calls: given.delta }, given.key);
    case "giveBack": {
      const slots = own.last === undefined ? [] : slotsOf(own.last).toReversed();
      return own.giveBack(slots.slice(0, 5), 1, given.key);
    }
    case "steer":
      return own.steer(given.change, given.key);
  }
}

/** Tries look no further than now. */
function atOnce(store: Store): Store {
  return {
    ...store,
    draw: (request) => store.draw(request.isTry ? { ...request, horizonUs: 0 } : request),
  };
}

/** The store that knows no other script for draws than slots-draw. */
function generalStore(prefix: string, nowUs: () => number): Store {
  return {
    ...createPinnedRedisStore(redis, { prefix, nowUs }),
    async draw(request) {
      const reply = await runScript(redis, slotsDraw, { ...request, prefix, pinnedUs: nowUs() });
      return { ...reply, sentAtMs: performance.now() };
    },
  };
}

function asTry<Each extends object>(each: Each): Each & { readonly isTry: true } {
  return { ...each, isTry: true };
}

/** All that the keys of a prefix hold, by what follows on it. */
async function statesOf(prefix: string): Promise<Record<string, string | undefined>> {
  const keys = (await redis.keys(`${prefix}:*:state`)).sort();
  const states = await Promise.all(keys.map((each) => redis.getBuffer(each)));
  return Object.fromEntries(
    keys.map((each, index) => [each.slice(prefix.length), states[index]?.toString("hex")]),
  );
}

/** Which of some lists of limits are of each key, and under which names. */
const LEVELS: Readonly<Record<string, readonly (readonly [name: string, list: number])[]>> = {
  a: [["acme", 0]],
  b: [
    ["acme", 0],
    ["acme x", 1],
  ],
  c: [
    ["acme", 0],
    ["acme y", 1],
    ["mail 1", 2],
  ],
  d: [
    ["mail 1", 2],
    ["acme x", 1],
  ],
  e: [
    ["acme x", 1],
    ["acme", 0],
    ["mail 2", 2],
  ],
};

function scopesAt(lists: readonly (readonly Limit[])[], key: string | undefined): KeyScope[] {
  return (LEVELS[key ?? ""] ?? []).map(([name, list]) => {
    return { key: name, limits: lists[list]!, position: NO_POSITION };
  });
}

/** Lists of limits with windows of a day. */
const DAYS = [[fixedWindow(9, "1d")], [fixedWindow(8, "1d")], [fixedWindow(7, "1d")]] as const;

describe("tries for keys with plain limits", () => {
  const one = fc.tuple(fc.tuple(limit));
  const some = fc.array(limit, { minLength: 1, maxLength: 2 });

  it.each([
    { what: "one limit of one key", own: "bucket/slots-try", lists: one, areLevels: false },
    {
      what: "some limits of several keys",
      own: "bucket/scopes-try",
      lists: fc.tuple(some, some, some),
      areLevels: true,
    },
  ])(
    "have the same answers by their own script as in memory and leave the same bytes as by slots-draw; most are its: $what",
    async ({ own: ownScript, lists, areLevels }) => {
      const history = fc.array(step, { minLength: 1, maxLength: 50 });
      const answered = new Map([[ownScript, 0]]);

      await fc.assert(
        fc.asyncProperty(lists, history, async (own, steps) => {
          const { nowUs, ...clock } = createManualClock();
          const policy = compilePolicy("test", { perKey: { limits: [own[0][0]!] } });
          const scopes = areLevels && {
            scopesOf: (each: string | undefined) => scopesAt(own, each),
          };
          const open = (store: Store): TestReplica[] =>
            ["r0", "r1"].map((name) =>
              createTestReplica(atOnce(store), { bucket: "b", name, policy, ...scopes }),
            );
          const memory = open(createMemoryStore(nowUs));
          const onDrawn = (script: string): void =>
            void answered.set(script, (answered.get(script) ?? 0) + 1);
          const [prefix, other] = [`t${randomUUID()}`, `t${randomUUID()}`];
          const shipped = open(createPinnedRedisStore(redis, { prefix, nowUs, onDrawn }));
          const general = open(generalStore(other, nowUs));

          for (const each of steps) {
            if (each.do === "wait") clock.advanceMs(each.us / 1_000);
            if (each.do === "stepBack") clock.set(nowUs() - each.us);
            const expected = await take(memory, each);
            await take(general, each);

            expect(await take(shipped, each)).toEqual(expected);
          }

          expect(await statesOf(prefix)).toEqual(await statesOf(other));
          for (const each of [prefix, other]) {
            const keys = await redis.keys(`${each}:*`);
            const lives = await Promise.all(keys.map((name) => redis.pttl(name)));
            expect(lives.every((life) => life > 0)).toBe(true);
            if (keys.length > 0) await redis.del(keys);
          }
        }),
        { numRuns: Number(process.env["HISTORIES"] ?? 400) },
      );

      expect(answered.get(ownScript)!).toBeGreaterThan(answered.get("bucket/slots-draw")!);
    },
  );

  it.each([
    ["a key", "k", undefined],
    ["each of several keys", "c", (each: string | undefined) => scopesAt(DAYS, each)],
  ])(
    "keep %s until a minute after its window, also if its units were returned",
    async (_what, key, scopesOf) => {
      const clock = createManualClock();
      const prefix = `t${randomUUID()}`;
      const store = atOnce(createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs }));
      const policy = compilePolicy("test", { perKey: { limits: DAYS[0] } });
      const parts = { bucket: "b", name: "a", policy };
      const replica = createTestReplica(
        store,
        scopesOf === undefined ? parts : { ...parts, scopesOf },
      );
      const endsInMs = 86_400_000 - ((clock.nowUs() / 1_000) % 86_400_000);
      const livesMs = async (): Promise<number[]> =>
        Promise.all((await redis.keys(`${prefix}:*:key:*`)).map((each) => redis.pttl(each)));
      const tryOnce = replica.drawAll.bind(undefined, [{ key, wanted: 1, isTry: true }]);
      await tryOnce();

      const first = await tryOnce();
      const livedMs = await livesMs();
      await replica.settle(first.nowUs, { calls: -2 }, key);
      await tryOnce();

      const lived = [...livedMs, ...(await livesMs())];
      expect(lived).toHaveLength(scopesOf === undefined ? 2 : 6);
      expect(Math.min(...lived)).toBeGreaterThan(endsInMs);
      expect(Math.max(...lived)).toBeLessThanOrEqual(endsInMs + 60_000);
    },
  );
});
