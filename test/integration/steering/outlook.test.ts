import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { etaOf, forecastOf, pretendWorker } from "../../support/jobs/outlook.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const downstream = useDownstream();

describe("the forecast of a queue", () => {
  it("is nothing without a worker, and the reason is given", async () => {
    const { queue } = openQueue<string>(sluices, { rate: "100/s" });
    const empty = await queue.forecast();
    const [first] = await queue.enqueueMany(["a", "b"], { key: "acme", maxWaitMs: 60_000 });

    const reason = "no worker";
    const none = { waiting: 0, workers: 0, totalConcurrency: 0, places: 0 };
    expect(empty).toEqual({ ...none, emptyInMs: 0, goneInMs: 0, missed: [] });
    expect(await first!.eta()).toEqual({ position: 0, startsInMs: undefined, reason });
    expect(await queue.forecast()).toEqual({
      ...none,
      waiting: 2,
      emptyInMs: undefined,
      reason,
      missed: [],
    });
  });

  it("counts the workers of all processes, until they are closed or killed", async () => {
    const { sluice, queue } = openQueue<string>(sluices, { rate: "1/min" });
    await queue.enqueueMany(["a", "b", "c"]);
    const args = [inject("redisUrl"), sluices.prefix(), "1/min", downstream.url, "0", "30000"];
    const other = processes.start("workers/job-worker.ts", args);
    const worker = sluice.worker(queue, async () => {}, { concurrency: 5 });
    const live = async (): Promise<number[]> => {
      const { workers, totalConcurrency } = await queue.forecast();
      return [workers, totalConcurrency];
    };

    await waitUntil(async () => (await live())[0] === 2, "both are counted");
    const both = await live();
    const promised = await forecastOf(queue);
    await worker.close();
    const one = await live();
    other.signal("SIGKILL");
    await waitUntil(async () => (await live())[0] === 0, "the killed one counts no more");

    expect([both, one]).toEqual([
      [2, 25],
      [1, 20],
    ]);
    expect(promised.emptyInMs).toBeGreaterThan(50_000);
    expect(promised.goneInMs).toBe(promised.emptyInMs);
    expect(await queue.forecast()).toMatchObject({ emptyInMs: undefined, reason: "no worker" });
  });

  it("is nothing for a paused key, and unchanged for others", async () => {
    await pretendWorker(sluices.prefix(), "jobs");
    const { queue } = openQueue<string>(sluices, { rate: "10/s" });
    const [first] = await queue.enqueueMany(["a", "b"], { key: "acme" });
    const later = await queue.enqueue("later", { key: "acme", delayMs: 1_000 });
    const other = await queue.enqueue("c", { key: "beta" });

    await queue.pause({ key: "acme" });
    const paused = {
      etas: [await first!.eta(), await later.eta()],
      all: await queue.forecast(),
      own: await queue.forecast({ key: "acme" }),
    };
    const ofOther = await queue.forecast({ key: "beta" });
    const { startsInMs } = await etaOf(other);
    await queue.pause({ key: "acme", forMs: 600_000 });
    const late = await etaOf(first!);
    await queue.resume({ key: "acme" });
    const soon = await etaOf(first!);

    const reason = "key paused";
    for (const eta of paused.etas) expect(eta).toMatchObject({ startsInMs: undefined, reason });
    expect(paused.all).toMatchObject({ waiting: 3, emptyInMs: undefined, reason });
    expect(paused.own).toMatchObject({ waiting: 2, emptyInMs: undefined, reason });
    expect(ofOther).toMatchObject({ waiting: 1, emptyInMs: expect.any(Number) as number });
    expect(startsInMs).toBeLessThan(10_000);
    expect(late.startsInMs).toBeGreaterThan(500_000);
    expect(soon.startsInMs).toBeLessThan(10_000);
    expect(await queue.forecast({ key: "nobody" })).toMatchObject({ waiting: 0, emptyInMs: 0 });
  });

  it("is nothing while the queue is paused, and later if the pause has an end", async () => {
    await pretendWorker(sluices.prefix(), "jobs");
    const { queue } = openQueue<string>(sluices);
    const job = await queue.enqueue("a");

    await queue.pause();
    const paused = await job.eta();
    await queue.pause({ forMs: 600_000 });

    expect(paused).toEqual({ position: 0, startsInMs: undefined, reason: "queue paused" });
    expect((await etaOf(job)).startsInMs).toBeGreaterThan(500_000);
    expect((await forecastOf(queue)).emptyInMs).toBeGreaterThan(500_000);
  });
});

it("ignores workers that are gone", async () => {
  const { sluice, queue } = openQueue<string>(sluices);
  const redis = new Redis(inject("redisUrl"));
  const key = `${sluices.prefix()}:${queue.stored.name}:workers:live`;
  const args = [inject("redisUrl"), sluices.prefix(), "1/min", downstream.url, "0", "30000"];
  const other = processes.start("workers/job-worker.ts", args);
  await waitUntil(async () => (await queue.forecast()).workers === 1, "it is counted");

  other.signal("SIGKILL");
  await waitUntil(async () => (await redis.exists(key)) === 0, "it is forgotten");
  const worker = sluice.worker(queue, async () => {});
  await waitUntil(async () => (await queue.forecast()).workers === 1, "another is counted");
  await worker.close();

  expect(await redis.exists(key)).toBe(0);
  await redis.quit();
});

it("still counts an idle worker after a busy one has gone", async () => {
  const { sluice, queue } = openQueue<string>(sluices);
  const redis = new Redis(inject("redisUrl"));
  const key = `${sluices.prefix()}:${queue.stored.name}:workers:live`;
  const [seconds] = await redis.time();
  await redis.hset(key, "idle", `${(Number(seconds) + 60) * 1_000} 50`);

  sluice.worker(queue, async () => {});
  await waitUntil(async () => (await queue.forecast()).workers === 2, "both are counted");

  expect(await redis.pttl(key)).toBeGreaterThan(30_000);
  await redis.quit();
});
