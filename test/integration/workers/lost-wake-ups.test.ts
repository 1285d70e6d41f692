import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
/** Servers of their own, or the waits of other tests would be seen as well. */
const servers = ownRedisServers();

/**
 * What Redis sees of a worker that stands still while it waits for jobs: it takes the marker that wakes a worker, and no job.
 * Resolves once it has taken one.
 */
function openFrozenWorker(): () => Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  const marker = `${sluices.prefix()}:{jobs}:marker`;
  return async () => {
    await redis.bzpopmin(marker, 0);
  };
}

/** How many clients wait for the marker that wakes a worker. */
async function waitsForMarker(operator: Redis): Promise<number> {
  const clients = String(await operator.call("CLIENT", "LIST")).split("\n");
  return clients.filter((each) => / flags=b .* cmd=bzpopmin /.test(each)).length;
}

function openJobs() {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s" });
  return { sluice, queue: sluice.queue<number>("jobs", { bucket }) };
}

describe("a worker that stands still", () => {
  it.each([
    ["a job without a key", {}],
    ["a job with a key", { key: "acme" }],
    ["a job with an id", { id: "order-1" }],
    ["a job that comes due", { delayMs: 100 }],
    ["a run of a schedule", { every: 60_000, dedupeId: "sync" }],
  ])(
    "has another woken in its place, as often as it takes, by who enqueued %s",
    async (_what, options) => {
      const { queue, sluice } = openJobs();
      const wakeFrozen = openFrozenWorker();

      const woken = wakeFrozen();
      const job = await queue.enqueue(1, options);
      await woken;
      await wakeFrozen();
      await wakeFrozen();
      const done: string[] = [];
      sluice.worker(queue, async ({ id }) => void done.push(id));
      await waitUntil(() => done.length === 1, "a worker that is well has it");

      expect(done).toEqual([job.id]);
    },
  );

  it("has another woken by who replays a dead letter", async () => {
    const { queue, sluice } = openJobs();
    sluice.worker(queue, () => {
      throw new Error("not now");
    });
    const { id } = await queue.enqueue(1, { attempts: 1 });
    await waitUntil(async () => (await queue.counts()).failed === 1, "it is a dead letter");
    // Who has enqueued the job would look after it anyway.
    await sluice.close();
    const wakeFrozen = openFrozenWorker();

    const woken = wakeFrozen();
    const { queue: other } = openJobs();
    await other.replay(id);
    await woken;
    await wakeFrozen();

    await expect(wakeFrozen()).resolves.toBeUndefined();
  });

  it("has another woken by who makes all jobs due", async () => {
    const { queue } = openJobs();
    const wakeFrozen = openFrozenWorker();
    const woken = wakeFrozen();
    await queue.enqueue(1, { delayMs: 3_600_000 });
    await woken;

    const again = wakeFrozen();
    await queue.rescheduleJobs({}, { delayMs: 0 });
    await again;

    await expect(wakeFrozen()).resolves.toBeUndefined();
  });

  it("has another woken by who makes a job due", async () => {
    const { queue } = openJobs();
    const wakeFrozen = openFrozenWorker();
    const woken = wakeFrozen();
    const job = await queue.enqueue(1, { delayMs: 3_600_000, key: "acme" });
    // It is told that a job is delayed.
    await woken;

    const again = wakeFrozen();
    await job.runNow();
    await again;

    await expect(wakeFrozen()).resolves.toBeUndefined();
  });

  it("does not keep a worker that brings a dead one's job back from doing it, before its own wait is over", async () => {
    const server = await servers.start();
    const { url, operator } = server;
    const producer = server.open();
    const bucket = producer.bucket("downstream", { rate: "500/s" });
    const { id } = await producer.queue<number>("jobs", { bucket }).enqueue(1);
    await producer.close();
    const [prioritized] = await operator.keys("*{jobs}:prioritized");
    const keyOf = (name: string): string => prioritized!.replace(/prioritized$/, name);
    await operator
      .multi()
      .zrem(prioritized!, id)
      .lpush(keyOf("active"), id)
      .del(keyOf("marker"))
      .exec();
    const frozen = new Redis(url);
    onTestFinished(() => frozen.disconnect());
    const swallowed = frozen.bzpopmin(keyOf("marker"), 0);
    await waitUntil(async () => (await waitsForMarker(operator)) === 1, "it is the first in line");

    const sluice = server.open();
    const own = sluice.bucket("downstream", { rate: "500/s" });
    const waits: number[] = [];
    sluice.worker(
      sluice.queue<number>("jobs", { bucket: own }),
      async () => void waits.push(await waitsForMarker(operator)),
      { lockMs: 1_000, concurrency: 1 },
    );
    await waitUntil(() => waits.length === 1, "the job is done");
    await swallowed;

    // The wait that the worker was in goes on: no other ends it.
    expect(waits).toEqual([1]);
  });
});
