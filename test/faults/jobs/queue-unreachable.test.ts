import { describe, expect, it } from "vitest";
import { ClosedError, StoreUnavailableError, type Queue, type Sluice } from "sluice";
import { openSluice, portOf, startOwnRedis, startProxy } from "../../support/redis/for-one-test.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

function openQueue(port: number): { sluice: Sluice; queue: Queue<number> } {
  const sluice = openSluice({ redis: `redis://127.0.0.1:${port}`, storeTimeoutMs: 500 });
  const bucket = sluice.bucket("b", { rate: "100/s" });
  return { sluice, queue: sluice.queue<number>("jobs", { bucket }) };
}

/** Enqueues jobs of data 0 until one is heard of. */
async function hearOne(queue: Queue<number>, heard: readonly string[]): Promise<void> {
  await waitUntil(async () => {
    await queue.enqueue(0).catch(() => undefined);
    return heard.length > 0;
  }, "an event is heard");
}

/** All requests about a queue and its jobs. */
const REQUESTS: Readonly<Record<string, (queue: Queue<number>) => Promise<unknown>>> = {
  counts: (queue) => queue.counts(),
  job: (queue) => queue.job("1"),
  pause: (queue) => queue.pause(),
  resume: (queue) => queue.resume(),
  drain: (queue) => queue.drain(),
  remove: (queue) => queue.remove("1"),
  reprioritise: (queue) => queue.reprioritise("1", "high"),
  failed: (queue) => queue.failed(),
  replay: (queue) => queue.replay({}),
  "replay of an id": (queue) => queue.replay("1"),
  purge: (queue) => queue.purge({}),
  "purge of an id": (queue) => queue.purge("1"),
};

/** Opens a queue for each request on a separate connection, so that no request shares the fate of another. */
function openQueues(port: number): Readonly<Record<string, ReturnType<typeof openQueue>>> {
  return Object.fromEntries(Object.keys(REQUESTS).map((name) => [name, openQueue(port)]));
}

/** Waits until each queue has got a reply. On a busy machine, the first requests may take longer than 500 ms. */
async function untilReached(queues: ReturnType<typeof openQueues>): Promise<void> {
  const isReached = (queue: Queue<number>): Promise<boolean> =>
    queue.counts().then(
      () => true,
      () => false,
    );
  await Promise.all(
    Object.values(queues).map(({ queue }) => waitUntil(() => isReached(queue), "it is reached")),
  );
}

/** Makes each request on its queue, all at the same time. Returns the reasons of their rejections. */
async function reasonsOf(queues: ReturnType<typeof openQueues>): Promise<Record<string, unknown>> {
  const asked = Object.entries(queues).map(async ([name, { queue }]) => {
    return [name, await rejectionOf(REQUESTS[name]!(queue))] as const;
  });
  return Object.fromEntries(await Promise.all(asked));
}

/** What `reasonsOf` returns if each request is rejected with such an error. */
function allRejectedWith(error: unknown): Record<string, unknown> {
  return Object.fromEntries(Object.keys(REQUESTS).map((name) => [name, error]));
}

describe("a queue whose Redis is unreachable", () => {
  it("rejects each request in time", async () => {
    const queues = openQueues(await freePort("127.0.0.1"));

    const reasons = await reasonsOf(queues);

    expect(reasons).toEqual(allRejectedWith(expect.any(StoreUnavailableError)));
    const inTime = { message: expect.stringContaining("within 500 ms") };
    expect(reasons).toMatchObject(allRejectedWith(inTime));
  });

  it("rejects each request in time if Redis was reachable before", async () => {
    const redis = await startOwnRedis();
    const queues = openQueues(portOf(redis));
    await untilReached(queues);
    await redis.stop();

    const reasons = await reasonsOf(queues);

    expect(reasons).toEqual(allRejectedWith(expect.any(StoreUnavailableError)));
  });

  it("rejects each request in time if Redis accepts it and does not reply", async () => {
    const proxy = await startProxy(await startOwnRedis());
    const queues = openQueues(proxy.port);
    await untilReached(queues);
    proxy.set("stall");

    const reasons = await reasonsOf(queues);

    expect(reasons).toEqual(allRejectedWith(expect.any(StoreUnavailableError)));
  });

  it("rejects requests about a job, and the start of a wait for its end", async () => {
    const redis = await startOwnRedis();
    const { queue } = openQueue(portOf(redis));
    const job = await queue.enqueue(1);
    await redis.stop();

    const asked = [job.state(), job.logs(), job.progress(), job.remove(), job.finished()];
    const reasons = await Promise.all(asked.map(rejectionOf));

    for (const reason of reasons) expect(reason).toBeInstanceOf(StoreUnavailableError);
  });

  it("reports events and ends of jobs again once Redis is back", async () => {
    const proxy = await startProxy(await startOwnRedis());
    const { sluice, queue } = openQueue(proxy.port);
    const done: unknown[] = [];
    const waiting: string[] = [];
    queue.on("done", ({ result }) => void done.push(result));
    queue.on("waiting", ({ jobId }) => void waiting.push(jobId));
    await hearOne(queue, waiting);
    const job = await queue.enqueue(1);
    const ended = job.finished();
    await rejectionOf(job.finished({ timeoutMs: 0 }));

    proxy.set("stall");
    await rejectionOf(queue.counts());
    proxy.set("pass");
    proxy.cut();
    sluice.worker(queue, async ({ data }) => data);

    expect(await ended).toBe(1);
    await waitUntil(() => done.includes(1), "the event is heard");
  });

  it("gets events for a listener that was added before Redis was reachable", async () => {
    const port = await freePort("127.0.0.1");
    const { sluice, queue } = openQueue(port);
    const waiting: string[] = [];
    queue.on("waiting", ({ jobId }) => void waiting.push(jobId));
    await rejectionOf(queue.counts());

    await startOwnRedis({ port });
    sluice.worker(queue, async () => {});
    await hearOne(queue, waiting);

    expect(waiting[0]).toBeTypeOf("string");
  });
});

describe("a queue that is closed", () => {
  it("rejects each request", async () => {
    const queues = openQueues(await freePort("127.0.0.1"));
    await Promise.all(Object.values(queues).map(({ sluice }) => sluice.close()));

    const reasons = await reasonsOf(queues);

    expect(reasons).toEqual(allRejectedWith(expect.any(ClosedError)));
  });
});
