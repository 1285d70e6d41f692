import { describe, expect, inject, it } from "vitest";
import type { Queue } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const downstream = useDownstream();

/** Worker processes that start 20 jobs a second together, and hold up to 20 more each. */
function startWorkers(count: number): void {
  const args = [inject("redisUrl"), sluices.prefix(), "20/s", downstream.url, "0", "30000"];
  for (let each = 0; each < count; each++) processes.start("workers/job-worker.ts", args);
}

function names(key: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${key} ${index}`);
}

/** The jobs that have reached the downstream, in order, of one key or of all. */
function reached(key = ""): string[] {
  const all = downstream.arrivals.map(({ headers }) => String(headers["x-job"]));
  return all.filter((name) => name.startsWith(key));
}

/** Resolves once no worker holds a job. */
async function untilNoneActive(queue: Queue<string>, key?: string): Promise<void> {
  const sinceMs = performance.now();
  await waitUntil(async () => (await queue.counts({ key })).active === 0, "no worker holds a job");
  console.log(`given back ${(performance.now() - sinceMs).toFixed(0)} ms after the pause`);
}

describe("a paused key", () => {
  it("starts none of its jobs, whatever worker processes had fetched, and others go on", async () => {
    const { queue } = openQueue<string>(sluices, { rate: "20/s" });
    await queue.enqueueMany(names("acme", 60), { key: "acme" });
    await queue.enqueueMany(names("beta", 200), { key: "beta" });
    startWorkers(2);
    await waitUntil(() => reached("acme").length > 5, "both are at work");

    await queue.pause({ key: "acme" });
    await untilNoneActive(queue, "acme");
    const hasSettled = async (): Promise<boolean> => (await queue.counts()).delayed === 0;
    await waitUntil(hasSettled, "all have gone back to their places");
    const started = reached("acme").length;
    const before = reached("beta").length;
    await waitUntil(() => reached("beta").length > before + 40, "the other key goes on");
    const startedMeanwhile = reached("acme").length - started;
    const counts = await queue.counts({ key: "acme" });
    const paused = await queue.paused();
    await queue.resume({ key: "acme" });
    await waitUntil(() => reached("acme").length === 60, "all of it are done");

    expect(startedMeanwhile).toBe(0);
    expect(counts).toMatchObject({ waiting: 60 - started, active: 0 });
    expect(paused).toEqual([{ key: "acme", forMs: Infinity }]);
    expect(JSON.stringify(paused)).toContain('"forever"');
    expect(await queue.paused()).toEqual([]);
    expect(new Set(reached("acme")).size).toBe(60);
    const [attempts] = [new Set(downstream.arrivals.map(({ headers }) => headers["x-attempt"]))];
    expect([...attempts]).toEqual(["1"]);
  });

  it("takes back what a worker holds of it, and has yet to start", async () => {
    const { sluice, bucket, queue } = openQueue<string>(sluices);
    const started: string[] = [];
    await bucket.pause();
    await queue.enqueueMany(names("acme", 5), { key: "acme" });
    sluice.worker(queue, async ({ data }) => void started.push(data));
    const held = async (): Promise<number> => (await queue.counts({ key: "acme" })).active;
    await waitUntil(async () => (await held()) > 0, "the worker holds one");

    await queue.pause({ key: "acme" });
    await untilNoneActive(queue, "acme");
    await queue.enqueue("of another", { key: "beta" });
    await bucket.resume();
    await waitUntil(() => started.length > 0, "the other key goes on");

    expect(started).toEqual(["of another"]);
    expect(await queue.counts({ key: "acme" })).toMatchObject({ waiting: 5, active: 0 });
  });

  it("keeps its retries, its delayed jobs and newly enqueued ones", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const started: string[] = [];
    let fails = true;
    sluice.worker(queue, async ({ data }) => {
      started.push(data);
      if (data === "retried" && fails) throw new Error("not yet");
    });
    await queue.enqueue("retried", {
      key: "acme",
      backoff: { baseMs: 1, maxMs: 1 },
      attempts: 1_000,
    });
    await waitUntil(() => started.length > 2, "it is retried");

    await queue.pause({ key: "acme" });
    await queue.enqueue("delayed", { key: "acme", delayMs: 1 });
    await queue.enqueue("new", { key: "acme" });
    await untilNoneActive(queue);
    await waitUntil(async () => (await queue.counts()).waiting === 3, "all three wait");
    const before = started.length;
    await (await queue.enqueue("of another", { key: "beta" })).finished();
    await (await queue.enqueue("of none")).finished();
    const meanwhile = started.slice(before);
    fails = false;
    await queue.resume({ key: "acme" });
    await waitUntil(async () => (await queue.counts()).done === 5, "all are done");

    expect(meanwhile).toEqual(["of another", "of none"]);
  });

  it("continues by itself after forMs, even if all processes ended before", async () => {
    const first = openQueue<string>(sluices);
    await first.queue.enqueue("a", { key: "acme" });
    await first.queue.pause({ key: "acme", forMs: 1_500 });
    const [{ forMs } = { forMs: 0 }] = await first.queue.paused();
    const pausedAtMs = Date.now();
    await first.sluice.close();

    const { sluice, queue } = openQueue<string>(sluices);
    let startedAtMs = 0;
    sluice.worker(queue, async () => void (startedAtMs = Date.now()));
    await waitUntil(() => startedAtMs > 0, "the pause is over");

    expect(forMs).toBeGreaterThan(0);
    expect(forMs).toBeLessThanOrEqual(1_500);
    // The clocks of two processes on one machine.
    expect(startedAtMs - pausedAtMs).toBeGreaterThan(1_300);
    expect(await queue.paused()).toEqual([]);
  });
});

describe("a paused queue", () => {
  it("starts nothing more, and takes back what its workers had fetched", async () => {
    const { sluice, bucket, queue } = openQueue<string>(sluices, { rate: "20/s" });
    await queue.enqueueMany(names("keyed", 60), { key: "acme" });
    await queue.enqueueMany(names("free", 60));
    startWorkers(2);
    await waitUntil(() => reached().length > 10, "they are at work");

    await queue.pause();
    await untilNoneActive(queue);
    const hasSettled = async (): Promise<boolean> => (await queue.counts()).delayed === 0;
    await waitUntil(hasSettled, "all have gone back to their places");
    const counts = await queue.counts();
    const started = reached().length;
    const other = sluice.queue<string>("other", { bucket });
    sluice.worker(other, async () => {});
    const jobs = await other.enqueueMany(names("other", 30));
    await Promise.all(jobs.map((job) => job.finished()));
    const startedMeanwhile = reached().length - started;
    await queue.resume();
    await waitUntil(() => reached().length === 120, "all are done");

    expect(startedMeanwhile).toBe(0);
    expect(counts).toMatchObject({ waiting: 120 - started, active: 0, failed: 0 });
    expect(new Set(reached()).size).toBe(120);
  });

  it("goes on by itself after forMs, and can be resumed before, by BullMQ's own tools too", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    let started = 0;
    sluice.worker(queue, async () => void (started += 1));
    await queue.pause({ forMs: 1_000 });
    await queue.enqueue("a");
    const paused = await queue.paused();
    await waitUntil(() => started === 1, "the pause is over");
    const after = await queue.paused();
    await queue.pause({ forMs: 100_000 });
    await queue.enqueue("b");
    await queue.resume();
    await waitUntil(() => started === 2, "it was resumed");

    expect(paused).toEqual([{ key: undefined, forMs: expect.any(Number) as number }]);
    expect(after).toEqual([]);
  });

  it("keeps a key paused that was paused by itself", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const started: string[] = [];
    sluice.worker(queue, async ({ data }) => void started.push(data));
    await queue.pause({ key: "acme" });
    await queue.pause();
    await queue.enqueue("of acme", { key: "acme" });
    await queue.enqueue("of beta", { key: "beta" });

    await queue.resume();
    await waitUntil(() => started.length === 1, "the other key goes on");

    expect(started).toEqual(["of beta"]);
    expect(await queue.paused()).toEqual([{ key: "acme", forMs: Infinity }]);
  });
});
