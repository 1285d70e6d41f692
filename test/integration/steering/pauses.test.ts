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
  const args = [inject("redisUrl"), sluices.prefix(), "20/s", downstream.url];
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
async function untilNoneActive(queue: Queue<string>): Promise<void> {
  await waitUntil(async () => (await queue.counts()).active === 0, "no worker holds a job");
}

describe("a paused key", () => {
  it("starts none of its jobs, whatever worker processes had fetched, and others go on", async () => {
    const { queue } = openQueue<string>(sluices, { rate: "20/s" });
    await queue.enqueueMany(names("acme", 60), { key: "acme" });
    await queue.enqueueMany(names("beta", 200), { key: "beta" });
    startWorkers(2);
    await waitUntil(() => reached("acme").length > 5, "both are at work");

    await queue.pause({ key: "acme" });
    const pausedAtMs = Date.now();
    const before = reached("beta").length;
    await waitUntil(() => reached("beta").length > before + 50, "the other key goes on");
    const late = downstream.arrivals.filter(
      ({ headers, atMs }) =>
        String(headers["x-job"]).startsWith("acme") && atMs > pausedAtMs + 1_000,
    );
    const paused = await queue.paused();
    await queue.resume({ key: "acme" });
    await waitUntil(() => reached("acme").length === 60, "all of it are done");

    expect(late).toEqual([]);
    expect(paused).toEqual([{ key: "acme", forMs: Infinity }]);
    expect(JSON.stringify(paused)).toContain('"forever"');
    expect(await queue.paused()).toEqual([]);
    expect(new Set(reached("acme")).size).toBe(60);
    const [attempts] = [new Set(downstream.arrivals.map(({ headers }) => headers["x-attempt"]))];
    expect([...attempts]).toEqual(["1"]);
  });

  it("keeps its retries, its delayed jobs and what is enqueued meanwhile", async () => {
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

  it("goes on by itself after forMs, also when all processes have ended meanwhile", async () => {
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
  it("starts nothing a second later, and takes back what its workers had fetched", async () => {
    const { queue } = openQueue<string>(sluices, { rate: "20/s" });
    await queue.enqueueMany(names("keyed", 60), { key: "acme" });
    await queue.enqueueMany(names("free", 60));
    startWorkers(2);
    await waitUntil(() => reached().length > 10, "they are at work");

    await queue.pause();
    const pausedAtMs = Date.now();
    await untilNoneActive(queue);
    await waitUntil(() => Date.now() > pausedAtMs + 2_000, "two seconds have passed");
    const late = downstream.arrivals.filter(({ atMs }) => atMs > pausedAtMs + 1_000);
    const counts = await queue.counts();
    const started = reached().length;
    await queue.resume();
    await waitUntil(() => reached().length === 120, "all are done");

    expect(late).toEqual([]);
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
