import { Redis } from "ioredis";
import { afterEach, describe, expect, it } from "vitest";
import { createSluice, type Bucket, type Sluice } from "sluice";
import { startRedis, type LocalRedis } from "../support/local-redis.ts";
import { waitUntil } from "../support/wait-until.ts";

let redis: LocalRedis | undefined;
let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await redis?.stop();
});

const BURST = 50;

function openBucket(onStateLost?: "full" | "empty"): Bucket {
  const logger = { warn: () => {}, error: () => {} };
  const sluice = createSluice({ redis: redis!.url, storeTimeoutMs: 30_000, logger });
  opened.push(sluice);
  return sluice.bucket("b", { rate: "1/min", burst: BURST, onStateLost });
}

/** Spends what a bucket of 1/min has, one after the other. */
async function spend(bucket: Bucket): Promise<number> {
  let spent = 0;
  while ((await bucket.tryDraw()).allowed) spent += 1;
  return spent;
}

const losses: [string, () => Promise<void>][] = [
  [
    "is flushed",
    async () => {
      const client = new Redis(redis!.url);
      await client.flushall();
      await client.quit();
    },
  ],
  [
    "starts again without its log",
    async () => {
      const port = Number(new URL(redis!.url).port);
      await redis!.stop();
      redis = await startRedis({ fresh: true, port });
    },
  ],
];

describe.each(losses)("a Redis that %s", (_how, lose) => {
  it("gives a bucket's burst no second time", async () => {
    redis = await startRedis({ fresh: true });
    const [first, second] = [openBucket(), openBucket()];
    const before = (await spend(first)) + (await spend(second));

    await lose();
    const after = (await spend(first)) + (await spend(second));

    expect(before).toBe(BURST);
    expect(after).toBe(0);
  });

  it("gives it again where the bucket is to start full", async () => {
    redis = await startRedis({ fresh: true });
    const bucket = openBucket("full");
    await spend(bucket);

    await lose();
    // A refusal is remembered for a while.
    await bucket.resume();

    expect(await spend(bucket)).toBe(BURST);
  });
});

describe("a draw by hand after Redis has lost everything", () => {
  it("waits as one does whose burst has just left", async () => {
    redis = await startRedis({ fresh: true });
    const bucket = openBucket();
    await bucket.draw();
    const client = new Redis(redis.url);
    await client.flushall();

    const waiting = bucket.draw({ maxWaitMs: 60_000 }).catch(() => undefined);
    await waitUntil(async () => (await client.exists("sluice:{b}:state")) === 1, "it has drawn");

    expect((await bucket.peek()).limits[0]!.remaining).toBe(0);
    await Promise.all([opened[0]!.close(), waiting]);
    await client.quit();
  });
});
