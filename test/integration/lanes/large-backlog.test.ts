import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, inject, it } from "vitest";
import { RetryAfter, type Job } from "sluice";

import { deferred } from "../../support/async/deferred.ts";
import { openLanes, upTo, whileOthersWork } from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const lanes = openLanes();

/** Does something with the queue as BullMQ's own tools do, which know nothing of lanes. */
async function withTool(work: (tool: BullQueue) => Promise<unknown>): Promise<void> {
  const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  const tool = new BullQueue("{jobs}", { prefix: lanes.prefix, connection });
  await work(tool);
  await tool.close();
  await connection.quit();
}

/** A queue with the backlog of one tenant, and workers with as many places as handlers of 50 ms need. */
async function openBusy(count: number) {
  const opened = lanes.open({ rate: "200/s" });
  const { sluice, queue } = opened;
  /** The keys of the jobs in the order in which they began. */
  const begun: string[] = [];
  const again = new Set<string>();
  async function handle({ key, id }: Job<number>): Promise<void> {
    begun.push((key as string | undefined) ?? "-");
    await pause(50);
    if (key !== "again" || again.has(id)) return;
    again.add(id);
    throw new RetryAfter(100);
  }
  await queue.enqueueMany(upTo(count), { key: "backlog" });
  const worker = sluice.worker(queue, handle, { concurrency: 20 });
  await waitUntil(() => begun.length >= 20, "the backlog is worked on");
  const countOf = (key: string): number => begun.filter((each) => each === key).length;
  return { ...opened, begun, countOf, handle, worker };
}

describe("beside the backlog of one tenant", () => {
  it.each([
    ["a delayed job", { delayMs: 200, priority: "critical" as const }, 1],
    ["a job that is tried again", { attempts: 3 }, 2],
    ["a recurring job", { every: 500, dedupeId: "often" }, 3],
  ])("%s takes its lane's turn once it is due", async (_what, options, times) => {
    const { queue, begun, countOf } = await openBusy(2_000);
    const from = begun.length;

    await queue.enqueue(0, { key: "again", ...options });
    await waitUntil(() => countOf("again") >= times, "it has begun so often");

    // By then it has had its time, its turns, and what workers hold; else the whole backlog went before it.
    expect(begun.length - from).toBeLessThan(1_000);
  });

  it("jobs without a key take every other turn", async () => {
    const { queue, begun, countOf } = await openBusy(1_000);
    const from = begun.length;

    await queue.enqueueMany(upTo(100));
    await waitUntil(() => countOf("-") === 100, "all of them have begun");

    expect(begun.length - from).toBeLessThan(400);
  });
});

describe("a worker that starts after another has gone", () => {
  it("begins immediately with the jobs of a long lane, however often that happens", async () => {
    const { sluice, queue, begun, handle, ...first } = await openBusy(3_000);
    let worker = first.worker;

    for (let round = 0; round < 6; round++) {
      const closing = worker.close();
      const before = begun.length;
      worker = sluice.worker(queue, handle, { concurrency: 20 });
      await closing;
      await waitUntil(() => begun.length > before + 10, "the next one is at work");
    }

    expect((await queue.counts()).failed).toBe(0);
  });
});

describe("jobs that a tool of BullMQ's has removed", () => {
  it.each([
    ["drain", (tool: BullQueue) => tool.drain(true)],
    ["clean", (tool: BullQueue) => tool.clean(0, 10_000, "delayed")],
    ["obliterate", (tool: BullQueue) => tool.obliterate({ force: true })],
  ])("by %s delay no other job", async (_how, remove) => {
    const { sluice, queue } = lanes.open({ rate: "200/s" });
    await queue.enqueueMany(upTo(3_000), { key: "gone" });
    await withTool(remove);
    await queue.enqueueMany(upTo(10), { key: "there" });
    const begun: (string | undefined)[] = [];

    sluice.worker(queue, async ({ key }) => void begun.push(key as string));
    await waitUntil(() => begun.length === 10, "all that are there have begun");

    expect(new Set(begun)).toEqual(new Set(["there"]));
  });
});

describe("an idle worker", () => {
  it("begins with jobs of lanes as soon as the queue is resumed", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    let begun = 0;
    sluice.worker(queue, async () => void (begun += 1));
    await queue.enqueue(0);
    await waitUntil(() => begun === 1, "it is at work");
    await queue.pause();
    await queue.enqueueMany(upTo(5), { key: "there" });
    await whileOthersWork(opened, 30);

    await queue.resume();
    await whileOthersWork(opened, 60);

    // It waits for ten seconds at a time.
    expect(begun).toBe(6);
  });

  it("begins with the next job once it may, when a tool has set how many may run at once", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    await withTool((tool) => tool.setGlobalConcurrency(1));
    const first = deferred();
    const begun: number[] = [];
    sluice.worker(queue, async ({ data }) => {
      begun.push(data);
      if (data === 0) await first.promise;
    });
    await queue.enqueue(0);
    await waitUntil(() => begun.length === 1, "the first runs");
    await queue.enqueue(1);

    first.resolve();
    await whileOthersWork(opened, 50);

    // It waits for five seconds at a time.
    expect(begun).toEqual([0, 1]);
  });

  it("keeps the bucket's rate, when a tool has set a rate for all workers", async () => {
    const { sluice, queue } = lanes.open({ rate: "200/s" });
    // BullMQ's own workers would begin one a minute.
    await withTool((tool) => tool.setGlobalRateLimit(1, 60_000));
    const begun: (string | undefined)[] = [];
    sluice.worker(queue, async ({ key }) => {
      begun.push(key as string);
      if (begun.length === 1) throw new RetryAfter(50);
    });

    await queue.enqueueMany(upTo(10), { key: "there" });
    await queue.enqueueMany(upTo(10));
    await waitUntil(async () => {
      const { active, waiting, delayed } = await queue.counts();
      return active + waiting + delayed === 0;
    }, "all are done");

    // One has begun twice.
    expect(begun).toHaveLength(21);
  });

  it("is notified of a job although a closing worker has waited longer", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    const last = deferred();
    const begun: number[] = [];
    async function handle({ data }: Job<number>): Promise<void> {
      begun.push(data);
      if (data === 0) await last.promise;
    }
    const closing = sluice.worker(queue, handle);
    await queue.enqueue(0);
    await waitUntil(() => begun.length === 1, "it has a job that takes long");
    sluice.worker(queue, handle);
    await whileOthersWork(opened, 10);

    const closed = closing.close();
    await whileOthersWork(opened, 4);
    await queue.enqueue(1);
    await whileOthersWork(opened, 50);
    const soon = [...begun];
    last.resolve();
    await closed;

    expect(soon).toEqual([0, 1]);
  });
});

// The rate is out of reach, so that nothing but turns decides.
describe("a flood", () => {
  it("of jobs whose maxWaitMs is over delays no other job", async () => {
    const { sluice, queue } = lanes.open({ rate: "10000/s" });
    await queue.enqueueMany(upTo(4_000), { key: "late", maxWaitMs: 1 });
    await queue.enqueueMany(upTo(200), { key: "there" });
    let begun = 0;
    let failedBefore = 0;

    async function handle(): Promise<void> {
      begun += 1;
      if (begun === 200) failedBefore = (await queue.counts()).failed;
    }
    sluice.worker(queue, handle, { concurrency: 5 });
    await waitUntil(async () => (await queue.counts()).failed === 4_000, "all others have expired");

    expect(begun).toBe(200);
    // A turn of theirs for each that begins, and as many places as are free beside it.
    expect(failedBefore).toBeLessThan(200 * 5);
  });

  it("of jobs that come due at one moment delays no other job", async () => {
    const { sluice, queue } = lanes.open({ rate: "10000/s" });
    const at = new Date(Date.now() + 3_000);
    for (let part = 0; part < 5; part++) {
      await queue.enqueueMany(upTo(1_000), { key: "flood", at });
    }
    const begun: (string | undefined)[] = [];
    sluice.worker(queue, async ({ key }) => void begun.push(key as string), { concurrency: 5 });
    await waitUntil(() => begun.length > 0, "the flood has come");

    const from = begun.length;
    await queue.enqueueMany(upTo(50), { key: "there" });
    await waitUntil(() => begun.filter((key) => key === "there").length === 50, "all have begun");

    // Two lanes take turns; the flood goes on while these are stored.
    expect(begun.lastIndexOf("there") - begun.indexOf("there")).toBeLessThan(150);
    expect(begun.length - from).toBeGreaterThan(50);
  });
});
