import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { hearCommands } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("the report of a process", () => {
  it("contains the calls of a process that closes right after its first", async () => {
    const short = sluices.open();
    const bucket = short.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await short.close();

    const operator = sluices.open();
    const { points } = (await (await operator.find("api"))?.history()) ?? { points: [] };

    expect(points.reduce((total, { started }) => total + started, 0)).toBe(1);
    expect((await operator.overview()).replicas).toEqual([]);
  });

  it("counts the call of a job's handler with its job, and each other call once", async () => {
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "1000/s", burst: 50 });
    const queue = service.queue<number>("jobs", { bucket });
    const call = bucket.throttled(async (number: number) => number);
    service.worker(queue, async ({ data }) => call(data));
    const jobs = await queue.enqueueMany([1, 2, 3, 4, 5]);
    await Promise.all(jobs.map((job) => job.finished()));
    await Promise.all([bucket.draw(), bucket.tryDraw(), call(6), bucket.run(() => 7)]);
    await service.close();

    const operator = sluices.open();
    const { points } = (await (await operator.find("api"))?.history()) ?? { points: [] };

    expect(points.reduce((total, { started }) => total + started, 0)).toBe(9);
  });

  it("is sent at most once a second, however much happens", async () => {
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "1000000/s", burst: 1_000 });
    const reportsAtMs: number[] = [];
    await hearCommands(inject("redisUrl"), ({ atMs, args }) => {
      const isReport = args[0] === "evalsha" && args[3] === `${sluices.prefix()}:{:fleet}`;
      if (isReport && args.length > 10) reportsAtMs.push(atMs);
    });

    await waitUntil(async () => {
      await bucket.draw();
      return reportsAtMs.length >= 4;
    }, "four reports were seen");

    const gapsMs = reportsAtMs.slice(1).map((at, index) => at - reportsAtMs[index]!);
    expect(Math.min(...gapsMs)).toBeGreaterThan(900);
  });

  it("is reported again to a Redis that lost it", async () => {
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    const operator = sluices.open();
    await waitUntil(async () => (await operator.find("api")) !== undefined, "it is told of");
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());

    await redis.del(await redis.keys(`${sluices.prefix()}:*`));

    await waitUntil(async () => {
      await bucket.draw();
      return (await operator.overview()).buckets.length === 1;
    }, "it is told of again");

    expect(await operator.find("api")).toMatchObject({ name: "api" });
  });

  it("arrives soon although other buckets are called for the first time again and again", async () => {
    const service = sluices.open();
    const operator = sluices.open();
    let opened = 0;

    await waitUntil(async () => {
      opened += 1;
      await service.bucket(`b${opened}`, { rate: "1000/s" }).draw();
      return (await operator.overview({ limit: 1 })).buckets.length === 1;
    }, "it is told of");

    expect(opened).toBeLessThan(200);
  });

  it.each(["sinceMs", "untilMs"])("can be requested until any %s", async (option) => {
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });
    const time = option === "sinceMs" ? 0 : Number.MAX_SAFE_INTEGER;

    expect(await bucket.history({ [option]: time })).toEqual({ stepMs: 10_000, points: [] });
  });
});
