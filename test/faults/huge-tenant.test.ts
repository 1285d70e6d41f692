import { describe, expect, it } from "vitest";
import { ownRedisServers } from "../support/own-redis.ts";
import { waitUntil } from "../support/wait-until.ts";

const RATE = 20;
const HUGE = 20_000;
const WEIGHTS = { A: 1, B: 1, C: 2 };
/** What has left the lanes before B and C came, or is let out ahead: see the queue's feeder. */
const AHEAD = Math.ceil(0.35 * RATE) + 3;
const servers = ownRedisServers();

describe("a tenant with 20,000 jobs", () => {
  it("holds up no other: tenants of weights 1, 1 and 2 get their shares from the first job on", async () => {
    const redis = await servers.start();
    const sluice = redis.open();
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    const queue = sluice.queue<number>("jobs", { bucket, weights: WEIGHTS });
    const order: string[] = [];
    await queue.enqueueMany(
      Array.from({ length: HUGE }, (_, index) => index),
      { key: "A" },
    );
    const worker = sluice.worker(queue, async ({ key }) => void order.push(key!));
    await waitUntil(() => order.length >= 10, "A is served");

    const before = order.length;
    await Promise.all(
      ["B", "C"].map((key) =>
        queue.enqueueMany(
          Array.from({ length: 10 }, (_, i) => i),
          { key },
        ),
      ),
    );
    const countOf = (key: string): number => order.filter((done) => done === key).length;
    await waitUntil(() => countOf("B") === 10 && countOf("C") === 10, "B and C are done");
    await worker.close();

    const lastOf = (key: string): number => order.lastIndexOf(key) + 1 - before;
    console.log(JSON.stringify({ fault: "huge tenant", B: lastOf("B"), C: lastOf("C"), AHEAD }));
    // Of four calls two are C's and one is B's; when C is done, one of two is B's.
    expect(lastOf("C")).toBeLessThanOrEqual(20 + AHEAD);
    expect(lastOf("B")).toBeLessThanOrEqual(30 + AHEAD);
    expect(lastOf("B")).toBeGreaterThan(lastOf("C"));
  });
});
