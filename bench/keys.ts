import { setTimeout as pause } from "node:timers/promises";
import type { Redis } from "ioredis";
import { createSluice } from "sluice";
import type { Flags } from "./flags.ts";
import { formatNumber, rowOf } from "./promises.ts";
import type { Bench } from "./run-load.ts";
import type { Table } from "./table.ts";

const CALLERS = 500;
const SCANNED_AT_ONCE = 1_000;
/** Longer than this nobody waits to see keys go in a quick run: what TTL they have is read then. */
const LONGEST_QUICK_WAIT_MS = 5_000;
/** Redis takes out what is over at its leisure. */
const SWEEP_MS = 30_000;
const LOOK_MS = 250;

interface Lifetimes {
  readonly keys: number;
  /** -1: one has none. */
  readonly leastMs: number;
  readonly mostMs: number;
}

/** What keys weigh that were touched once, and that they go again. */
export async function measureKeys(bench: Bench, flags: Flags): Promise<Table[]> {
  if (!flags.contenders.includes("sluice")) return [];
  const { redis, redisUrl } = bench;
  const { keys } = flags.effort;
  await redis.flushall();
  const usedBefore = await usedMemory(redis);
  const startMs = performance.now();
  await touch(redisUrl, keys);
  const seconds = (performance.now() - startMs) / 1_000;
  const bytes = ((await usedMemory(redis)) - usedBefore) / keys;
  const lifetimes = await readLifetimes(redis);
  const longest = Math.max(lifetimes.mostMs, -Infinity);
  const isAwaited = !flags.isQuick || longest <= LONGEST_QUICK_WAIT_MS;
  const left = isAwaited ? await countLeft(redis, longest) : NaN;
  return [
    {
      title: `${formatNumber(keys)} keys, each touched once, of a bucket with 5 calls/s a key`,
      rows: [
        rowOf("bytes a key in Redis", bytes, { digits: 0 }),
        rowOf("Redis keys a key", lifetimes.keys / keys),
        rowOf("keys touched a second, by one process", keys / seconds, { digits: 0 }),
        rowOf("shortest time that one is kept on, s", lifetimes.leastMs / 1_000, {
          bound: { atLeast: 0 },
          digits: 1,
        }),
        rowOf("longest time that one is kept on, s", longest / 1_000, { digits: 1 }),
        {
          ...rowOf("keys left after that", left, { digits: 0 }),
          promise: "≤ 0",
          isKept: isAwaited ? left === 0 : undefined,
        },
      ],
    },
  ];
}

async function touch(redisUrl: string, keys: number): Promise<void> {
  await using sluice = createSluice({ redis: redisUrl });
  const bucket = sluice.bucket("bench", { perKey: { rate: "5/s" } });
  let next = 0;

  async function touchSome(): Promise<void> {
    while (next < keys) await bucket.tryDraw({ key: `key-${(next += 1)}` });
  }

  await Promise.all(Array.from({ length: CALLERS }, touchSome));
}

async function usedMemory(redis: Redis): Promise<number> {
  return Number(/^used_memory:(\d+)/m.exec(await redis.info("memory"))?.[1]);
}

/** The bucket's own keys outlive an idle hour; those of its keys do not. */
async function readLifetimes(redis: Redis): Promise<Lifetimes> {
  let [keys, leastMs, mostMs] = [0, Infinity, 0];
  const found = redis.scanStream({ match: "*:key:*", count: SCANNED_AT_ONCE });
  for await (const names of found as AsyncIterable<string[]>) {
    const asked = redis.pipeline();
    for (const name of names) asked.pttl(name);
    for (const [, ms] of (await asked.exec()) ?? []) {
      // Gone between the two.
      if (ms === -2) continue;
      keys += 1;
      leastMs = Math.min(leastMs, ms as number);
      mostMs = Math.max(mostMs, ms as number);
    }
  }
  return { keys, leastMs, mostMs };
}

/** How many of the keys are there once the last one's time is over, and Redis had time to take them out. */
async function countLeft(redis: Redis, longestMs: number): Promise<number> {
  const own = (await redis.keys("*:{bench}:state")).length;
  await pause(longestMs);
  const deadlineMs = performance.now() + SWEEP_MS;
  for (;;) {
    const left = (await redis.dbsize()) - own;
    if (left <= 0 || performance.now() > deadlineMs) return left;
    await pause(LOOK_MS);
  }
}
