import { describe, expect, it } from "vitest";
import { StoreUnavailableError } from "sluice";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();

describe("a Redis without the requested database", () => {
  it("rejects the draw with an error that contains its reply", async () => {
    const redis = await servers.start();
    const lines: string[] = [];
    const logger = {
      warn: () => {},
      error: (_facts: object, line: string) => void lines.push(line),
    };
    const breaker = { failures: 1 };
    const options = { redis: `${redis.url}/99`, storeTimeoutMs: 500, breaker, logger };
    const sluice = redis.open(options);
    const bucket = sluice.bucket("downstream", { rate: "100/s" });
    const queue = sluice.queue("jobs", { bucket });

    const drawing = rejectionOf(bucket.draw());
    const enqueueing = rejectionOf(queue.enqueue({}));
    sluice.worker(queue, async () => {});
    const told = "DB index is out of range";
    await waitUntil(() => lines.some((line) => line.includes(told)), "the worker says so");

    for (const error of [await drawing, await enqueueing]) {
      expect(error).toBeInstanceOf(StoreUnavailableError);
      expect(String((error as Error).cause)).toContain(told);
    }
    expect(((await rejectionOf(bucket.draw())) as Error).message).toContain(told);
    expect(await redis.operator.dbsize()).toBe(0);
  });
});
