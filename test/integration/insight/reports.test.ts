import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("what a process reports", () => {
  it("has the calls of one that closes right after its first", async () => {
    const short = sluices.open();
    const bucket = short.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await short.close();

    const operator = sluices.open();
    const { points } = (await (await operator.find("api"))?.history()) ?? { points: [] };

    expect(points.reduce((total, { started }) => total + started, 0)).toBe(1);
    expect((await operator.overview()).replicas).toEqual([]);
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

  it("is soon there although other buckets are called for the first time again and again", async () => {
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

  it.each(["sinceMs", "untilMs"])("can be asked of until any %s", async (option) => {
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });
    const time = option === "sinceMs" ? 0 : Number.MAX_SAFE_INTEGER;

    expect(await bucket.history({ [option]: time })).toEqual({ stepMs: 10_000, points: [] });
  });
});
