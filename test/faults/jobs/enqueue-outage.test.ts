import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { StoreUnavailableError, createSluice, type Queue, type Sluice } from "sluice";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

let redis: LocalRedis;
let proxy: TcpProxy;
let opened: Sluice[] = [];
beforeEach(async () => {
  redis = await startRedis({ fresh: true });
  proxy = await startTcpProxy(Number(new URL(redis.url).port));
});
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await proxy.close();
  await redis.stop();
});

/** A producer that reaches Redis by way of the proxy. */
function openQueue(storeTimeoutMs: number, url = `redis://127.0.0.1:${proxy.port}`): Queue<number> {
  const logger = { warn: () => {}, error: () => {} };
  const sluice = createSluice({ redis: url, storeTimeoutMs, logger });
  opened.push(sluice);
  return sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "1000/s" }) });
}

async function stored(queue: Queue<number>): Promise<number> {
  const { waiting, delayed } = await queue.counts();
  return waiting + delayed;
}

describe("a job whose confirmation is lost on the wire", () => {
  it.each([
    ["without a key", {}],
    ["with a key", { key: "acme" }],
  ])("%s may be stored; a retry with the same dedupeId stores it once", async (_name, options) => {
    const queue = openQueue(1_000);
    // Redis knows the script from then on, so that one request stores the job.
    await queue.enqueue(0, { dedupeId: "order 0" });
    const once = { ...options, dedupeId: "order 1" };
    proxy.set("lose replies");

    const reason = await rejectionOf(queue.enqueue(1, once));
    proxy.set("pass");
    proxy.cut();
    const direct = openQueue(5_000, redis.url);
    await waitUntil(async () => (await stored(direct)) === 2, "Redis has the job nonetheless");
    const retried = await direct.enqueue(1, once);

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect(reason).toMatchObject({ mayBeStored: true });
    expect((reason as Error).message).toContain("may or may not be stored");
    expect(await stored(direct)).toBe(2);
    expect(retried.id).toBe("2");
  });

  it("runs after the retry if it has a key, although it was not in its lane before", async () => {
    const queue = openQueue(1_000);
    await queue.enqueue(0);
    const once = { key: "acme", dedupeId: "order 1" };
    proxy.set("lose replies");
    await rejectionOf(queue.enqueue(1, once));
    proxy.set("pass");
    proxy.cut();

    const retrying = openQueue(5_000, redis.url);
    const job = await retrying.enqueue(1, once);
    const done: number[] = [];
    opened.at(-1)!.worker(retrying, async ({ data }) => void done.push(data));
    await job.finished();

    expect(done.filter((data) => data === 1)).toHaveLength(1);
  });
});

describe("a connection that breaks while it sends a job", () => {
  it("rejects with a warning that the job may be stored, and a retry with its dedupeId stores it once", async () => {
    const queue = openQueue(10_000);
    await queue.enqueue(0);
    const once = { dedupeId: "order 1" };
    proxy.set("lose replies");

    const failing = rejectionOf(queue.enqueue(1, once));
    await waitUntil(() => proxy.kept > 0, "the reply is lost");
    proxy.set("pass");
    proxy.cut();
    const reason = await failing;
    await queue.enqueue(1, once);

    expect(reason).toMatchObject({ code: "ERR_STORE_UNAVAILABLE", mayBeStored: true });
    expect(await stored(queue)).toBe(2);
  });
});

describe("a job for a Redis that does not answer", () => {
  it("is rejected within storeTimeoutMs, before a command of 5 s would time out", async () => {
    const queue = openQueue(1_000);
    await queue.enqueue(0);
    proxy.set("stall");

    const reason = await rejectionOf(queue.enqueue(1));

    expect(reason).toMatchObject({ code: "ERR_STORE_UNAVAILABLE", mayBeStored: true });
  });

  it("is not stored if Redis was never reached, and the error says so", async () => {
    await proxy.close();
    const queue = openQueue(200);

    const reason = await rejectionOf(queue.enqueue(1));

    expect(reason).toMatchObject({ code: "ERR_STORE_UNAVAILABLE", mayBeStored: false });
  });
});

describe("many jobs of which one request fails", () => {
  it("reject with the number of jobs that are certainly stored", async () => {
    const queue = openQueue(2_000);
    await queue.enqueue(0);
    const all = Array.from({ length: 20_000 }, (_, index) => index);
    const direct = openQueue(5_000, redis.url);

    const failing = rejectionOf(queue.enqueueMany(all));
    // A second thousand is sent only when the first is confirmed.
    await waitUntil(async () => (await stored(direct)) > 1_001, "two thousands are stored");
    proxy.set("stall");
    const reason = await failing;

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    const { storedCount } = reason as StoreUnavailableError;
    expect(storedCount).toBeGreaterThan(0);
    expect(storedCount % 1_000).toBe(0);
    expect(await stored(direct)).toBeGreaterThanOrEqual(storedCount);
  });
});
