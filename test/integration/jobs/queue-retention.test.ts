import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished, vi } from "vitest";
import type { Handler } from "sluice";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const DAY_MS = 86_400_000;
const sluices = realSluices();
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

const keyOf = (name: string | undefined): string => `${sluices.prefix()}:{jobs}:${name}`;

/** Has all jobs done by a worker that lives just so long. */
async function workOff(handler: Handler<number, unknown>, jobs: readonly number[]): Promise<void> {
  const { sluice, queue } = openQueue<number>(sluices, { rate: "100000/s" });
  const finished = (await queue.enqueueMany(jobs)).map((job) => job.finished());
  const worker = sluice.worker(queue, handler, { concurrency: 100 });
  await Promise.all(finished);
  await worker.close();
}

describe("done jobs", () => {
  it("are removed completely once they were done a day ago", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const [old, recent] = await queue.enqueueMany(["old", "recent"]);
    sluice.worker(queue, (_job, { log }) => log("a line"), { concurrency: 1 });
    await Promise.all([old!.finished(), recent!.finished()]);
    await redis.zadd(keyOf("completed"), Date.now() - DAY_MS - 1, old!.id);
    await redis.zadd(keyOf("completed"), Date.now() - DAY_MS + 600_000, recent!.id);

    const next = await queue.enqueue("next");
    await next.finished();

    await waitUntil(async () => (await queue.counts()).done === 2, "the old one is removed");
    expect(await redis.keys(`${keyOf(old!.id)}*`)).toEqual([]);
    const kept = [recent!.id, `${recent!.id}:logs`].map(keyOf).sort();
    expect((await redis.keys(`${keyOf(recent!.id)}*`)).sort()).toEqual(kept);
  });

  it("are removed once they are too old, though no other job is done", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { keepDone: { forMs: 1_000 } });
    sluice.worker(queue, async () => {});
    const jobs = await queue.enqueueMany([1, 2, 3]);
    await Promise.all(jobs.map((job) => job.finished()));

    await waitUntil(async () => (await redis.exists(keyOf(jobs[2]!.id))) === 0, "it is removed");
    expect((await queue.counts()).done).toBe(0);
  });

  it("of workers that are gone are removed by the next worker, though it runs no job", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await redis.zadd(keyOf("completed"), Date.now() - DAY_MS - 1, "old");

    sluice.worker(queue, async () => {});

    await waitUntil(async () => (await queue.counts()).done === 0, "it is removed");
    expect(await redis.exists(keyOf("completed"))).toBe(0);
  });

  it("have the age by the clock of the process that ran them, however slow that is", async () => {
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - DAY_MS - 3_600_000 });
    onTestFinished(() => void vi.useRealTimers());
    const { sluice, queue } = openQueue<string>(sluices);
    await redis.zadd(keyOf("completed"), Date.now() - DAY_MS - 1, "old");
    sluice.worker(queue, async () => {});

    const next = await queue.enqueue("next");
    await next.finished();

    await waitUntil(async () => (await redis.zscore(keyOf("completed"), "old")) === null, "a look");
    expect(await redis.zrange(keyOf("completed"), 0, -1)).toEqual([next.id]);
  });

  it("stay within their bound when no worker lives long enough to do many", async () => {
    const few = Array.from({ length: 30 }, (_, index) => index);
    await workOff(
      async () => {},
      Array.from({ length: 1_000 }, (_, index) => index),
    );
    for (let worker = 0; worker < 5; worker++) await workOff(async () => {}, few);

    const { queue } = openQueue(sluices);
    expect((await queue.counts()).done).toBe(1_000);
  });

  it("are removed however many there are, when the next job is done", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const old = Array.from({ length: 2_500 }, (_, index) => [DAY_MS + index, `old ${index}`]);
    await redis.zadd(keyOf("completed"), ...old.flat());
    sluice.worker(queue, async () => {});

    const next = await queue.enqueue("next");
    await next.finished();

    await waitUntil(async () => (await queue.counts()).done === 1, "all others are removed");
    expect(await redis.zrange(keyOf("completed"), 0, -1)).toEqual([next.id]);
  });

  it("are removed in the order in which they were done, whichever was enqueued first", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "100000/s" });
    let lateMayEnd = (): void => {};
    const late = new Promise<void>((resolve) => (lateMayEnd = resolve));
    const jobs = await queue.enqueueMany(Array.from({ length: 1_101 }, (_, index) => index));
    sluice.worker(queue, (job) => (job.data === 0 ? late : Promise.resolve()), {
      concurrency: 100,
    });
    await waitUntil(async () => {
      const { active, waiting } = await queue.counts();
      return active === 1 && waiting === 0;
    }, "only the first one runs");

    lateMayEnd();
    await jobs[0]!.finished();

    await waitUntil(async () => (await queue.counts()).done === 1_000, "the others are removed");
    expect(await redis.zscore(keyOf("completed"), jobs[0]!.id)).not.toBeNull();
  });
});
