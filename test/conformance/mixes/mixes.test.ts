import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { isWithin } from "../../../src/core/key-path.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { excessOf, lateOf, stoodStillOf, usedOf } from "./laws.ts";
import { levelMixOf } from "./level-mix.ts";
import { mixOf, type Mix } from "./mix.ts";
import { runMix, type MixRun } from "./run-mix.ts";
import { beginVirtualTime, type VirtualTime } from "./virtual-time.ts";

/** How many mixes are tried, and the seed of the first. */
const COUNT = Number(process.env["MIXES"] ?? 40);
const FIRST = Number(process.env["MIXES_FROM"] ?? 1_000);
const FOR_MS = 6_000;
const LEAST_USED = 0.97;
/** What waits for its turn at one of several keys leaves some of the others unused: a little of customers, most where keys stand side by side. */
const LEAST_USED_OF_MANY = 0.92;
/** Where a key's limits bind beside shared ones, calls may miss their turn at one while they wait for the other; so may urgent ones where several limits bind. */
const MISSED_TURNS_MS = 500;
/** Where priorities are mixed: what less urgent calls wait for comes in no order that one line could tell. */
const PASSED_MS = 200;
/** What requests take. */
const ON_THE_WAY_MS = 2;

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

function microseconds(time: VirtualTime): () => number {
  return () => Math.floor((performance.timeOrigin + time.now()) * 1_000);
}

/** What is wrong with a mix; nothing if all laws hold. */
async function faultsOf(
  mix: Mix,
  { seed, store, time }: { seed: number; store: Store; time: VirtualTime },
): Promise<string[]> {
  const run = await runMix(mix, { store, time, seed, forMs: FOR_MS });
  const [used, excess] = [usedOf(run), excessOf(run)];
  const gone = run.calls.filter(({ wentMs }) => wentMs <= FOR_MS).length;
  const parts = run.policy.perKey?.parts.length ?? 0;
  const leastUsed = parts < 2 ? LEAST_USED : LEAST_USED_OF_MANY;
  const faults = [
    [run.errors.length === 0, `errors: ${String(run.errors[0])}`],
    [used >= leastUsed, `used ${used.toFixed(3)} of what binds`],
    [excess <= 0, `a limit was passed by ${excess}`],
    [run.draws <= 5 * gone + 50, `${run.draws} requests for ${gone} calls`],
    parts < 2 ? inTurn(mix, run) : inEachTurn(mix, run),
  ] as const;
  return faults.filter(([isRight]) => !isRight).map(([, what]) => `${mix.name}: ${what}`);
}

type Judged = readonly [isRight: boolean, what: string];

/** Whether each call went about when it would have in one line for all replicas. */
function inTurn({ hasPriorities }: Mix, run: MixRun): Judged {
  const { limits, perKey } = run.policy;
  const lateMs = lateOf(run);
  const hasKeys = limits.length > 0 && perKey !== undefined;
  const mayMiss = hasKeys || (hasPriorities && limits.length > 1);
  const mostLateMs =
    ON_THE_WAY_MS + (mayMiss ? MISSED_TURNS_MS : 0) + (hasPriorities ? PASSED_MS : 0);
  return [lateMs <= mostLateMs, `a call was ${lateMs.toFixed(0)} ms late`];
}

/** Where limits of several levels or names bind, there is no one line: nobody waits for more than its turn in each. */
function inEachTurn({ callers }: Mix, run: MixRun): Judged {
  const stillMs = stoodStillOf(run, callers);
  return [stillMs <= MISSED_TURNS_MS, `a call stood still for ${stillMs.toFixed(0)} ms`];
}

/** The seeds, in parts that a busy machine can try in time. */
function partsOf(count: number, size: number): { readonly from: number; readonly to: number }[] {
  return Array.from({ length: Math.ceil(count / size) }, (_, part) => ({
    from: FIRST + part * size,
    to: FIRST + Math.min(count, (part + 1) * size),
  }));
}

/** Mixes of shared limits and of those of one key, and mixes of several levels or names. */
const KINDS = [
  { kind: "one key", of: mixOf },
  { kind: "several levels or names", of: levelMixOf },
];
const inParts = (count: number, size: number) =>
  KINDS.flatMap((each) => partsOf(count, size).map((part) => ({ ...each, ...part })));

it.each(inParts(COUNT, 20))(
  "uses what binds, keeps the order over all replicas and passes no limit, in the mixes with $kind from $from to $to",
  async ({ from, to, of }) => {
    const time = beginVirtualTime();
    const faults: string[] = [];
    try {
      for (let seed = from; seed < to; seed++) {
        const store = createMemoryStore(microseconds(time));
        faults.push(...(await faultsOf(of(seed), { seed, store, time })));
      }
    } finally {
      time.end();
    }

    expect(faults).toEqual([]);
  },
);

/** Mixes in which calls once waited too long, and which calls those were. */
const ONCE_LATE = [
  { seed: 2_335, late: "an urgent call of a key, behind an urgent one that has its slot" },
  { seed: 2_039, late: "a call that an urgent one of its process has passed" },
  { seed: 2_513, late: "a call that an urgent one of its process has passed, of two replicas" },
  {
    seed: 2_163,
    late: "a call of a key that other calls wait for which cost more, of eight replicas",
  },
  { seed: 2_408, late: "a small call of a key that large ones wait for, of four replicas" },
];

it.each(ONCE_LATE)(
  "lets no call wait longer than a horizon beyond its turn: $late",
  async (each) => {
    const time = beginVirtualTime();
    try {
      const store = createMemoryStore(microseconds(time));
      const run = await runMix(mixOf(each.seed), { store, time, seed: each.seed, forMs: FOR_MS });

      expect(lateOf(run)).toBeLessThanOrEqual(0);
    } finally {
      time.end();
    }
  },
);

it.each(inParts(12, 3))(
  "does the same in Redis: mixes with $kind from $from to $to",
  async ({ from, to, of }) => {
    const prefix = `t${randomUUID()}`;
    let underWay = 0;
    const faults: string[] = [];
    const time = beginVirtualTime(() => underWay > 0);
    try {
      const pinned = createPinnedRedisStore(redis, { prefix, nowUs: microseconds(time) });
      const counted = <Name extends "draw" | "giveBack">(name: Name) =>
        (async (request: never) => {
          underWay += 1;
          try {
            return await pinned[name](request);
          } finally {
            underWay -= 1;
          }
        }) as Store[Name];
      const store: Store = { ...pinned, draw: counted("draw"), giveBack: counted("giveBack") };
      for (let seed = from; seed < to; seed++) {
        faults.push(...(await faultsOf(of(seed), { seed, store, time })));
      }
    } finally {
      time.end();
    }

    expect(faults).toEqual([]);
  },
);

// A share of a horizon is 3 of 1,000/s for 32 replicas, and 125 of 5,000/s for four.
it.each([
  { perSecond: 1_000, among: 32, mostPerCall: 0.6 },
  { perSecond: 5_000, among: 4, mostPerCall: 0.012 },
])(
  "a bucket sends few requests and serves all callers evenly: $perSecond/s, $among replicas of 200 callers",
  async (each) => {
    const { perSecond, among, mostPerCall } = each;
    const time = beginVirtualTime();
    const replicas = Array.from({ length: among }, (_, replica) => replica);
    const callers = replicas.flatMap((replica) =>
      Array.from({ length: 200 }, () => ({
        replica,
        key: undefined,
        cost: 1,
        priority: "normal" as const,
        startMs: replica * 0.3,
        thinkMs: 0,
      })),
    );
    const policy = { rate: `${perSecond}/s` as const };
    const mix = { name: "many", policy, callers, hasPriorities: false };
    const served = new Map<string, number>();
    try {
      const memory = createMemoryStore(microseconds(time));
      const store: Store = {
        ...memory,
        async draw(request) {
          const drawn = await memory.draw(request);
          const slots = drawn.granted.reduce(
            (sum, { slotsUs, run }) => sum + slotsUs.length + (run?.count ?? 0),
            0,
          );
          served.set(request.asker, (served.get(request.asker) ?? 0) + slots);
          return drawn;
        },
      };
      const run = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });

      const counts = [...served.values()];
      expect(run.draws).toBeLessThan(((perSecond * FOR_MS) / 1_000) * mostPerCall);
      expect(counts).toHaveLength(among);
      expect(Math.max(...counts) / Math.min(...counts)).toBeLessThan(1.5);
      expect(usedOf(run)).toBeGreaterThan(0.99);
    } finally {
      time.end();
    }
  },
);

it("a shared rate lets no key starve if all calls reach four replicas at once", async () => {
  const time = beginVirtualTime();
  const callers = [0, 1, 2, 3].flatMap((replica) =>
    ["a", "b", "c", "d", "e", "f"].flatMap((key) =>
      Array.from({ length: 3 }, () => ({
        replica,
        key,
        cost: 1,
        priority: "normal" as const,
        startMs: 0,
        thinkMs: 0,
      })),
    ),
  );
  const policy = { rate: "20/s", perKey: { rate: "5/s" } } as const;
  const mix = { name: "keys at one moment", policy, callers, hasPriorities: false };
  try {
    const store = createMemoryStore(microseconds(time));
    const run = await runMix(mix, { store, time, seed: 2, forMs: 15_000 });

    // 72 calls take 3.6 s of the shared rate; a key whose twelve calls all come last waits for 2.4 s of the others, and 2.4 s for its own.
    const waits = run.calls.map(({ atMs, wentMs }) => Math.min(wentMs, 15_000) - atMs);
    expect(Math.max(...waits)).toBeLessThan(6_000);
    expect(usedOf(run)).toBeGreaterThan(0.99);
  } finally {
    time.end();
  }
});

it("a bucket sends few requests per call if the shared rate is the sum of the customers' rates", async () => {
  const time = beginVirtualTime();
  const callers = [0, 1].flatMap((customer) =>
    Array.from({ length: 24 }, (_, index) => ({
      replica: index % 4,
      key: `customer ${customer}`,
      cost: 1,
      priority: "normal" as const,
      startMs: 3 * index,
      thinkMs: 0,
    })),
  );
  const policy = { rate: "30/s", perKey: { rate: "15/s" }, fair: false } as const;
  const mix = { name: "a sum", policy, callers, hasPriorities: false };
  try {
    const store = createMemoryStore(microseconds(time));
    const run = await runMix(mix, { store, time, seed: 3, forMs: FOR_MS });

    const gone = run.calls.filter(({ wentMs }) => wentMs <= FOR_MS).length;
    expect(run.draws / gone).toBeLessThan(10);
    expect(usedOf(run)).toBeGreaterThan(0.99);
  } finally {
    time.end();
  }
});

it("a shared rate serves customers evenly, however many endpoints each has", async () => {
  const time = beginVirtualTime();
  const callers = [1, 3, 12].flatMap((endpoints, customer) =>
    Array.from({ length: 24 }, (_, index) => ({
      replica: index % 4,
      key: [`customer ${customer}`, `endpoint ${index % endpoints}`],
      cost: 1,
      priority: "normal" as const,
      startMs: index,
      thinkMs: 0,
    })),
  );
  const policy = { rate: "60/s", perKey: [{ rate: "50/s" }, { rate: "40/s" }] } as const;
  const mix = { name: "customers", policy, callers, hasPriorities: false };
  try {
    const store = createMemoryStore(microseconds(time));
    const run = await runMix(mix, { store, time, seed: 3, forMs: FOR_MS });

    const counts = [0, 1, 2].map(
      (customer) =>
        run.calls.filter(
          ({ key, wentMs }) => isWithin(key!, `customer ${customer}`) && wentMs <= FOR_MS,
        ).length,
    );
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(6);
    expect(usedOf(run)).toBeGreaterThan(0.99);
  } finally {
    time.end();
  }
});
