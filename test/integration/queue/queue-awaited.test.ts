import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { JobMissingError, type Queue, type QueuedJob } from "sluice";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const rate = "100000/s";
const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index);
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

const keyOf = (name: string): string => `${sluices.prefix()}:{jobs}:${name}`;

/**
 * From now on this queue hears of no event, as if it were too slow for the bounded list of events: it has read one with
 * an id far beyond those that come.
 */
async function deafen(queue: Queue<number>): Promise<void> {
  const heard: string[] = [];
  queue.on("stalled", ({ jobId }) => void heard.push(jobId));
  const event = ["event", "stalled", "jobId", "the last"];
  await redis.xadd(keyOf("events"), `${Date.now() * 2}-0`, ...event);
  await waitUntil(() => heard.includes("the last"), "it has heard the last event");
  await redis.del(keyOf("events"));
}

/** Waits for 20 jobs that are done, and no longer kept, before anything of them is heard. */
async function awaitForgotten(
  keepDone?: { count: number },
  alsoWait: (job: QueuedJob<number>) => Promise<void> = async () => {},
) {
  const { sluice, queue } = openQueue<number>(sluices, { rate, keepDone });
  const jobs = await queue.enqueueMany(numbers(20));
  const results = jobs.map((job) => job.finished());
  for (const result of results) result.catch(() => undefined);
  await rejectionOf(jobs[0]!.finished({ timeoutMs: 0 }));
  await deafen(queue);
  for (const job of jobs) await alsoWait(job);
  const worker = openQueue<number>(sluices, { rate, keepDone });
  worker.sluice.worker(worker.queue, async ({ data }) => ({ doubled: 2 * data }));
  if (keepDone === undefined) await worker.queue.enqueueMany(numbers(1_200));
  const areGone = async (): Promise<boolean> =>
    (await redis.exists(jobs.map(({ id }) => keyOf(id)))) === 0;
  await waitUntil(areGone, "the jobs are forgotten");
  return { sluice, results };
}

describe("the result for finished()", () => {
  it.each([
    ["behind 1,200 others", undefined],
    ["since none are kept", { count: 0 }],
  ])(
    "is returned although the job is no longer kept, %s, and nothing is left",
    async (_why, kept) => {
      const { results } = await awaitForgotten(kept);

      const doubled = numbers(20).map((number) => ({ doubled: 2 * number }));
      expect(await Promise.all(results)).toEqual(doubled);
      const left = async (): Promise<string[]> => [
        ...(await redis.keys(keyOf("awaited:*"))),
        ...(await redis.keys(keyOf("outcome:*"))),
      ];
      await waitUntil(async () => (await left()).length === 0, "the results are removed");
    },
  );

  it("is returned to each waiting process, also after another one got it", async () => {
    const quick = openQueue<number>(sluices, { rate });
    const heard: Promise<unknown>[] = [];
    const { results } = await awaitForgotten({ count: 0 }, async ({ id }) => {
      const job = await quick.queue.job(id);
      heard.push(job!.finished());
      await rejectionOf(job!.finished({ timeoutMs: 0 }));
    });

    await Promise.all(heard);
    const told = await Promise.all(results);

    expect(told).toEqual(await Promise.all(heard));
  });

  it("is kept for at most ten minutes when the waiting process has died", async () => {
    const { sluice } = await awaitForgotten({ count: 0 });
    await sluice.close();

    const names = [...numbers(20)].flatMap((index) => [
      `awaited:${index + 1}`,
      `outcome:${index + 1}`,
    ]);
    const lives = await Promise.all(names.map((name) => redis.pttl(keyOf(name))));

    expect(Math.min(...lives)).toBeGreaterThan(0);
    expect(Math.max(...lives)).toBeLessThanOrEqual(600_000);
  });

  it("is no longer kept for a wait that has timed out", async () => {
    const { queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);

    const reason = await rejectionOf(job.finished({ timeoutMs: 10 }));

    expect(reason).toMatchObject({ code: "ERR_JOB_UNFINISHED" });
    const isMarked = async (): Promise<boolean> =>
      (await redis.exists(keyOf(`awaited:${job.id}`))) === 1;
    await waitUntil(async () => !(await isMarked()), "the mark is removed");
  });

  it("is a JobMissingError with the reason when the job was done and forgotten before", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate, keepDone: { count: 0 } });
    const job = await queue.enqueue(1);
    sluice.worker(queue, async () => "receipt");
    await waitUntil(async () => (await job.state()) === undefined, "the job is forgotten");

    const reason = await rejectionOf(job.finished());

    expect(reason).toBeInstanceOf(JobMissingError);
    expect(reason).toMatchObject({ code: "ERR_JOB_MISSING", jobId: job.id });
    expect((reason as Error).message).toContain("keepDone");
  });
});

describe("the done jobs of a queue", () => {
  it("are kept up to the configured number", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate, keepDone: { count: 5_000 } });
    const jobs = await queue.enqueueMany(numbers(3_000));
    const worker = sluice.worker(queue, async ({ data }) => data);
    await waitUntil(async () => (await queue.counts()).done === 3_000, "all are done");
    await worker.close();

    const results = await Promise.all(jobs.map((job) => job.finished()));

    expect(results).toEqual(numbers(3_000));
  });

  it("are kept for the configured time", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { keepDone: { forMs: 60_000 } });
    await redis.zadd(keyOf("completed"), Date.now() - 60_001, "old");
    sluice.worker(queue, async () => {});

    const next = await queue.enqueue(1);
    await next.finished();

    await waitUntil(async () => (await redis.zscore(keyOf("completed"), "old")) === null, "a look");
    expect(await redis.zrange(keyOf("completed"), 0, -1)).toEqual([next.id]);
  });
});
