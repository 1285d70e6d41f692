import { describe, expect, it } from "vitest";
import type { QueuedJob } from "sluice";
import { realSluices } from "../support/real-sluice.ts";
import { waitUntil } from "../support/wait-until.ts";

const sluices = realSluices();
const RATE = 100;

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}

describe("what is expected of a steady backlog", () => {
  it("holds within a tenth, for each tenant by its weight", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    const queue = sluice.queue<number>("jobs", { bucket, weights: { large: 3 } });
    const large = await queue.enqueueMany(numbers(500), { key: "large" });
    const small = await queue.enqueueMany(numbers(200), { key: "small" });
    const started: { readonly id: string; readonly atMs: number }[] = [];
    sluice.worker(queue, async ({ id }, { slot }) => {
      started.push({ id, atMs: slot.atMs });
    });
    await waitUntil(() => started.length >= 50, "the backlog drains");

    const watched = [large[200]!, large[400]!, small[80]!, small[120]!];
    const from = started.length;
    const etas = await Promise.all(watched.map((job) => job.eta()));
    const forecast = await queue.forecast();
    await waitUntil(() => started.length === 700, "all jobs have started");

    for (const [index, job] of watched.entries()) {
      const { position, startsInMs } = etas[index]!;
      const at = started.findIndex(({ id }) => id === job.id);
      expect(Math.abs(at - from - position)).toBeLessThanOrEqual(Math.max(10, position / 10));
      // Slots are spaced on the clock of Redis, so a busy machine can only make it later.
      expect(started[at]!.atMs - started[from]!.atMs).toBeGreaterThan(startsInMs * 0.85);
    }
    expect(Math.abs(forecast.waiting - (700 - from))).toBeLessThanOrEqual(60);
    expect(forecast.goneInMs).toBeGreaterThan((700 - from) * (1_000 / RATE) * 0.9);
    expect(forecast.missed).toEqual([]);
    expect(await large[0]!.eta()).toBeUndefined();
  });

  it("tells which deadlines will be missed, and none of the others", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueueMany(numbers(100), { key: "k" });
    const late = await queue.enqueue(0, { key: "k", maxWaitMs: 3_000 });
    const inTime = await queue.enqueue(0, { key: "k", priority: "high", maxWaitMs: 3_000 });

    const { missed, goneInMs, waiting } = await queue.forecast();

    expect(waiting).toBe(102);
    expect(goneInMs).toBeGreaterThan(9_000);
    expect(missed.map(({ id }) => id)).toEqual([late.id]);
    expect((await eta(late)).startsInMs).toBeGreaterThan(9_000);
    expect((await eta(inTime)).startsInMs).toBeLessThan(3_000);
  });

  it("counts a pause, and the limits of a key of its own", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s", perKey: { rate: "2/s" } });
    const queue = sluice.queue<number>("jobs", { bucket });
    const [, second, , fourth] = await queue.enqueueMany(numbers(4), { key: "slow" });
    const other = await queue.enqueue(0, { key: "other" });
    const unlike = await queue.enqueue(0);

    expect((await eta(fourth!)).startsInMs - (await eta(second!)).startsInMs).toBe(1_000);
    expect((await eta(other)).startsInMs).toBeLessThan(500);
    expect((await eta(unlike)).position).toBe(0);
    await bucket.pause({ forMs: 60_000 });
    expect((await eta(other)).startsInMs).toBeGreaterThan(50_000);
    await bucket.pause();
    expect((await eta(other)).startsInMs).toBe(Infinity);
  });

  it("counts a pause of the queue", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    const job = await queue.enqueue(0);
    await queue.pause();

    expect((await eta(job)).startsInMs).toBe(Infinity);
    expect(await queue.forecast()).toMatchObject({ waiting: 1, goneInMs: Infinity });
    await queue.resume();
    expect((await eta(job)).startsInMs).toBeLessThan(1_000);
  });

  it("takes a delayed job to start when it is due, behind those of its key", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueueMany(numbers(100), { key: "k" });
    const soon = await queue.enqueue(0, { key: "k", delayMs: 1_000 });
    const late = await queue.enqueue(0, { key: "k", delayMs: 100_000 });

    expect((await eta(soon)).startsInMs).toBeGreaterThan(9_000);
    expect((await eta(late)).startsInMs).toBeGreaterThan(95_000);
  });
});

async function eta(job: QueuedJob<number>) {
  const found = await job.eta();
  expect(found).toBeDefined();
  return found!;
}
