import { Queue as StoredQueue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { Handler } from "sluice";
import { openAtWork } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("a handler that removes its own job", () => {
  it("through the queue is refused, since the job runs, and the job is done", async () => {
    const removed: boolean[] = [];
    const { queue } = openAtWork(
      sluices,
      async (job) => void removed.push(await queue.remove(job.id)),
    );

    const job = await queue.enqueue("a");
    await job.finished();

    expect(removed).toEqual([false]);
  });

  it("directly in Redis leaves an error in the log, no dead letter, and a worker that continues", async () => {
    const redis = new Redis(inject("redisUrl"));
    const stored = new StoredQueue("{jobs}", { connection: redis, prefix: sluices.prefix() });
    const { queue, errors } = openAtWork(sluices, async (job) => {
      if (job.data === "gone") await redis.del(stored.toKey(job.id));
    });

    await queue.enqueue("gone");
    await (await queue.enqueue("next")).finished();
    await waitUntil(() => errors.length > 0, "it is reported");

    expect(errors.join()).toContain("Missing key for job");
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 0, delayed: 0 });
    await stored.close();
    await redis.quit();
  });
});

describe("a handler that returns immediately", () => {
  it.each([
    ["without a time limit", {}],
    ["within one", { timeoutMs: 60_000 }],
  ])("%s is done with its result", async (_how, options) => {
    const { queue } = openAtWork(sluices, (job) => `${job.data} done`, { options });

    const job = await queue.enqueue("a");

    await expect(job.finished()).resolves.toBe("a done");
  });
});

describe("handlers that call through their own bucket, which limits calls at once,", () => {
  it.each([
    ["on their jobs' slots", {}],
    ["at another cost", { cost: 2 }],
  ])("do not wait for each other %s, though all leases are theirs", async (_how, call) => {
    const policy = { burst: 2, concurrency: 2 };
    const running: (() => void)[] = [];
    const { bucket, queue } = openAtWork(
      sluices,
      async () => {
        const slot = await bucket.draw(call);
        // Both are under way at once, so that neither has what the other gave back.
        await new Promise<void>((resolve) => {
          running.push(resolve);
          if (running.length === 2) for (const end of running) end();
        });
        slot.release();
      },
      { policy },
    );

    const jobs = await queue.enqueueMany(["a", "b"]);
    await Promise.all(jobs.map((job) => job.finished()));

    expect(running).toHaveLength(2);
  });
});

describe("what a handler reports about its job", () => {
  it("is kept: the last 100 lines, of 1,000 characters each, and the last progress", async () => {
    const { queue } = openAtWork(sluices, async (_job, { log, progress }) => {
      for (let line = 1; line <= 101; line += 1) await log(`${line} ${"x".repeat(2_000)}`);
      await progress({ part: 0.5 });
      await progress({ part: 1 });
    });

    const job = await queue.enqueue("a");
    await job.finished();
    const lines = await job.logs();

    expect(lines).toHaveLength(100);
    expect(lines[0]).toMatch(/^2 x+$/);
    expect(lines[0]).toHaveLength(1_000);
    expect(await job.progress()).toEqual({ part: 1 });
  });

  it("as its progress must be JSON, and short", async () => {
    const reasons: unknown[] = [];
    const { queue } = openAtWork(sluices, async (_job, { progress }) => {
      for (const value of [1n as never, "x".repeat(10_001)]) {
        await Promise.resolve()
          .then(() => progress(value))
          .catch((error) => reasons.push(error));
      }
    });

    await (await queue.enqueue("a")).finished();

    expect(reasons).toMatchObject([
      { code: "ERR_INVALID_OPTION", option: "value" },
      { code: "ERR_INVALID_OPTION", option: "value" },
    ]);
  });

  it("as the true cost of its call is settled", async () => {
    const { bucket, queue } = openAtWork(
      sluices,
      async (_job, { slot }) => slot.settle({ calls: 400 }),
      {
        policy: { rate: "1/s", burst: 1_000 },
      },
    );

    await (await queue.enqueue("a", { cost: 10 })).finished();
    const { limits } = await bucket.peek();

    expect(limits[0]!.level).toBeGreaterThan(390);
  });
});

describe("an attempt", () => {
  it("is never used by a wait for a slot, however often workers start and close", async () => {
    const attempts: string[] = [];
    const handler: Handler<string, void> = async (job, { attempt }) =>
      void attempts.push(`${job.id} ${attempt}`);
    const options = { options: { concurrency: 40 }, policy: { rate: "20/s" } };
    const { queue, bucket, worker } = openAtWork(sluices, handler, options);
    const keyed = Array.from({ length: 20 }, (_, index) => `job ${index}`);
    await queue.enqueueMany(keyed, (_data, index) => ({ key: `k${index % 3}`, attempts: 1 }));
    await queue.enqueueMany(keyed, { attempts: 1 });

    let closing = worker;
    for (let round = 1; round <= 10; round += 1) {
      await waitUntil(() => attempts.length >= round * 2, `${round * 2} jobs are done`);
      await bucket.pause({ forMs: 50 });
      await closing.close();
      closing = openAtWork(sluices, handler, options).worker;
    }
    await waitUntil(() => attempts.length >= 40, "all jobs are done");

    expect(attempts.filter((each) => !each.endsWith(" 1"))).toEqual([]);
    expect(new Set(attempts).size).toBe(40);
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 0, delayed: 0 });
  });
});
