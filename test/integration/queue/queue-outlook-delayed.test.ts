import { beforeEach, describe, expect, it } from "vitest";
import { tokenBucket, type BucketOptions, type EnqueueOptions, type Queue } from "sluice";
import { etaOf, pretendWorker } from "../../support/jobs/outlook.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
beforeEach(() => pretendWorker(sluices.prefix(), "jobs"));
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

function open(policy: Partial<BucketOptions> = { rate: "1/min" }): Queue<number> {
  const sluice = sluices.open();
  return sluice.queue<number>("jobs", { bucket: sluice.bucket("b", policy as BucketOptions) });
}

async function enqueue(
  queue: Queue<number>,
  count: number,
  options: EnqueueOptions | ((number: number) => EnqueueOptions),
): Promise<void> {
  await queue.enqueueMany(
    Array.from({ length: count }, (_, number) => number),
    options,
  );
}

/** Of a job that is due a minute after an hour; in minutes. */
async function etaOfLater(queue: Queue<number>, options: EnqueueOptions = {}) {
  const job = await queue.enqueue(0, { ...options, delayMs: HOUR + MINUTE });
  const { startsInMs, position } = await etaOf(job);
  return { minutes: startsInMs / MINUTE, position };
}

describe("the forecast for a delayed job", () => {
  it.each([undefined, "k"])("puts it behind jobs that are due earlier, key %s", async (key) => {
    const queue = open();
    await enqueue(queue, 60, { key, delayMs: HOUR });
    await enqueue(queue, 30, { key, delayMs: 2 * HOUR });

    const { minutes, position } = await etaOfLater(queue, { key });

    expect(Math.abs(minutes - 120)).toBeLessThanOrEqual(6);
    expect(position).toBe(60);
  });

  it.each([undefined, "k"])(
    "includes the backlog that remains when it is due, key %s",
    async (key) => {
      const queue = open();
      await enqueue(queue, 120, { key });
      await enqueue(queue, 60, { key, delayMs: HOUR });

      const { minutes, position } = await etaOfLater(queue, { key });

      expect(Math.abs(minutes - 180)).toBeLessThanOrEqual(9);
      expect(Math.abs(position - 180)).toBeLessThanOrEqual(9);
    },
  );

  it("shares the rate with jobs of other keys", async () => {
    const queue = open();
    await enqueue(queue, 200, { key: "other", delayMs: HOUR });
    await enqueue(queue, 30, { key: "own", delayMs: HOUR });

    const { minutes, position } = await etaOfLater(queue, { key: "own" });

    expect(Math.abs(minutes - 120)).toBeLessThanOrEqual(6);
    expect(Math.abs(position - 60)).toBeLessThanOrEqual(6);
  });

  it("shares a backlog of other keys from its due time on", async () => {
    const queue = open();
    await enqueue(queue, 300, { key: "other" });
    await enqueue(queue, 30, { key: "own", delayMs: HOUR });

    const { minutes } = await etaOfLater(queue, { key: "own" });

    expect(Math.abs(minutes - 120)).toBeLessThanOrEqual(6);
  });

  it.each([undefined, "k"])("puts it before less urgent jobs, key %s", async (key) => {
    const queue = open();
    await enqueue(queue, 120, { key });
    await enqueue(queue, 60, { key, delayMs: HOUR, priority: "low" });
    await enqueue(queue, 30, { key, delayMs: HOUR, priority: "critical" });

    const { minutes } = await etaOfLater(queue, { key, priority: "critical" });

    expect(Math.abs(minutes - 90)).toBeLessThanOrEqual(4.5);
  });

  it("includes the burst that the limit allows by then", async () => {
    const queue = open({ limits: [tokenBucket({ capacity: 50, refill: "1/min" })] });
    await queue.bucket.tryDraw({ cost: 50 });
    await enqueue(queue, 80, { key: "k", delayMs: HOUR });

    const { minutes } = await etaOfLater(queue, { key: "k" });

    expect(Math.abs(minutes - 90)).toBeLessThanOrEqual(4.5);
  });

  it("counts jobs with their cost", async () => {
    const queue = open({ rate: "1/min", burst: 3 });
    await enqueue(queue, 20, { key: "k", cost: 3, delayMs: HOUR });

    const { minutes } = await etaOfLater(queue, { key: "k" });

    expect(Math.abs(minutes - 120)).toBeLessThanOrEqual(6);
  });

  it("ignores a pause that ends before it is due", async () => {
    const queue = open();
    await queue.bucket.pause({ forMs: HOUR / 2 });

    const { minutes, position } = await etaOfLater(queue);

    expect(Math.abs(minutes - 61)).toBeLessThanOrEqual(3);
    expect(position).toBe(0);
  });

  it("is never while the bucket is paused without an end", async () => {
    const queue = open();
    await enqueue(queue, 60, { key: "k", delayMs: HOUR });
    await queue.bucket.pause();

    const job = await queue.enqueue(0, { key: "k", delayMs: HOUR + MINUTE });

    const reason = "bucket paused";
    expect(await job.eta()).toEqual({ position: 60, startsInMs: undefined, reason });
  });

  it("counts more delayed jobs than it reads", async () => {
    const queue = open({ rate: "1/s" });
    await enqueue(queue, 5_400, (number: number) => ({ key: `k${number % 3}`, delayMs: HOUR }));

    const { minutes, position } = await etaOfLater(queue, { key: "k0" });

    expect(Math.abs(minutes - 150)).toBeLessThanOrEqual(7.5);
    expect(Math.abs(position - 5_400)).toBeLessThanOrEqual(270);
  });

  it("is its due time, if the lanes are empty before", async () => {
    const queue = open({ rate: "1/s" });
    await enqueue(queue, 3_000, { key: "k" });
    await enqueue(queue, 100, { key: "k", delayMs: HOUR });

    const { minutes, position } = await etaOfLater(queue, { key: "k" });

    expect(Math.abs(minutes - (60 + 100 / 60))).toBeLessThanOrEqual(3);
    expect(Math.abs(position - 3_100)).toBeLessThanOrEqual(155);
  });
});
