import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { budget } from "../../../src/core/policy/limit-makers.ts";
import type { BudgetPeriod, Limit } from "../../../src/core/limits/rule.ts";
import { RULES } from "../../../src/core/limits/registry.ts";
import { readPerKeyText } from "../../../src/core/policy/per-key.ts";
import { readPoolText } from "../../../src/core/policy/pool.ts";
import { makePolicy, type Policy } from "../../../src/core/policy/policy.ts";
import { PRIORITIES } from "../../../src/core/input/options.ts";
import { NO_POSITION, type Change, type KeyScope, type Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import {
  createTestReplica,
  slotsOf,
  type TestReplica,
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

const KINDS = [...RULES.keys()];
const PERIODS_US = [1_000_000, 3_000_000, 60_000_000, 86_400_000_000];

/** A limit of any kind that is registered: a new one is found here by itself. */
function limitOf(kinds: readonly string[], mostCount = 20_000): fc.Arbitrary<Limit> {
  return fc
    .record({
      kind: fc.constantFrom(...kinds),
      unit: fc.constantFrom("calls", "calls", "tokens"),
      count: fc.oneof(
        fc.integer({ min: 1, max: Math.min(60, mostCount) }),
        fc.integer({ min: 1, max: mostCount }),
      ),
      periodUs: fc.constantFrom(...PERIODS_US),
      burst: fc.integer({ min: 5, max: 40 }),
      isDaily: fc.boolean(),
      per: fc.constantFrom<BudgetPeriod>("day", "month", { days: 3 }),
    })
    .map(({ kind, unit, count, periodUs, burst, isDaily, per }) => {
      if (kind === "budget") {
        // Costs of histories are raw numbers, which are millionths for a budget.
        const amount = Math.max(5, count) / 1_000_000;
        const carryOver = isDaily && typeof per === "string";
        return budget({ unit, amount, per, carryOver, reserveMs: 2_000, warnAt: [0.5, 1] });
      }
      if (!RULES.get(kind)!.isRate) {
        const leased = { kind, unit: "calls", count, periodUs: 2_000_000, capacity: count };
        if (kind === "concurrency") return leased;
        const terms = {
          target: "latency",
          min: 1,
          initial: Math.min(count, 3),
          tolerance: 1.1,
        } as const;
        return { ...leased, adaptive: terms };
      }
      const capacity = kind.endsWith("bucket") ? burst : Math.max(5, count);
      const limit = { kind, unit, count: Math.max(5, count), periodUs, capacity };
      const align = { at: "03:30", timeZone: "Europe/Berlin" };
      return kind === "fixed-window" && isDaily
        ? { ...limit, periodUs: 86_400_000_000, align }
        : limit;
    });
}

/** What keys have of their own: which limits there are, and which of those are each key's. */
type Levels = Readonly<Record<string, readonly (readonly [name: string, level: number])[]>>;

const PATHS: Levels = {
  a: [["acme", 0]],
  b: [
    ["acme", 0],
    ["acme x", 1],
  ],
  c: [
    ["acme", 0],
    ["acme y", 1],
  ],
  d: [
    ["acme", 0],
    ["acme x", 1],
    ["acme x 1", 2],
  ],
  e: [
    ["acme", 0],
    ["acme x", 1],
    ["acme x 2", 2],
  ],
  f: [["acme x 3", 2]],
};
const SIDE_BY_SIDE: Levels = {
  a: [
    ["address 1", 0],
    ["mail 1", 1],
    ["user 1", 2],
  ],
  b: [
    ["address 1", 0],
    ["mail 2", 1],
    ["user 1", 2],
  ],
  c: [
    ["address 2", 0],
    ["mail 1", 1],
  ],
  d: [
    ["mail 1", 1],
    ["user 2", 2],
  ],
  e: [["user 1", 2]],
  f: [
    ["address 1", 0],
    ["user 2", 2],
  ],
};

function policyOf(
  kinds: readonly string[],
  most: number,
  mostCount?: number,
): fc.Arbitrary<Policy> {
  const limit = limitOf(kinds, mostCount);
  const limits = fc.array(limit, { minLength: most === 1 ? 1 : 0, maxLength: most });
  const perKey = fc.option(fc.array(limit, { minLength: 1, maxLength: 2 }), { freq: 2 });
  const fair = fc.constantFrom(
    undefined,
    { weights: { a: 2, "user 1": 0.5 }, floors: {}, criticalPerMille: 900 },
    {
      weights: {},
      floors: { b: { unit: "calls", count: 1, periodUs: 100_000, limit: 0 } },
      criticalPerMille: 500,
    },
  );
  return fc
    .record({ limits, perKey: most === 1 ? fc.constant(null) : perKey, own: limit, fair })
    .map(({ limits: shared, perKey: fixed, own, fair: turns }) => {
      const some = shared.length === 0 && fixed === null ? [own] : shared;
      const keyPolicy = fixed === null ? undefined : readPerKeyText("test", fixed, undefined);
      const shares = [1_000, 900, 800, 700];
      return makePolicy({ limits: some, shadows: [], perKey: keyPolicy, shares, fair: turns });
    });
}

/** The same policies with members, of which each call uses one. */
function pooled(policy: fc.Arbitrary<Policy>): fc.Arbitrary<Policy> {
  const members = fc.array(
    fc.record({
      limits: fc.array(limitOf(KINDS, 60), { minLength: 1, maxLength: 2 }),
      isDrained: fc.nat(5).map((each) => each === 0),
    }),
    { minLength: 1, maxLength: 4 },
  );
  const prefer = fc.constantFrom(undefined, ["a"]);
  const stickyUs = fc.constantFrom(undefined, 0, 50_000, 5_000_000);
  return fc
    .tuple(policy, members, fc.boolean(), prefer, stickyUs)
    .map(([under, all, areShared, preferred, sticky]) => {
      const isShared = areShared && under.limits.length > 0;
      const named = all.map(({ limits, isDrained }, index) => {
        return { name: "abcd"[index]!, limits, ...(isDrained && { isDrained }) };
      });
      const pool = readPoolText({ members: named, prefer: preferred, stickyUs: sticky })!;
      // A floor is a part of a shared limit.
      const fair = under.fair && { ...under.fair, floors: {} };
      return makePolicy(isShared ? { ...under, pool } : { ...under, limits: [], fair, pool });
    });
}

/** A budget can be no shadow. */
const RATES = KINDS.filter((kind) => RULES.get(kind)!.isRate && kind !== "budget");

/** The same policies, with limits beside them that only count; a quarter of them has no others. */
function shadowed(policy: fc.Arbitrary<Policy>): fc.Arbitrary<Policy> {
  const shadows = fc.array(limitOf(RATES), { maxLength: 2 });
  const alone = fc
    .tuple(policy, fc.array(limitOf(RATES), { minLength: 1, maxLength: 2 }))
    .map(([{ shares }, each]) =>
      makePolicy({ limits: [], shadows: each, perKey: undefined, shares, fair: undefined }),
    );
  const beside = fc
    .tuple(policy, shadows)
    .filter(([{ limits }]) => limits.length > 0)
    .map(([under, each]) => makePolicy({ ...under, shadows: each }));
  return fc.oneof({ weight: 3, arbitrary: beside }, { weight: 1, arbitrary: alone });
}

const key = fc.constantFrom("a", "b", "a", "b", "c", "d", "e", "f");
const seldom = fc.nat(9).map((each) => each === 0);
/** About when the clock starts, and later. */
const since = fc
  .oneof(fc.nat(60_000), fc.nat(9_000_000))
  .map((each) => 1_790_000_000_000_000 + each);
const sinces = fc.oneof(fc.constant([0, 0, 0] as const), fc.tuple(since, since, since));
const wanted: fc.Arbitrary<Wanted> = fc.record(
  {
    wanted: fc.oneof(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 300 })),
    cost: fc.record({ calls: fc.integer({ min: 1, max: 3 }), tokens: fc.nat(5) }),
    key,
    priority: fc.constantFrom(...PRIORITIES),
    drewElsewhere: seldom,
    startsFull: seldom,
    sincesUs: sinces,
    isUnderWay: seldom,
    isBounded: fc.boolean(),
    settles: fc.boolean(),
    takesTurns: fc.boolean(),
    home: fc.constantFrom(0, 0, 0, 1, 2, -1, -2),
  },
  { requiredKeys: ["wanted", "cost"] },
);
/** It may only ask when such a call could start. */
const drawn: fc.Arbitrary<Wanted> = fc
  .tuple(wanted, seldom)
  .map(([slotRequest, isLook]) =>
    isLook ? { ...slotRequest, wanted: 0, isBounded: true } : slotRequest,
  );
const us = fc.oneof(fc.nat(2_000), fc.nat(60_000), fc.nat(3_000_000));
const change: fc.Arbitrary<Change> = fc.oneof(
  fc.record({
    do: fc.constant("cool" as const),
    durationUs: us,
    rampUs: fc.constantFrom(1, 1_000_000),
    slotUs: fc.constantFrom(1, 2 ** 52),
  }),
  fc.record({
    do: fc.constant("cut" as const),
    factor: fc.constant(700),
    floor: fc.constant(100),
    recoverUs: fc.constant(5_000_000),
    durationUs: fc.oneof(fc.constant(0), us),
    slotUs: fc.constantFrom(1, 2 ** 52),
  }),
  fc.record({ do: fc.constant("space" as const), gapUs: fc.nat(50_000), durationUs: us }),
  fc.record({ do: fc.constant("pause" as const), durationUs: us }),
  fc.record({
    do: fc.constant("configure" as const),
    source: fc.constantFrom("code" as const, "override" as const, "rules" as const),
    doesYield: fc.boolean(),
  }),
);
const replica = fc.nat(3);
const step = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant("draw" as const),
      replica,
      slotRequests: fc.array(drawn, { minLength: 1, maxLength: 3 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("try" as const), replica, slotRequest: wanted }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("wait" as const), us }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("giveBack" as const), replica, count: fc.nat(20) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("settle" as const),
      replica,
      deltas: fc.record({
        calls: fc.integer({ min: -1, max: 3 }),
        tokens: fc.integer({ min: -5, max: 50 }),
      }),
      isUnused: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom("release", "renew"), replica, count: fc.nat(10) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("steer" as const),
      replica,
      change,
      key: fc.option(key, { nil: undefined, freq: 2 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("peek" as const), replica }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("stepBack" as const), us: fc.nat(20_000_000) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget" as const) }) },
);
/** What nearly all histories are: calls of one cost, which the plain path of the script serves. */
const plainStep = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant("draw" as const),
      replica,
      slotRequests: fc
        .record({
          wanted: fc.integer({ min: 1, max: 300 }),
          priority: fc.constantFrom(...PRIORITIES),
          drewElsewhere: seldom,
          startsFull: seldom,
          sincesUs: sinces,
        })
        .map((each) => [each]),
    }),
  },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("wait" as const), us }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("giveBack" as const), replica, count: fc.nat(20) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("stepBack" as const), us: fc.nat(20_000_000) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("forget" as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface Bench {
  readonly replicas: readonly TestReplica[];
  readonly forget: () => Promise<void>;
}

/** What one store answers to one step, in full. */
async function take({ replicas, forget }: Bench, given: Step): Promise<unknown> {
  if (given.do === "forget") return forget();
  if (given.do === "wait" || given.do === "stepBack") return undefined;
  const own = replicas[(given as { replica: number }).replica]!;
  const first = own.last === undefined ? [] : slotsOf(own.last);
  const last = own.lastWanted;
  switch (given.do) {
    case "draw":
      return own.drawAll(given.slotRequests).catch(refusal);
    case "try":
      return own.drawAll([{ ...given.slotRequest, isTry: true }]).catch(refusal);
    case "giveBack":
      return own.giveBack(first.toReversed().slice(0, given.count), last?.cost, last?.key);
    case "settle":
      return first[0] === undefined
        ? undefined
        : own.settle(first[0], given.deltas, last?.key, given.isUnused, estimateOf(last));
    case "release":
    case "renew": {
      const leases = Array.from({ length: given.count }, (_, index) => own.lease - 1 - index);
      return own[given.do](
        leases.filter((lease) => lease > 0),
        last?.key,
      );
    }
    case "steer":
      return own.steer(given.change, given.key);
    case "peek":
      return own.peek(last?.key).catch(refusal);
  }
}

/** What the calls of a slot request have reserved under budgets. */
function estimateOf(wanted: Wanted | undefined): Readonly<Record<string, number>> | undefined {
  if (wanted?.settles !== true) return undefined;
  return typeof wanted.cost === "object" ? wanted.cost : { calls: wanted.cost ?? 1 };
}

/** The limits of a level are those that one of the policies has for all its keys. */
function scopesAt(
  levels: Levels,
  policies: readonly Policy[],
  key: string | undefined,
): readonly KeyScope[] {
  const scopes = (levels[key ?? ""] ?? []).map(([name, level]): KeyScope => {
    return { key: name, limits: policies[level]!.perKey?.fixed ?? [], position: NO_POSITION };
  });
  return scopes.filter(({ limits }) => limits.length > 0);
}

function refusal(error: Error): string {
  const isTooLarge =
    error.name === "CostTooLargeError" || error.message.startsWith("SLUICE_COST_TOO_LARGE");
  return isTooLarge ? "cost too large" : `${error.name}: ${error.message}`;
}

describe.each([
  {
    what: "one leaky bucket that is drawn from as most are",
    policy: policyOf(["leaky-bucket"], 1),
    steps: plainStep,
    numRuns: 300,
  },
  { what: "one limit", policy: policyOf(KINDS, 1), numRuns: 400 },
  { what: "one leaky bucket", policy: policyOf(["leaky-bucket"], 1), numRuns: 500 },
  { what: "limits and shadows", policy: shadowed(policyOf(KINDS, 2)), numRuns: 400 },
  { what: "members of any limits", policy: pooled(policyOf(KINDS, 2, 60)), numRuns: 700 },
  { what: "any mix of limits, shared and per key", policy: policyOf(KINDS, 3), numRuns: 700 },
  {
    what: "any mix of limits at each level of paths",
    policy: policyOf(KINDS, 2, 8),
    levels: PATHS,
    numRuns: 700,
  },
  {
    what: "any mix of limits for keys side by side",
    policy: policyOf(KINDS, 2, 8),
    levels: SIDE_BY_SIDE,
    numRuns: 700,
  },
])("a bucket with $what", ({ policy, levels, steps: someStep = step, numRuns }) => {
  it("returns the same numbers from Redis and from memory for every random history", async () => {
    const policies = fc.array(policy, { minLength: 4, maxLength: 4 });
    const history = fc.array(someStep as typeof step, { minLength: 1, maxLength: 50 });

    await fc.assert(
      fc.asyncProperty(policies, fc.nat(3), history, async (given, shared, steps) => {
        const clock = createManualClock();
        const prefix = `t${randomUUID()}`;
        const open = (store: Store, forget: () => Promise<void>): Bench => ({
          forget,
          replicas: given.map((each, index) =>
            createTestReplica(store, {
              bucket: "b",
              name: `r${index}`,
              policy: shared > 0 ? given[0]! : each,
              ...(levels !== undefined && { scopesOf: (key) => scopesAt(levels, given, key) }),
            }),
          ),
        });
        // Keys of Redis do not expire by the pinned clock, so those in memory must not either.
        const startUs = clock.nowUs();
        const inMemory = createMemoryStore(clock.nowUs, () => startUs);
        const inRedis = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });
        const memory = open(inMemory, () => inMemory.close());
        const forgetKeys = async (): Promise<void> => {
          const keys = await redis.keys(`${prefix}:*`);
          if (keys.length > 0) await redis.del(keys);
        };
        const shipped = open(inRedis, forgetKeys);

        for (const each of steps) {
          if (each.do === "wait") clock.advanceMs(each.us / 1_000);
          if (each.do === "stepBack") clock.set(clock.nowUs() - each.us);

          expect(await take(shipped, each)).toEqual(await take(memory, each));
        }
        await forgetKeys();
      }),
      { numRuns: Number(process.env["HISTORIES"] ?? numRuns) },
    );
  });
});
