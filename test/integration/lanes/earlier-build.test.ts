import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { openLanes } from "../../support/jobs/open-lanes.ts";
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

it("does all jobs that an earlier build has left, each once", async () => {
  const left = await restore();
  const { sluice, queue } = lanes.open({ rate: "1000/s", burst: 5 });
  const done: string[] = [];

  sluice.worker(queue, async ({ data }) => void done.push(String(data)), { lockMs: 1_000 });
  await waitUntil(() => done.length >= left.size, "all are done");

  expect(done.toSorted()).toEqual([...left.values()].toSorted());
});
