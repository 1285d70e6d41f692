import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { createSluice, type Queue, type QueueOptions, type Sluice } from "sluice";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const QUEUES = 30;

interface Opened {
  readonly sluice: Sluice;
  readonly proxy: TcpProxy;
  readonly queues: readonly Queue<number>[];
}

/** A sluice whose connections can be counted, and broken. */
async function openQueues(options: Pick<QueueOptions, "ownConnections"> = {}): Promise<Opened> {
  const proxy = await startTcpProxy(Number(new URL(inject("redisUrl")).port));
  onTestFinished(() => proxy.close());
  const redis = `redis://127.0.0.1:${proxy.port}`;
  const sluice = createSluice({ redis, prefix: sluices.prefix(), logger: silent });
  onTestFinished(() => sluice.close());
  const bucket = sluice.bucket("downstream", { rate: "10000/s" });
  const queues = Array.from({ length: QUEUES }, (_, index) =>
    sluice.queue<number>(`jobs-${index}`, { bucket, ...options }),
  );
  return { sluice, proxy, queues };
}

const silent = { warn: () => {}, error: () => {} };

async function enqueueEach(queues: readonly Queue<number>[]): Promise<void> {
  await Promise.all(queues.map((queue, index) => queue.enqueue(index)));
}

function isDoneIn(queues: readonly Queue<number>[], jobs: number): Promise<void> {
  return waitUntil(async () => {
    const counts = await Promise.all(queues.map((queue) => queue.counts()));
    return counts.every(({ done }) => done === jobs);
  }, "all jobs are done");
}

describe("the connections of many queues", () => {
  it("are two for enqueueing, one of them for slots", async () => {
    const { queues, proxy } = await openQueues();

    await enqueueEach(queues);

    expect(proxy.clients.size).toBeLessThanOrEqual(2);
  });

  it("add one for events, and no event is missed", async () => {
    const { queues, sluice, proxy } = await openQueues();
    const done = new Map<string, number>();
    for (const { name, on } of queues) on("done", () => done.set(name, (done.get(name) ?? 0) + 1));
    await enqueueEach(queues);
    expect(proxy.clients.size).toBeLessThanOrEqual(3);
    await turn();

    for (const queue of queues) sluice.worker(queue, async () => "done");

    await waitUntil(() => done.size === QUEUES, "an event of each queue is heard");
    expect([...done.values()]).toEqual(queues.map(() => 1));
  });

  it("are one blocking connection for each worker, beside the shared ones", async () => {
    const { queues, sluice, proxy } = await openQueues();
    for (const queue of queues) sluice.worker(queue, async () => {});
    await enqueueEach(queues);
    await isDoneIn(queues, 1);

    // Slots, the news of buckets, jobs in, and jobs out.
    expect(proxy.clients.size).toBeLessThanOrEqual(QUEUES + 4);
  });

  it("serve the other workers after one has closed, and all are closed in the end", async () => {
    const { queues, sluice, proxy } = await openQueues();
    const workers = queues.map((queue) => sluice.worker(queue, async () => {}));
    await enqueueEach(queues);
    await isDoneIn(queues, 1);
    const before = proxy.clients.size;

    await workers[0]!.close();
    await waitUntil(() => proxy.clients.size === before - 1, "its own connection is closed");
    await enqueueEach(queues);
    await isDoneIn(queues.slice(1), 2);
    expect(await queues[0]!.counts()).toMatchObject({ waiting: 1 });

    await Promise.all(workers.map((worker) => worker.close()));
    sluice.worker(queues[0]!, async () => {});
    await isDoneIn(queues, 2);
    await sluice.close();
    await waitUntil(() => proxy.clients.size === 0, "no connection is left");
  });

  it("deliver the events of all queues again after each connection was lost", async () => {
    const { queues, sluice, proxy } = await openQueues();
    let heard = 0;
    for (const queue of queues) queue.on("done", () => (heard += 1));
    for (const queue of queues) sluice.worker(queue, async () => {});
    await enqueueEach(queues);
    await waitUntil(() => heard === QUEUES, "an event of each queue is heard");

    proxy.cut();
    await waitUntil(
      () =>
        enqueueEach(queues.slice(0, 1)).then(
          () => true,
          () => false,
        ),
      "Redis answers again",
    );
    await enqueueEach(queues.slice(1));

    await waitUntil(() => heard >= 2 * QUEUES, "another event of each queue is heard");
    expect(proxy.clients.size).toBeLessThanOrEqual(QUEUES + 5);
  });

  it("are separate for a queue that asks for it", async () => {
    const { queues, proxy } = await openQueues({ ownConnections: true });

    await enqueueEach(queues);
    expect(proxy.clients.size).toBeGreaterThanOrEqual(QUEUES);
    for (const queue of queues) queue.on("done", () => {});
    await enqueueEach(queues);

    await waitUntil(() => proxy.clients.size >= 2 * QUEUES, "each hears its events on its own");
  });
});
