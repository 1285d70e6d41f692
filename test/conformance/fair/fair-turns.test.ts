import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { firstOfText } from "../../../src/core/key-path.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { sharesOf } from "../../support/draws/shares.ts";
import { runMix, type MixCall, type MixRun } from "../mixes/run-mix.ts";
import { beginVirtualTime, type VirtualTime } from "../mixes/virtual-time.ts";
import { fairMixOf, type FairMix } from "./fair-mix.ts";
import { seedsOf } from "./seeds.ts";

const COUNT = Number(process.env["FAIR_MIXES"] ?? 20);
const FIRST = Number(process.env["FAIR_MIXES_FROM"] ?? 1_000);
const FOR_MS = 8_000;
const WINDOW_MS = 2_000;
const STEP_MS = 250;
const HORIZON_MS = 100;
/** What requests take; a process that holds slots gathers newcomers for 10 ms. */
const ON_THE_WAY_MS = 15;
/** By how much calls may pass those of a replica that is late. */
const LATE_MS = 25;
const LEAST_USED = 0.98;

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

function tenantOf({ key }: MixCall): string {
  return firstOfText(key!);
}

/** How much of the rate calls used, to within one call. */
function usedOf({ rate, tenants }: FairMix, { calls, forMs }: MixRun): number {
  const most = Math.max(...tenants.map(({ mostCost }) => mostCost));
  const sum = calls
    .filter(({ wentMs }) => wentMs <= forMs)
    .reduce((all, { costs }) => all + costs[0]!, most);
  return sum / ((rate * forMs) / 1_000);
}

/** What calls of these tenants cost in a window, in units. */
function usedBy(names: ReadonlySet<string>, calls: readonly MixCall[], fromMs: number): number {
  return calls
    .filter((call) => call.wentMs >= fromMs && call.wentMs < fromMs + WINDOW_MS)
    .filter((call) => names.has(tenantOf(call)))
    .reduce((sum, { costs }) => sum + costs[0]!, 0);
}

/** The worst shortfalls of tenants in windows of 2 s in which the same tenants have pending calls, in units. */
function shortfalls({ tenants, rate }: FairMix, { calls }: MixRun): string[] {
  const found: string[] = [];
  for (let fromMs = HORIZON_MS; fromMs + WINDOW_MS <= FOR_MS; fromMs += STEP_MS) {
    const toMs = fromMs + WINDOW_MS;
    if (tenants.some(({ startMs }) => startMs > fromMs - 2 * HORIZON_MS && startMs < toMs))
      continue;
    const active = tenants.filter(({ startMs, isLight }) => startMs < fromMs && !isLight);
    const light = new Set(tenants.filter(({ isLight }) => isLight).map(({ name }) => name));
    const left = rate - (usedBy(light, calls, fromMs) * 1_000) / WINDOW_MS;
    const shares = sharesOf(left, active);
    // A process is served for its part of a horizon at once.
    const slack = tenants.reduce(
      (sum, { mostCost }) => sum + mostCost,
      (rate * HORIZON_MS) / 1_000,
    );
    for (const { name } of active) {
      const got = usedBy(new Set([name]), calls, fromMs);
      const due = (shares.get(name)! * WINDOW_MS) / 1_000;
      if (got < due - slack)
        found.push(`${name} got ${got} of ${due.toFixed(0)} from ${fromMs} ms`);
    }
  }
  return found.slice(0, 3);
}

/** The first call of a tenant, and each call of a light one, waits for one turn of each other and one horizon at most. */
function lateCalls({ tenants, rate }: FairMix, { calls }: MixRun): string[] {
  return tenants.flatMap(({ name, startMs, isLight }) => {
    const own = calls.filter((call) => tenantOf(call) === name);
    const firstMs = Math.min(...own.map(({ wentMs }) => wentMs)) - startMs;
    const waits = own
      .filter(({ atMs }) => atMs < FOR_MS - 2_000)
      .map(({ atMs, wentMs }) => wentMs - atMs);
    const waitedMs = isLight ? Math.max(...waits) : firstMs;
    const turns = tenants.reduce((sum, { mostCost }) => sum + mostCost, 0);
    // What floors guarantee to others goes before all turns, with what those missed in a horizon.
    const floors = tenants.reduce((sum, { floor }) => sum + floor, 0);
    const behindMs = (2 * HORIZON_MS * floors) / rate;
    const turnsMs = (turns * 1_000) / (rate - floors) + behindMs;
    const mostMs = turnsMs + HORIZON_MS + LATE_MS + ON_THE_WAY_MS;
    return waitedMs <= mostMs
      ? []
      : [`${name} waited ${waitedMs.toFixed(0)} ms of ${mostMs.toFixed(0)}`];
  });
}

async function faultsOf(seed: number, store: Store, time: VirtualTime): Promise<string[]> {
  const mix = fairMixOf(seed);
  const run = await runMix(mix, { store, time, seed, forMs: FOR_MS });
  const used = usedOf(mix, run);
  return [
    ...(run.errors.length === 0 ? [] : [`errors: ${String(run.errors[0])}`]),
    ...(used >= LEAST_USED ? [] : [`used ${used.toFixed(3)}`]),
    ...shortfalls(mix, run),
    ...lateCalls(mix, run),
  ].map((fault) => `${mix.name}: ${fault}`);
}

it.each(seedsOf(FIRST, COUNT, 10))(
  "gives each tenant its share or floor in every two seconds, in the mixes from $from to $to",
  async ({ from, to }) => {
    const time = beginVirtualTime();
    const faults: string[] = [];
    try {
      for (let seed = from; seed < to; seed++) {
        faults.push(...(await faultsOf(seed, createMemoryStore(microseconds(time)), time)));
      }
    } finally {
      time.end();
    }

    expect(faults).toEqual([]);
  },
);

it.each(seedsOf(FIRST, 4, 2))(
  "does the same in Redis, in the mixes from $from to $to",
  async ({ from, to }) => {
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
      for (let seed = from; seed < to; seed++) faults.push(...(await faultsOf(seed, store, time)));
    } finally {
      time.end();
    }

    expect(faults).toEqual([]);
  },
);

it("gives a tenant its floor, where that is more than its share", async () => {
  const floor = 50;
  const callers = ["small", "one", "two", "three", "four"].flatMap((key) =>
    Array.from({ length: 40 }, (_, index) => ({
      replica: index % 2,
      key,
      cost: 1,
      priority: "normal" as const,
      startMs: index,
      thinkMs: 0,
    })),
  );
  const policy = { rate: "100/s", fair: { floors: { small: `${floor}/s` } } } as const;
  const mix = { name: "a floor", policy, callers, hasPriorities: false };
  const time = beginVirtualTime();
  try {
    const store = createMemoryStore(microseconds(time));
    const { calls } = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });
    for (let fromMs = 500; fromMs + WINDOW_MS <= FOR_MS; fromMs += STEP_MS) {
      const due = (floor * WINDOW_MS) / 1_000;
      expect(usedBy(new Set(["small"]), calls, fromMs)).toBeGreaterThanOrEqual(due - 15);
    }
  } finally {
    time.end();
  }
});
