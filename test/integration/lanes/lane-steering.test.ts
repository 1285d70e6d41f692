import { expect, it } from "vitest";
import { RetryAfter } from "sluice";
import { areAllDone, openLanes, upTo } from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const lanes = openLanes();

it("jobs in lanes are counted as waiting, and jobs for a later time as delayed", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  await queue.enqueueMany(upTo(5), { key: "acme" });
  await queue.enqueueMany(upTo(3), { key: "acme", delayMs: 60_000 });
  await queue.enqueueMany(upTo(2));

  expect(await queue.counts()).toMatchObject({ waiting: 7, delayed: 3 });
});

it("a job in a lane goes behind those with its new priority, and before all others", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const [older, next] = await queue.enqueueMany(upTo(3), { key: "acme" });
  const [first] = await queue.enqueueMany(upTo(3), { key: "acme", priority: "high" });

  expect(await queue.reprioritise(older!.id, "high")).toBe(true);
  expect(await queue.reprioritise(first!.id, "low")).toBe(true);

  const places = [];
  for (const job of [older, next, first]) places.push((await job!.eta())?.position);
  expect(places).toEqual([2, 3, 5]);
});

it("a lane keeps its weight when the priority of its only job is changed", async () => {
  const { queue } = lanes.open({ rate: "100/s" }, { acme: 3 });
  const job = await queue.enqueue(1, { key: "acme" });

  expect(await queue.reprioritise(job.id, "high")).toBe(true);

  expect(await lanes.redis.hgetall(`${lanes.prefix}:{jobs}:lanes:weights`)).toEqual({ acme: "3" });
});

it("a job that waits for a later time keeps waiting when its priority is changed", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const job = await queue.enqueue(1, { key: "acme", delayMs: 60_000 });

  expect(await queue.reprioritise(job.id, "high")).toBe(true);

  expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 1 });
});

it("a removed job in a lane delays no other job", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const [first, second] = await queue.enqueueMany(upTo(2), { key: "acme" });

  expect(await queue.remove(first!.id)).toBe(true);

  expect((await second!.eta())?.position).toBe(0);
  expect(await queue.counts()).toMatchObject({ waiting: 1 });
});

it("lanes are empty once their queue was drained, also for later jobs", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  await queue.enqueueMany(upTo(20), { key: "acme" });

  expect(await queue.drain()).toBe(20);

  const job = await queue.enqueue(7, { key: "acme" });
  expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 0 });
  expect((await job.eta())?.position).toBe(0);
});

it("jobs that are enqueued while a queue is drained are drained or done", async () => {
  const opened = lanes.open({ rate: "500/s" });
  const { sluice, queue } = opened;
  let enqueued = 1_000;
  let done = 0;
  let isDrained = false;
  await queue.enqueueMany(upTo(1_000), (n) => ({ key: `tenant ${n}` }));
  const producers = upTo(3).map(async () => {
    while (!isDrained) {
      const jobs = await queue.enqueueMany(upTo(3), { key: "new" });
      enqueued += jobs.length;
    }
  });

  const drained = await queue.drain();
  isDrained = true;
  await Promise.all(producers);

  const worker = sluice.worker(queue, async () => void (done += 1));
  await waitUntil(() => areAllDone(opened), "all are done");
  await worker.close();
  expect(drained + done).toBe(enqueued);
  expect(await lanes.rest()).toEqual([]);
});

it.each([10_000, 60_000])(
  "a job whose dedupeId waits for a time %i ms ahead keeps waiting, when another is enqueued",
  async (delayMs) => {
    const { queue } = lanes.open({ rate: "100/s" });
    await queue.enqueue(1, { key: "acme", dedupeId: "once", delayMs });

    await queue.enqueue(2, { key: "acme", dedupeId: "once" });

    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 1 });
  },
);

it("a job that is retried in 10,000 ms keeps waiting, when another with its dedupeId is enqueued", async () => {
  const { sluice, queue } = lanes.open({ rate: "100/s" });
  sluice.worker(queue, async () => {
    throw new RetryAfter(10_000);
  });
  await queue.enqueue(1, { key: "acme", dedupeId: "once" });
  await waitUntil(async () => (await queue.counts()).delayed === 1, "it is to be tried again");

  await queue.enqueue(2, { key: "acme", dedupeId: "once" });

  expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 1 });
});

it("a job whose dedupeId is already in its lane is not stored again, and keeps its position", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const first = await queue.enqueue(1, { key: "acme", dedupeId: "once" });
  await queue.enqueue(2, { key: "acme" });

  const again = await queue.enqueue(3, { key: "acme", dedupeId: "once" });

  expect(again.id).toBe(first.id);
  expect((await again.eta())?.position).toBe(0);
  expect(await queue.counts()).toMatchObject({ waiting: 2 });
});
