import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import type { Bucket, Sluice } from "sluice";
import { openSluice, portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const BURST = 50;

const openOn = ({ url }: LocalRedis): Sluice => openSluice({ redis: url, storeTimeoutMs: 30_000 });

const bucketOf = (sluice: Sluice, onStateLost?: "full" | "empty"): Bucket =>
  sluice.bucket("b", { rate: "1/min", burst: BURST, onStateLost });

/** Spends what a bucket of 1/min has, one after the other. */
async function spend(bucket: Bucket): Promise<number> {
  let spent = 0;
  while ((await bucket.tryDraw()).allowed) spent += 1;
  return spent;
}

const losses: [string, (redis: LocalRedis) => Promise<void>][] = [
  [
    "is flushed",
    async ({ url }) => {
      const client = new Redis(url);
      await client.flushall();
      await client.quit();
    },
  ],
  [
    "starts again without its log",
    async (redis) => {
      await redis.stop();
      await startOwnRedis({ port: portOf(redis) });
    },
  ],
];

describe.each(losses)("a Redis that %s", (_how, lose) => {
  it("does not grant a bucket's burst twice", async () => {
    const redis = await startOwnRedis();
    const [first, second] = [bucketOf(openOn(redis)), bucketOf(openOn(redis))];
    const before = (await spend(first)) + (await spend(second));

    await lose(redis);
    const after = (await spend(first)) + (await spend(second));

    expect(before).toBe(BURST);
    expect(after).toBe(0);
  });

  it("grants the burst again if the bucket starts full", async () => {
    const redis = await startOwnRedis();
    const bucket = bucketOf(openOn(redis), "full");
    await spend(bucket);

    await lose(redis);
    // A refusal is remembered for a while.
    await bucket.resume();

    expect(await spend(bucket)).toBe(BURST);
  });
});

describe("a draw after Redis has lost all data", () => {
  it("waits as if a burst had just left", async () => {
    const redis = await startOwnRedis();
    const sluice = openOn(redis);
    const bucket = bucketOf(sluice);
    await bucket.draw();
    const client = new Redis(redis.url);
    await client.flushall();

    const waiting = bucket.draw({ maxWaitMs: 60_000 }).catch(() => undefined);
    await waitUntil(async () => (await client.exists("sluice:{b}:state")) === 1, "it has drawn");

    expect((await bucket.peek()).limits[0]!.remaining).toBe(0);
    await Promise.all([sluice.close(), waiting]);
    await client.quit();
  });
});
