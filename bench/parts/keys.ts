import { setTimeout as pause } from "node:timers/promises";
import type { Redis } from "ioredis";
import { createSluice, leakyBucket, type Bucket, type Key } from "sluice";
import type { Flags } from "../flags.ts";
import { usedMemory } from "../fleet/redis-cost.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";

/**
 * Redis keeps a key until its limit has drained, and for one more minute. That is longer than calling a million keys
 * takes.
 */
const HELD = { name: "held", rate: "1/h", mostKeptSeconds: 3_600 + 60 } as const;
/** These keys are called first, and must be removed when their time is over. */
const SAMPLE = {
  name: "sample",
  rate: "5/s",
  tenant: leakyBucket("50/s", { burst: 10 }),
  keys: 1_000,
} as const;
/**
 * Paths as keys: this many endpoints for each tenant, with limits of both. Redis keeps them as long as keys of one
 * name.
 */
const PATHS = { name: "paths", perTenant: 10, tenant: leakyBucket("10/h", { burst: 10 }) } as const;
const CALLERS = 500;
const SCANNED_AT_ONCE = 1_000;
/** The longest delay with which Redis removes expired keys. */
const SWEEP_MS = 30_000;
const LOOK_MS = 250;

interface Lifetimes {
  readonly keys: number;
  /** The shortest remaining lifetime of a key; -1 if a key never expires. */
  readonly leastMs: number;
  readonly mostMs: number;
}

/** Measures the size of keys after one call each, and checks that they expire. */
export async function measureKeys(bench: Bench, flags: Flags): Promise<Table[]> {
  if (!flags.contenders.includes("sluice")) return [];
  const { redis, redisUrl } = bench;
  const { keys } = flags.effort;
  await redis.flushall();
  await using sluice = createSluice({ redis: redisUrl });
  const { rate } = SAMPLE;
  const ofSample = sluice.bucket(SAMPLE.name, { perKey: [{ limits: [SAMPLE.tenant] }, { rate }] });
  await touch(ofSample, SAMPLE.keys, pathOf);
  const sample = await lifetimesOf(redis, SAMPLE.name);
  const sampleEndsMs = performance.now() + sample.mostMs;

  const ofNames = sluice.bucket(HELD.name, { perKey: { rate: HELD.rate } });
  const levels = [{ limits: [PATHS.tenant] }, { rate: HELD.rate }];
  const ofPaths = sluice.bucket(PATHS.name, { perKey: levels });
  const paths = Math.ceil(keys / PATHS.perTenant);
  const heldNames = await heldRows(redis, ofNames, { keys, keyOf: (number) => `key-${number}` });
  const left = await sampleRows(redis, sample, { sampleEndsMs, isAwaited: !flags.isQuick });
  // Starts with an empty Redis. Otherwise the growth of Redis's own tables would count as memory of a few keys.
  await redis.flushall();
  return [
    {
      title: `${formatNumber(keys)} keys, each touched once, of a bucket with ${HELD.rate} a key`,
      rows: [...heldNames, ...left],
    },
    {
      title: `${formatNumber(paths)} endpoints, each touched once, ${PATHS.perTenant} of each tenant, of a bucket with limits of both`,
      rows: await heldRows(redis, ofPaths, { keys: paths, keyOf: pathOf }),
    },
  ];
}

interface Touched {
  readonly keys: number;
  readonly keyOf: (number: number) => Key;
}

async function heldRows(redis: Redis, bucket: Bucket, { keys, keyOf }: Touched): Promise<Row[]> {
  const usedBefore = await usedMemory(redis);
  const startMs = performance.now();
  await touch(bucket, keys, keyOf);
  const seconds = (performance.now() - startMs) / 1_000;
  const bytes = ((await usedMemory(redis)) - usedBefore) / keys;
  const held = await lifetimesOf(redis, bucket.name);
  return [
    rowOf("bytes of each in Redis", bytes, { digits: 0 }),
    rowOf("Redis keys of each", held.keys / keys),
    rowOf("touched a second, by one process", keys / seconds, { digits: 0 }),
    rowOf("shortest time that one is kept on, s (−0.001: for ever)", held.leastMs / 1_000, {
      bound: { atLeast: 0 },
      digits: 1,
    }),
    rowOf("longest time that one is kept on, s", held.mostMs / 1_000, {
      bound: { atMost: HELD.mostKeptSeconds },
      digits: 1,
    }),
  ];
}

function pathOf(number: number): Key {
  return [`tenant-${Math.floor(number / PATHS.perTenant)}`, `endpoint-${number}`];
}

async function sampleRows(
  redis: Redis,
  { mostMs }: Lifetimes,
  { sampleEndsMs, isAwaited }: { readonly sampleEndsMs: number; readonly isAwaited: boolean },
): Promise<Row[]> {
  const { keys, rate, name } = SAMPLE;
  const kept = rowOf(
    `of ${formatNumber(keys)} endpoints with ${rate}: kept on, s`,
    mostMs / 1_000,
    {
      digits: 1,
    },
  );
  if (!isAwaited) return [kept];
  await pause(Math.max(0, sampleEndsMs - performance.now()));
  const left = await countLeft(redis, name);
  return [kept, rowOf("left of them after that", left, { bound: { atMost: 0 }, digits: 0 })];
}

async function touch(bucket: Bucket, keys: number, keyOf: Touched["keyOf"]): Promise<void> {
  let next = 0;

  async function touchSome(): Promise<void> {
    while (next < keys) await bucket.tryDraw({ key: keyOf((next += 1)) });
  }

  await Promise.all(Array.from({ length: CALLERS }, touchSome));
}

/** Reads the lifetimes of the keys' state only, because the bucket's own state is kept for an idle hour. */
async function lifetimesOf(redis: Redis, bucket: string): Promise<Lifetimes> {
  let keys = 0;
  let leastMs = Infinity;
  let mostMs = 0;
  for await (const names of scanKeys(redis, bucket)) {
    const asked = redis.pipeline();
    for (const name of names) asked.pttl(name);
    for (const [, ms] of (await asked.exec()) ?? []) {
      keys += 1;
      leastMs = Math.min(leastMs, ms as number);
      mostMs = Math.max(mostMs, ms as number);
    }
  }
  return { keys, leastMs, mostMs };
}

/** Counts the keys that still exist after their time, once Redis has had time to remove them. */
async function countLeft(redis: Redis, bucket: string): Promise<number> {
  const deadlineMs = performance.now() + SWEEP_MS;
  for (;;) {
    let left = 0;
    for await (const names of scanKeys(redis, bucket)) left += names.length;
    if (left === 0 || performance.now() > deadlineMs) return left;
    await pause(LOOK_MS);
  }
}

function scanKeys(redis: Redis, bucket: string): AsyncIterable<string[]> {
  return redis.scanStream({ match: `*{${bucket}}:key:*`, count: SCANNED_AT_ONCE });
}
