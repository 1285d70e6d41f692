import { describe, expect, it } from "vitest";
import { JobLostError, StoreUnavailableError, type Sluice } from "sluice";
import { openSluice, portOf, startOwnRedis, startProxy } from "../../support/redis/for-one-test.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const openAt = (port: number): Sluice =>
  openSluice({ redis: `redis://127.0.0.1:${port}`, storeTimeoutMs: 200 });

describe("a process that starts while Redis is unreachable", () => {
  it("rejects a draw with StoreUnavailableError instead of hanging", async () => {
    const bucket = openAt(await freePort("127.0.0.1")).bucket("b", { rate: "10/s" });

    const reasons = await Promise.all([rejectionOf(bucket.draw()), rejectionOf(bucket.draw())]);

    for (const reason of reasons) expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect(reasons[0]).toMatchObject({ code: "ERR_STORE_UNAVAILABLE" });
    expect((reasons[0] as Error).message).toContain("200 ms");
    expect(String((reasons[0] as Error).cause)).toContain("ECONNREFUSED");
    expect(bucket.waiting).toBe(0);
  });

  it("rejects a job, so that the producer knows that it is not stored", async () => {
    const sluice = openAt(await freePort("127.0.0.1"));
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });

    const reason = await rejectionOf(queue.enqueue(1));

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect((reason as Error).message).toContain("nothing was stored");
  });

  it("continues by itself once Redis is reachable", async () => {
    const port = await freePort("127.0.0.1");
    const sluice = openAt(port);
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    const done: number[] = [];
    sluice.worker(queue, async (job) => void done.push(job.data));
    await rejectionOf(bucket.draw());

    await startOwnRedis({ port });
    await waitUntil(
      () =>
        queue.enqueue(7).then(
          () => true,
          () => false,
        ),
      "the producer has reconnected",
    );
    await waitUntil(() => done.length > 0, "the worker has reconnected and done the job");

    expect(done[0]).toBe(7);
    await expect(bucket.draw()).resolves.toMatchObject({ bucket: "b" });
  });

  it("closes a worker immediately", async () => {
    const sluice = openAt(await freePort("127.0.0.1"));
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    const worker = sluice.worker(queue, async () => {});

    await expect(worker.close()).resolves.toBeUndefined();
  });

  it("rejects a draw also when Redis accepts connections and never replies", async () => {
    const proxy = await startProxy(await startOwnRedis());
    proxy.set("stall");
    const bucket = openAt(proxy.port).bucket("b", { rate: "10/s" });

    const reason = await rejectionOf(bucket.draw());

    expect(reason).toBeInstanceOf(StoreUnavailableError);
  });
});

describe("a worker whose Redis becomes unreachable", () => {
  it("closes at its deadline, and aborts its handler", async () => {
    const redis = await startOwnRedis();
    const sluice = openAt(portOf(redis));
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    let running: AbortSignal | undefined;
    const worker = sluice.worker(queue, (_job, { signal }) => {
      running = signal;
      return new Promise<void>(() => {});
    });
    await queue.enqueueMany([1, 2, 3, 4]);
    await waitUntil(() => running !== undefined, "a handler runs");

    await redis.stop();
    await worker.close({ deadlineMs: 50 });

    expect(running?.reason).toBeInstanceOf(JobLostError);
  });
});
