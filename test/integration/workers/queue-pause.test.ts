import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createRedisLanes } from "../../../src/stores/redis/queue/store.ts";
import { block } from "../../support/async/block.ts";
import { deferred } from "../../support/async/deferred.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { jobCalls, startLaneWorkers } from "../../support/jobs/lane-workers.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const JOBS = 300;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();
/** A tenant that may do little, for which workers wait as long as this. */
const POLICY = { rate: "200/s", perKey: { rate: "2/s" } };
const PATIENCE_MS = 60_000;

/** Three worker processes that hold jobs: two each of one tenant, or many of none. */
async function openHolding(key?: string) {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", POLICY);
  const queue = sluice.queue<string>("jobs", { bucket });
  const names = Array.from({ length: JOBS }, (_, index) => `job ${index}`);
  await queue.enqueueMany(names, { attempts: 1, key });
  const startWorkers = (count: number, { concurrency = 50, policy = POLICY } = {}) =>
    startLaneWorkers(processes, count, {
      prefix: sluices.prefix(),
      url: downstream.url,
      policy,
      concurrency,
      lockMs: 30_000,
      patienceMs: PATIENCE_MS,
    });
  const workers = startWorkers(3);
  await waitUntil(() => downstream.arrivals.length > 4, "the workers are at work");
  if (key === undefined) await bucket.pause();
  else await waitUntil(async () => (await queue.counts()).active >= 6, "each holds two");
  return { sluice, bucket, queue, names, workers, startWorkers };
}

type Holding = Awaited<ReturnType<typeof openHolding>>;

/** Jobs of another queue of the same bucket, one after another: two seconds go by. */
async function someTime({ sluice, bucket }: Holding): Promise<void> {
  const probe = sluice.queue<number>("probe", { bucket });
  const worker = sluice.worker(probe, () => {});
  const jobs = await probe.enqueueMany([1, 2, 3, 4, 5], { key: "probe" });
  await Promise.all(jobs.map((job) => job.finished()));
  await worker.close();
}

function startedAfter(atMs: number): string[] {
  return jobCalls(downstream.arrivals)
    .filter((call) => call.atMs > atMs)
    .map(({ job }) => job);
}

/** The jobs that wait without a key, in the order in which they are taken, as a dashboard shows them. */
async function waitingJobs(): Promise<unknown[]> {
  const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
  const tool = new BullQueue("{jobs}", { prefix: sluices.prefix(), connection });
  const jobs = await tool.getJobs(["prioritized"], 0, -1, true);
  await tool.close();
  await connection.quit();
  return jobs.map(({ data }) => data as unknown);
}

describe("a queue that is paused while worker processes hold jobs", () => {
  it("gives back what was held to its old place, and starts nothing", async () => {
    const holding = await openHolding();
    const { queue, bucket, names } = holding;

    await queue.pause();
    await waitUntil(async () => (await queue.counts()).active === 0, "all went back");
    const begun = new Set(jobCalls(downstream.arrivals).map(({ job }) => job));
    const waiting = await waitingJobs();
    await bucket.resume();
    await someTime(holding);

    expect(waiting).toEqual(names.filter((name) => !begun.has(name)));
    expect(await queue.counts()).toMatchObject({ waiting: waiting.length, active: 0 });
    expect(jobCalls(downstream.arrivals)).toHaveLength(begun.size);
  });

  it("runs each of them once when it is resumed, in order, without an attempt used", async () => {
    const { queue, names, workers, startWorkers } = await openHolding("acme");

    await queue.pause();
    await waitUntil(async () => (await queue.counts()).active === 0, "all went back");
    const before = jobCalls(downstream.arrivals).map(({ job }) => job);
    for (const worker of workers) worker.send("close");
    await Promise.all(workers.map(({ ended }) => ended));
    const policy = { rate: "500/s", perKey: { rate: "500/s" } };
    startWorkers(1, { concurrency: 1, policy });
    await queue.resume();
    await waitUntil(async () => (await queue.counts()).done === JOBS, "all are done");

    const after = jobCalls(downstream.arrivals).slice(before.length);
    const begun = new Set(before);
    expect(after.map(({ job }) => job)).toEqual(names.filter((name) => !begun.has(name)));
    expect(after.every(({ attempt }) => attempt === 1)).toBe(true);
  });

  it("starts nothing a second later, be it in a process that stood still or has just begun", async () => {
    const holding = await openHolding("acme");
    const { queue, workers, startWorkers } = holding;
    workers[0]!.signal("SIGSTOP");

    await queue.pause();
    const pausedAtMs = Date.now();
    startWorkers(1);
    await someTime(holding);
    workers[0]!.signal("SIGCONT");
    await someTime(holding);
    await waitUntil(async () => (await queue.counts()).active === 0, "all went back");

    expect(startedAfter(pausedAtMs + 1_000)).toEqual([]);
  });

  it("starts nothing by slots that came due while a process stood still", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "40/s" });
    const begun: number[] = [];
    sluice.worker(queue, async ({ data }) => void begun.push(data));
    const { queue: asked } = openQueue<number>(sluices, { rate: "40/s" });
    await asked.enqueueMany(Array.from({ length: 300 }, (_, index) => index));
    await waitUntil(() => begun.length > 20, "the worker is at work");

    const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
    onTestFinished(async () => void (await connection.quit()));
    await connection.ping();

    const lanes = createRedisLanes(connection, sluices.prefix());
    const pausing = lanes.pause({ queue: "jobs", key: undefined, forMs: Infinity });
    await nextTurn();
    const before = begun.length;
    block(1_500);
    await pausing;
    await waitUntil(async () => (await asked.counts()).active === 0, "all went back");

    // 60 slots came due; the job of one that came just before may have been on its way to its handler.
    expect(begun.length).toBeLessThanOrEqual(before + 1);
  });

  it("lets handlers that run end", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "1/h" });
    const queue = sluice.queue<number>("jobs", { bucket });
    const { promise: mayEnd, resolve: end } = deferred();
    sluice.worker(queue, () => mayEnd);
    await queue.enqueueMany([1, 2]);
    await waitUntil(async () => (await queue.counts()).active === 2, "both are held");

    await queue.pause();
    await waitUntil(async () => (await queue.counts()).waiting === 1, "the other went back");
    end();
    await waitUntil(async () => (await queue.counts()).done === 1, "the handler has ended");

    expect(await queue.counts()).toMatchObject({ done: 1, waiting: 1, active: 0, failed: 0 });
  });
});
