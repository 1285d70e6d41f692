import { expect, it } from "vitest";
import { openLanes, upTo } from "../support/open-lanes.ts";

const lanes = openLanes();

it("jobs in lanes are counted as waiting, and those that wait for a later time as delayed", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  await queue.enqueueMany(upTo(5), { key: "acme" });
  await queue.enqueueMany(upTo(3), { key: "acme", delayMs: 60_000 });
  await queue.enqueueMany(upTo(2));

  expect(await queue.counts()).toMatchObject({ waiting: 7, delayed: 3 });
});

it("a job in a lane goes behind those that have its new priority already, and before all others", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const [older, next] = await queue.enqueueMany(upTo(3), { key: "acme" });
  const [first] = await queue.enqueueMany(upTo(3), { key: "acme", priority: "high" });

  expect(await queue.reprioritise(older!.id, "high")).toBe(true);
  expect(await queue.reprioritise(first!.id, "low")).toBe(true);

  const places = [];
  for (const job of [older, next, first]) places.push((await job!.eta())?.position);
  expect(places).toEqual([2, 3, 5]);
});

it("a job in a lane is no longer before others once it was removed", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const [first, second] = await queue.enqueueMany(upTo(2), { key: "acme" });

  expect(await queue.remove(first!.id)).toBe(true);

  expect((await second!.eta())?.position).toBe(0);
  expect(await queue.counts()).toMatchObject({ waiting: 1 });
});

it("lanes are empty once their queue was drained, also for what comes later", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  await queue.enqueueMany(upTo(20), { key: "acme" });

  expect(await queue.drain()).toBe(20);

  const job = await queue.enqueue(7, { key: "acme" });
  expect(await queue.counts()).toMatchObject({ waiting: 1, delayed: 0 });
  expect((await job.eta())?.position).toBe(0);
});

it("a job whose dedupeId is in its lane already is not stored again, and keeps its place", async () => {
  const { queue } = lanes.open({ rate: "100/s" });
  const first = await queue.enqueue(1, { key: "acme", dedupeId: "once" });
  await queue.enqueue(2, { key: "acme" });

  const again = await queue.enqueue(3, { key: "acme", dedupeId: "once" });

  expect(again.id).toBe(first.id);
  expect((await again.eta())?.position).toBe(0);
  expect(await queue.counts()).toMatchObject({ waiting: 2 });
});
