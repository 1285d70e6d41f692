import { beforeEach, describe, expect, it } from "vitest";
import {
  concurrency,
  leakyBucket,
  RetryAfter,
  tokenBucket,
  type BucketOptions,
  type QueuedJob,
} from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const MINUTE_MS = 60_000;
const PATH = ["acme", "e1"];

function open(policy: BucketOptions = { rate: "1000/s" }) {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  const bucket = sluice.bucket("downstream", policy);
  return { sluice, bucket, queue: sluice.queue<number>("jobs", { bucket }) };
}

/** What it waits for, and in how many minutes that ends. */
async function reasonOf(job: QueuedJob<number>) {
  const before = Date.now();
  const told = await job.explain();
  if (told === undefined) return undefined;
  const { untilMs, waitsFor, limit } = told;
  const minutes = untilMs === undefined ? undefined : Math.round((untilMs - before) / MINUTE_MS);
  return { waitsFor, limit, minutes };
}

describe("the reason for a job's wait", () => {
  it("is a missing worker", async () => {
    const { queue } = open();
    const job = await queue.enqueue(1);

    const { dueAtMs: sinceMs } = job;
    expect(await job.explain()).toEqual({
      waitsFor: "no worker",
      limit: undefined,
      sinceMs,
      untilMs: undefined,
    });
  });

  it("is its time, or that of its next attempt", async () => {
    const { sluice, queue } = open();
    const delayed = await queue.enqueue(1, { delayMs: 30 * MINUTE_MS, key: PATH });
    const retried = await queue.enqueue(2);
    sluice.worker(queue, async () => {
      throw new RetryAfter(20 * MINUTE_MS);
    });
    await waitUntil(async () => (await retried.state()) === "delayed", "it is to be tried again");

    expect(await delayed.explain()).toEqual({
      waitsFor: "delay",
      limit: undefined,
      sinceMs: delayed.enqueuedAtMs,
      untilMs: expect.closeTo(delayed.dueAtMs, -3),
    });
    expect(await reasonOf(retried)).toEqual({ waitsFor: "retry", limit: undefined, minutes: 20 });
    const { startedAtMs } = (await queue.job(retried.id))!;
    expect((await retried.explain())!.sinceMs).toBe(startedAtMs);
  });

  it("is nothing once it runs, is done, or is gone", async () => {
    const { sluice, queue } = open();
    const [running, gone] = await queue.enqueueMany([1, 2]);
    await gone!.remove();
    const { promise: mayEnd, resolve: end } = deferred();
    sluice.worker(queue, () => mayEnd);
    await waitUntil(async () => (await running!.state()) === "active", "it runs");
    await waitUntil(async () => (await running!.explain()) === undefined, "it has begun");
    end();
    await running!.finished();

    expect(await running!.explain()).toBeUndefined();
    expect(await gone!.explain()).toBeUndefined();
  });
});

describe("the reason for the wait of a job that a worker holds", () => {
  it.each([undefined, "acme"])("is the limit that delays it, of key %s", async (key) => {
    const { sluice, queue } = open({ rate: "20/h" });
    const [first, second] = await queue.enqueueMany([1, 2], { key });
    sluice.worker(queue, async () => {}, { patienceMs: 10 * MINUTE_MS });
    await first!.finished();

    await waitUntil(async () => (await second!.explain()) !== undefined, "it waits for its slot");
    expect(await reasonOf(second!)).toEqual({ waitsFor: "limit", limit: "20/h", minutes: 3 });
  });
});

describe("the reason for a job's wait while there is a worker", () => {
  beforeEach(() => pretendWorker(sluices.prefix(), "jobs"));

  it("is its turn, where there is room", async () => {
    const { queue } = open({ rate: "1000/s", perKey: { rate: "10/s" } });
    const jobs = [await queue.enqueue(1), await queue.enqueue(2, { key: "acme" })];

    for (const job of jobs) {
      expect(await reasonOf(job)).toEqual({
        waitsFor: "lane",
        limit: undefined,
        minutes: undefined,
      });
    }
  });

  it("is the end of a pause: of the queue, of the bucket, of its key or a prefix of it", async () => {
    const { queue, bucket } = open({ rate: "10/s", perKey: [{ rate: "5/s" }, { rate: "1/s" }] });
    const job = await queue.enqueue(1, { key: PATH });
    const other = await queue.enqueue(2, { key: ["bolt", "e1"] });
    const seen = [];

    for (const pause of [{ key: PATH }, { key: "acme" }]) {
      await queue.pause({ ...pause, forMs: 5 * MINUTE_MS });
      seen.push(await reasonOf(job));
      await queue.resume(pause);
      await bucket.pause({ ...pause, forMs: 7 * MINUTE_MS });
      seen.push(await reasonOf(job), (await reasonOf(other))!.waitsFor);
      await bucket.resume(pause);
    }
    await bucket.pause();
    const forever = (await job.explain())!;
    await queue.pause({ forMs: 3 * MINUTE_MS });
    seen.push(await reasonOf(other));

    const paused = (what: string, minutes: number) => ({
      waitsFor: `${what} paused`,
      limit: undefined,
      minutes,
    });
    const ofKey = [paused("key", 5), paused("key", 7), "lane"];
    expect(seen).toEqual([...ofKey, ...ofKey, paused("queue", 3)]);
    expect(forever).toMatchObject({ waitsFor: "bucket paused", untilMs: Infinity });
    expect(JSON.parse(JSON.stringify(forever))).toMatchObject({ untilMs: "forever" });
  });

  it("is the end of a cooldown", async () => {
    const { queue, bucket } = open();
    const job = await queue.enqueue(1);
    const headers = { "retry-after": "240" };
    await bucket.run(async () => new Response("", { status: 429, headers }));

    expect(await reasonOf(job)).toEqual({ waitsFor: "cooldown", limit: undefined, minutes: 4 });
  });

  it("is the end of a cooldown of its key, or of a prefix of that", async () => {
    const { queue, bucket } = open({ rate: "1000/s", perKey: [{ rate: "10/s" }, { rate: "5/s" }] });
    const job = await queue.enqueue(1, { key: PATH });
    const other = await queue.enqueue(2, { key: ["acme", "e2"] });
    const refuse = (key: readonly string[], coolMs: number, level: number) =>
      bucket.run(async () => "busy", { key, feedback: () => ({ coolMs, level }) });

    await refuse(PATH, 4 * MINUTE_MS, 1);
    const ofEndpoint = await reasonOf(job);
    const besideIt = (await reasonOf(other))!.waitsFor;
    await refuse(["acme", "e3"], 9 * MINUTE_MS, 0);

    const cooling = (minutes: number) => ({ waitsFor: "cooldown", limit: undefined, minutes });
    expect([ofEndpoint, besideIt]).toEqual([cooling(4), expect.not.stringContaining("cooldown")]);
    expect([await reasonOf(job), await reasonOf(other)]).toEqual([cooling(9), cooling(9)]);
  });

  it("is room under a limit: of the bucket, or of a level of its key", async () => {
    const { queue, bucket } = open({
      limits: [leakyBucket("20/h")],
      perKey: [{}, { limits: [leakyBucket("6/h")] }],
    });
    const plain = await queue.enqueue(1);
    const keyed = await queue.enqueue(2, { key: PATH });
    await bucket.draw({ key: PATH });

    expect(await reasonOf(plain)).toEqual({ waitsFor: "limit", limit: "20/h", minutes: 3 });
    expect(await reasonOf(keyed)).toEqual({
      waitsFor: "key",
      limit: "6/h (level 1)",
      minutes: 10,
    });
  });

  it("is room for its cost, although a cheaper job has room", async () => {
    const { queue, bucket } = open({
      limits: [
        leakyBucket("100000/s"),
        tokenBucket({ capacity: 10, refill: "1/min", unit: "tokens" }),
      ],
    });
    const costly = await queue.enqueue(1, { cost: { tokens: 5 } });
    const cheap = await queue.enqueue(2, { cost: { tokens: 1 } });
    await bucket.draw({ cost: { tokens: 8 } });

    expect(await reasonOf(costly)).toMatchObject({ waitsFor: "limit", minutes: undefined });
    expect((await costly.explain())!.limit).toMatch(/tokens/);
    expect((await reasonOf(cheap))!.waitsFor).toBe("lane");
  });

  it("is a lease, while the most calls run", async () => {
    const { queue, bucket } = open({ limits: [leakyBucket("100/s"), concurrency(1)] });
    const job = await queue.enqueue(1);
    const slot = await bucket.draw();

    expect(await reasonOf(job)).toEqual({
      waitsFor: "lease",
      limit: "1 at once",
      minutes: undefined,
    });
    slot.release();
    await waitUntil(async () => (await reasonOf(job))!.waitsFor === "lane", "there is room");
  });

  it("is its downstream, while that is unreachable", async () => {
    const { sluice, queue } = open({
      rate: "1000/s",
      breaker: { failures: 1, coolMs: 10 * MINUTE_MS, maxCoolMs: 10 * MINUTE_MS },
    });
    const job = await queue.enqueue(1);
    sluice.worker(queue, async () => {
      throw Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    });

    await waitUntil(
      async () => (await reasonOf(job))?.waitsFor === "downstream away",
      "the breaker has opened",
    );
    expect((await reasonOf(job))!.minutes).toBe(10);
  });
});
