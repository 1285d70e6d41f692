import type { Redis } from "ioredis";
import { expect, it } from "vitest";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();

/** What an idle process sends; none of these is called by a script. */
const ASKED = ["evalsha", "eval", "ping", "subscribe", "bzpopmin", "xread"];
const MOST_A_MINUTE = 40;

/** How often a server was asked so far: in all, and to block. */
async function counts(operator: Redis): Promise<{ readonly all: number; readonly blocks: number }> {
  const stats = await operator.info("commandstats");
  const countOf = (name: string): number =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  const all = ASKED.reduce((sum, name) => sum + countOf(name), 0);
  return { all, blocks: countOf("bzpopmin") };
}

it("an idle process with a bucket, a queue and a worker rarely sends a request to Redis", async () => {
  const redis = await servers.start();
  const { operator } = redis;
  const sluice = redis.open();
  const bucket = sluice.bucket("b", { rate: "100/s" });
  await bucket.draw();
  const queue = sluice.queue<number>("jobs", { bucket });
  const done: number[] = [];
  sluice.worker(queue, async ({ data }) => void done.push(data));
  await queue.enqueue(1, { key: "a" });
  await waitUntil(async () => done.length === 1, "it has begun");
  const first = await counts(operator);
  await waitUntil(async () => (await counts(operator)).blocks >= first.blocks + 4, "it is idle");

  const before = await counts(operator);
  const fromMs = performance.now();
  await waitUntil(
    async () => (await counts(operator)).blocks >= before.blocks + 7,
    "half a minute",
  );
  const minutes = (performance.now() - fromMs) / 60_000;
  const after = await counts(operator);
  await queue.enqueueMany([2, 3], (number) => ({ key: number === 2 ? "a" : undefined }));
  await waitUntil(async () => done.length === 3, "the next jobs are done");

  const asked = (after.all - before.all) / minutes;
  expect(asked).toBeLessThanOrEqual(MOST_A_MINUTE);
});
