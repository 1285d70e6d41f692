import { Worker as BullWorker } from "bullmq";
import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { expect, inject, it } from "vitest";
import { openLanes, upTo } from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** What Redis held of one key, by its type. */
type Held =
  | { readonly hash: Record<string, string> }
  | { readonly zset: readonly string[] }
  | { readonly list: readonly string[] }
  | { readonly string: string };

/**
 * A queue as the build before `jobs-take` left it when its worker was killed: with jobs in lanes, one lane aside, jobs let
 * out and not fetched, active, delayed, retried, and without a key.
 */
const DUMP = new URL("earlier-build.json", import.meta.url);

const lanes = openLanes();

async function restore(): Promise<Map<string, string>> {
  const keys = JSON.parse(readFileSync(DUMP, "utf8")) as Record<string, Held>;
  const data = new Map<string, string>();
  for (const [name, held] of Object.entries(keys)) {
    const key = `${lanes.prefix}:{jobs}:${name}`;
    if ("hash" in held) {
      await lanes.redis.hset(key, held.hash);
      if (held.hash["data"] !== undefined) data.set(name, JSON.parse(held.hash["data"]) as string);
    } else if ("list" in held) await lanes.redis.rpush(key, ...held.list);
    else if ("string" in held) await lanes.redis.set(key, held.string);
    else {
      for (let at = 0; at < held.zset.length; at += 2) {
        await lanes.redis.zadd(key, held.zset[at + 1]!, held.zset[at]!);
      }
    }
  }
  const done = (keys["completed"] as { readonly zset: readonly string[] }).zset;
  for (const id of done) data.delete(id);
  return data;
}

it("runs all jobs that an earlier build has left, each once", async () => {
  const left = await restore();
  const { sluice, queue } = lanes.open({ rate: "1000/s", burst: 5 });
  const done: string[] = [];

  sluice.worker(queue, async ({ data }) => void done.push(String(data)), { lockMs: 1_000 });
  await waitUntil(() => done.length >= left.size, "all are done");

  expect(done.toSorted()).toEqual([...left.values()].toSorted());
});

/** How the build before `jobs-take` let the next job out of its lane, for BullMQ's own fetch. */
const FEED_ONE = `
  local jobs, own, now_ms = KEYS[1], KEYS[1] .. 'lanes:', redis.call('TIME')[1] * 1000
  local key, start = unpack(redis.call('ZRANGE', own .. 'ready', 0, 0, 'WITHSCORES'))
  if not key then return 0 end
  local lane = own .. 'of:' .. key
  local id = redis.call('ZPOPMIN', lane)[1]
  if id then
    redis.call('HINCRBY', own .. 'state', 'parked', -1)
    if redis.call('ZREM', jobs .. 'delayed', id) == 1 then
      redis.call('HSET', jobs .. id, 'delay', 0)
      redis.call('LPUSH', jobs .. 'wait', id)
      redis.call('ZADD', own .. 'fed', now_ms, id)
      redis.call('HSET', own .. 'state', 'v', start)
    end
  end
  if redis.call('EXISTS', lane) == 1 then redis.call('ZADD', own .. 'ready', start + 1, key)
  else redis.call('ZREM', own .. 'ready', key) end
  redis.call('ZADD', jobs .. 'marker', 0, '0')
  return 1`;

it("shares a queue with a worker of an earlier build, and each job runs once", async () => {
  const { sluice, queue } = lanes.open({ rate: "1000/s", burst: 20 });
  const ours: number[] = [];
  const theirs: number[] = [];
  const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  await queue.enqueueMany(upTo(600), (data) => ({
    key: data % 4 === 0 ? undefined : `k${data % 4}`,
  }));

  sluice.worker(queue, async ({ data }) => void ours.push(data), { concurrency: 5 });
  const earlier = new BullWorker<number>("{jobs}", async ({ data }) => void theirs.push(data), {
    prefix: lanes.prefix,
    connection,
    concurrency: 5,
  });
  await waitUntil(async () => {
    await lanes.redis.eval(FEED_ONE, 1, `${lanes.prefix}:{jobs}:`);
    const { active, waiting, delayed } = await queue.counts();
    return active + waiting + delayed === 0;
  }, "all are done");
  await earlier.close();
  await connection.quit();

  expect([...ours, ...theirs].toSorted((a, b) => a - b)).toEqual(upTo(600));
  expect(ours).not.toEqual([]);
  expect(theirs).not.toEqual([]);
});
