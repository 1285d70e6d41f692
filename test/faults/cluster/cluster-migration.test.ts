import { describe, expect, it } from "vitest";
import type { Sluice } from "sluice";
import { startOwnCluster, type RedisCluster } from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { beginMigration } from "../../support/redis/migrate-slot.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;

const openOn = ({ open }: RedisCluster): Sluice =>
  openSluice({ redis: open(), prefix: "s", storeTimeoutMs: 30_000 });

describe("when a cluster migrates a slot under load", () => {
  it("there and back, the bucket starts every call and keeps its cap", async () => {
    const cluster = await startOwnCluster();
    const { primaries, ownerOf } = cluster;
    const sluices = [openOn(cluster), openOn(cluster)];
    const buckets = sluices.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s` }));
    /** How often the nodes answered with this error. */
    async function countOf(error: string): Promise<number> {
      const stats = await Promise.all(primaries.map(({ client }) => client.info("errorstats")));
      const found = stats.map(
        (text) => new RegExp(`errorstat_${error}:count=(\\d+)`).exec(text)?.[1],
      );
      return found.reduce((sum, count) => sum + Number(count ?? 0), 0);
    }
    const calls = drawSteadily(buckets, { callers: 10 });
    await waitUntil(() => calls.slots.length > 100, "calls leave");
    const slot = Number(await primaries[0]!.client.cluster("KEYSLOT", "{b}"));
    const from = (await ownerOf("b"))!;
    const to = primaries.find(({ id }) => id !== from.id)!;

    for (const [there, here] of [[from, to] as const, [to, from] as const]) {
      const [asked, triedAgain] = [await countOf("ASK"), await countOf("TRYAGAIN")];
      const migration = await beginMigration(slot, { from: there, to: here, all: primaries });
      await migration.moveKeys();
      await waitUntil(
        async () => (await countOf("ASK")) > asked && (await countOf("TRYAGAIN")) > triedAgain,
        "calls were sent on to the new node, and told to come again",
      );
      await migration.finish();
      const finishedAt = calls.slots.length;
      await waitUntil(() => calls.slots.length > finishedAt + 100, "calls leave again");
    }
    await calls.stop();

    const figures = figuresOf(timesOf(calls.slots), RATE);
    reportFigures("a slot of a cluster moves, and back", figures);
    expect(calls.errors).toEqual([]);
    expect(await countOf("MOVED")).toBeGreaterThan(0);
    expect(figures.extra).toBe(0);
    expect(await ownerOf("b")).toMatchObject({ id: from.id });
  });

  it("the queue's workers do every job once", async () => {
    const cluster = await startOwnCluster();
    const { primaries, ownerOf } = cluster;
    const sluice = openOn(cluster);
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    const queue = sluice.queue<number>("jobs", { bucket });
    const done: number[] = [];
    sluice.worker(queue, async (job) => void done.push(job.data));
    const jobs = Array.from({ length: 300 }, (_, index) => index);
    await queue.enqueueMany(jobs);
    await waitUntil(() => done.length > 50, "jobs are done");
    const slot = Number(await primaries[0]!.client.cluster("KEYSLOT", "{jobs}"));
    const from = (await ownerOf("jobs"))!;
    const to = primaries.find(({ id }) => id !== from.id)!;

    const migration = await beginMigration(slot, { from, to, all: primaries });
    await migration.finish();
    await waitUntil(() => done.length >= jobs.length, "all jobs are done");

    expect(done.toSorted((a, b) => a - b)).toEqual(jobs);
    expect((await queue.counts()).failed).toBe(0);
  });
});
