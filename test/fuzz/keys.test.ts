import { randomUUID } from "node:crypto";
import slotOf from "cluster-key-slot";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, expect, inject, it } from "vitest";
import {
  concurrency,
  createSluice,
  leakyBucket,
  slidingLog,
  slidingWindow,
  type Sluice,
} from "sluice";
import type { Limit } from "../../src/core/limits/rule.ts";
import { KEY, NAME } from "../../src/core/input/options.ts";
import { bucketKeys } from "../../src/stores/redis/scripts/keys.ts";
import { hostileName } from "./support/hostile.ts";
import { forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

/** Names that pass are rare among hostile ones: those that look like a part of a key, and any others. */
const name = fc.oneof(
  fc.string({ unit: fc.constantFrom("a", "%", "3", "A", " ", "k", "é", "\u0301"), maxLength: 8 }),
  fc.constantFrom("state", "key", "turns", "log", "0", "*", "?", "__proto__", "[a-z]"),
  hostileName,
);
const key = fc.oneof(
  fc.string({ unit: fc.constantFrom("a", "%", "3", "A", ":", "0", "/"), maxLength: 8 }),
  fc.constantFrom("state", "a:state", "a%3Astate", "a:turns", "x:log:0", ":", "%", "%25", "%3A"),
  hostileName,
);
const ALL_KINDS: readonly Limit[] = [
  leakyBucket("1000/s", { burst: 50 }),
  slidingLog(1_000, "1s"),
  slidingWindow(1_000, "1s"),
  slidingLog(100, "1min"),
  concurrency(100),
];

let redis: Redis;
let sluice: Sluice;
let prefix = "";
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(() => {
  prefix = `t${randomUUID()}`;
});
afterAll(() => redis.quit());

async function keysOfTest(): Promise<string[]> {
  const all = await redis.keys(`${prefix}:*`);
  // What processes tell of themselves, at times of their own; no bucket or queue can have its name.
  return all.filter((each) => !each.startsWith(`${prefix}:{:fleet}`));
}

it("gives no two pairs of bucket and key one key in Redis", async () => {
  const good = fc.tuple(
    name.filter((text) => NAME.safeParse(text).success),
    key.filter((text) => KEY.safeParse(text).success),
  );
  await forAll(1_500, fc.tuple(good, good), async ([one, other]) => {
    const [first, second] = [one, other].map(([bucketName, ownKey]) => {
      const limited = [{ key: ownKey, limits: ALL_KINDS }];
      return bucketKeys("sluice", bucketName, ALL_KINDS, limited);
    }) as [string[], string[]];
    expect(new Set(first).size).toBe(first.length);
    const shared = first.filter((each) => second.includes(each));
    if (one[0] !== other[0]) expect(shared).toEqual([]);
    // What all keys of a bucket share, and no more.
    else if (one[1] !== other[1]) expect(shared.some((each) => each.includes(":key:"))).toBe(false);
  });
});

it("writes all of a bucket below its own prefix and hash tag, and nothing for a bad name", async () => {
  sluice = createSluice({ redis: inject("redisUrl"), prefix, logger: SILENT });
  await sluice.bucket("warm", { rate: "1/s" }).tryDraw();
  let known = new Set(await keysOfTest());
  await forAll(200, fc.tuple(name, key), async ([bucketName, ownKey]) => {
    const drawn = await outcomeOf(async () => {
      const bucket = sluice.bucket(bucketName, {
        limits: ALL_KINDS,
        perKey: { limits: ALL_KINDS },
      });
      const slot = await bucket.draw({ key: ownKey });
      slot.release();
      await bucket.tryDraw({ key: ownKey });
      await slot.settle({ calls: 2 });
    });
    const now = await keysOfTest();
    const added = now.filter((each) => !known.has(each));
    known = new Set(now);
    if (!drawn.worked) expect(added).toEqual([]);
    const tag = `${prefix}:{${bucketName}}:`;
    for (const each of added) {
      expect(each.startsWith(tag)).toBe(true);
      expect(slotOf(each)).toBe(slotOf(bucketName));
    }
  });
  await sluice.close();
});

it("keeps queues of any name apart, and stores nothing for a bad one", async () => {
  sluice = createSluice({ redis: inject("redisUrl"), prefix, logger: SILENT });
  const bucket = sluice.bucket("b", { rate: "1000/s" });
  await bucket.tryDraw();
  let known = new Set(await keysOfTest());
  await forAll(150, fc.tuple(name, key), async ([queueName, ownKey]) => {
    const stored = await outcomeOf(async () =>
      sluice
        .queue<string>(queueName, { bucket })
        .enqueue(queueName, { key: ownKey, dedupeId: ownKey }),
    );
    const now = await keysOfTest();
    const added = now.filter((each) => !known.has(each));
    known = new Set(now);
    if (!stored.worked) expect(added).toEqual([]);
    for (const each of added) expect(each.startsWith(`${prefix}:{${queueName}}:`)).toBe(true);
    if (stored.worked) expect(stored.value).toMatchObject({ key: ownKey, data: queueName });
  });
  await sluice.close();
});
