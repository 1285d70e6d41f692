import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { startFakeDownstream } from "sluice/testing";
import { children } from "../../support/children/child.ts";
import { deferred } from "../../support/async/deferred.ts";
import { jobCalls, startLaneWorkers } from "../../support/jobs/lane-workers.ts";
import {
  FETCHED_AT_ONCE,
  areAllDone,
  farthestFromPlace,
  openLanes,
  upTo,
  whileOthersWork,
} from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const lanes = openLanes();
const processes = children();

describe("jobs in lanes", () => {
  it("are all stopped by a pause of their bucket, until it is resumed", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    let started = 0;
    for (const key of ["a", "b"]) await queue.enqueueMany(upTo(400), { key });
    sluice.worker(queue, async () => void (started += 1));
    await waitUntil(() => started > 50, "they start");

    await queue.bucket.pause();
    await whileOthersWork(opened, 4);
    const before = started;
    await whileOthersWork(opened, 15);
    const after = started;
    await queue.bucket.resume();
    await waitUntil(() => started === 800, "all have started");

    expect(after).toBe(before);
    expect(before).toBeLessThan(800);
  });

  it("are all stopped by a cooldown that one of them causes", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    const startedMs: number[] = [];
    for (const key of ["a", "b"]) await queue.enqueueMany(upTo(200), { key });
    sluice.worker(queue, async () => {
      startedMs.push(performance.now());
      if (startedMs.length !== 50) return;
      throw Object.assign(new Error("too many"), { status: 429, headers: { "retry-after": "3" } });
    });

    await waitUntil(() => areAllDone(opened), "all are done");

    const gapsMs = startedMs.slice(1).map((atMs, index) => atMs - startedMs[index]!);
    expect(startedMs.length).toBe(401);
    expect(Math.max(...gapsMs)).toBeGreaterThan(2_000);
  });

  it("start no more while their queue is paused, and all when it is resumed", async () => {
    const opened = lanes.open({ rate: "200/s" });
    const { sluice, queue } = opened;
    let started = 0;
    await queue.pause();
    sluice.worker(queue, async () => void (started += 1));
    for (const key of ["a", "b"]) await queue.enqueueMany(upTo(50), { key });

    await whileOthersWork(opened, 5);
    const before = started;
    await queue.resume();
    await waitUntil(() => started === 100, "all have started");

    expect(before).toBe(0);
  });

  it("go back to their positions when the worker that fetched them closes", async () => {
    const policy = { rate: "500/s", perKey: { rate: "20/s" } };
    const [first, second] = [lanes.open(policy), lanes.open(policy)];
    const started: number[] = [];
    const jobs = await first.queue.enqueueMany(upTo(60), { key: "acme" });
    const handler = async ({ data }: { data: number }): Promise<void> => void started.push(data);
    const options = { patienceMs: 60_000, concurrency: 10 };
    const worker = first.sluice.worker(first.queue, handler, options);
    await waitUntil(() => started.length >= 5, "some have started");

    await worker.close();
    const startedThere = started.length;
    const lane = await lanes.redis.zrange(`${lanes.prefix}:{jobs}:lanes:of:acme`, 0, -1);
    const ids = jobs.map(({ id }) => id);
    second.sluice.worker(second.queue, handler, options);
    await waitUntil(() => started.length === 60, "all have started");
    await waitUntil(() => areAllDone(second), "all are done");

    expect(lane).toEqual(ids.slice(startedThere));
    const held = started.slice(startedThere).filter((n) => n < startedThere + 8);
    expect(farthestFromPlace(held)).toBeLessThanOrEqual(FETCHED_AT_ONCE);
    expect(started.toSorted((a, b) => a - b)).toEqual(upTo(60));
  });

  it("have their key's weight when they go back to a lane that had become empty", async () => {
    const policy = { rate: "500/s", perKey: { rate: "1/h" } };
    const { sluice, queue } = lanes.open(policy, { acme: 3 });
    await queue.enqueueMany(upTo(4), { key: "acme" });
    let started = 0;
    const options = { patienceMs: 2 * 3_600_000, concurrency: 10 };
    const worker = sluice.worker(queue, async () => void (started += 1), options);
    await waitUntil(async () => {
      const isEmpty = !(await lanes.keys()).includes("of:acme");
      return isEmpty && started === 1 && (await lanes.heldByWorkers()).size === 3;
    }, "it holds all others");

    await worker.close();

    const own = `${lanes.prefix}:{jobs}:lanes:`;
    expect(await lanes.redis.zcard(`${own}of:acme`)).toBe(3);
    expect(await lanes.redis.hget(`${own}weights`, "acme")).toBe("3");
  });

  it("go back to their positions when their worker has died", async () => {
    const downstream = await startFakeDownstream();
    onTestFinished(() => downstream.close());
    const policy = { rate: "500/s", perKey: { rate: "50/s" } };
    const opened = lanes.open(policy);
    const { sluice, queue } = opened;
    await queue.enqueueMany(upTo(500), { key: "acme" });
    const settings = {
      prefix: lanes.prefix,
      policy,
      url: downstream.url,
      handlerMs: 300,
      concurrency: 10,
    };
    const [doomed] = startLaneWorkers(processes, 1, settings);
    await waitUntil(() => downstream.arrivals.length >= 10, "it is at work");
    doomed!.signal("SIGKILL");
    await doomed!.ended;
    const held = await lanes.heldByWorkers();

    const done: number[] = [];
    sluice.worker(queue, async ({ data }) => void done.push(data), { lockMs: 1_000 });
    await waitUntil(() => areAllDone(opened), "all are done");

    const begun = jobCalls(downstream.arrivals).map(({ job }) => Number(job));
    const others = done.filter((n) => !held.has(n));
    expect(held.size).toBeGreaterThan(0);
    expect(farthestFromPlace(others)).toBeLessThanOrEqual(FETCHED_AT_ONCE);
    // They were before all others in their lane, so they are done once they are back in it.
    expect(Math.max(...[...held].map((n) => done.indexOf(n)))).toBeLessThan(done.length - 20);
    expect(new Set([...begun, ...done]).size).toBe(500);
  });

  it("come back by themselves when they were stored and never joined their lane", async () => {
    const opened = lanes.open({ rate: "500/s" });
    const { sluice, queue } = opened;
    const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
    const stored = new BullQueue("{jobs}", { prefix: lanes.prefix, connection });
    // So the producer has stored it when its next script is lost.
    const { id } = await stored.add("key acme", 7, { delay: 60_000, priority: 3 });
    await lanes.redis.zadd(`${lanes.prefix}:{jobs}:delayed`, Date.now() * 4_096, id!);
    const done: number[] = [];
    sluice.worker(queue, async ({ data, key }) => void done.push(key === "acme" ? data : -1));

    await waitUntil(() => done.length > 0, "it is done");

    expect(done).toEqual([7]);
    await waitUntil(() => areAllDone(opened), "its end is stored");
    expect(await lanes.rest()).toEqual([]);
    await stored.close();
    await connection.quit();
  });

  it("come back by themselves when all state of the lanes is lost", async () => {
    const opened = lanes.open({ rate: "500/s" });
    const { sluice, queue } = opened;
    const jobs = await queue.enqueueMany(upTo(20), { key: "acme" });
    for (const name of await lanes.keys())
      await lanes.redis.del(`${lanes.prefix}:{jobs}:lanes:${name}`);
    const delayed = `${lanes.prefix}:{jobs}:delayed`;
    for (const { id } of jobs) await lanes.redis.zadd(delayed, Date.now() * 4_096, id);
    const done = new Set<number>();

    sluice.worker(queue, async ({ data }) => void done.add(data));
    await waitUntil(() => done.size === 20, "all are done");
    await waitUntil(() => areAllDone(opened), "their ends are stored");

    expect(await lanes.rest()).toEqual([]);
  });

  it("leave nothing behind when they are removed", async () => {
    const { queue } = lanes.open({ rate: "500/s", burst: 10 }, { acme: 3 });
    const jobs = await queue.enqueueMany([1, 2], { key: "acme", maxWaitMs: 3_600_000 });
    const other = await queue.enqueue(3, { key: "other", cost: 5 });

    const removed = [];
    for (const { id } of [...jobs, other]) removed.push(await queue.remove(id));

    expect(removed).toEqual([true, true, true]);
    expect(await lanes.rest()).toEqual([]);
    expect(await lanes.redis.hget(`${lanes.prefix}:{jobs}:lanes:state`, "parked")).toBe("0");
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("do not block others when they are removed while a worker is about to ask for them", async () => {
    const opened = lanes.open({ rate: "500/s" });
    const { sluice, queue } = opened;
    const done: number[] = [];
    const busy = deferred();
    await queue.enqueue(-1);
    // Its one place is taken, so that it asks as soon as that is free.
    const worker = sluice.worker(
      queue,
      async ({ data }) => {
        if (data < 0) await busy.promise;
        done.push(data);
      },
      { concurrency: 1 },
    );
    await waitUntil(async () => (await queue.counts()).active === 1, "its place is taken");
    const jobs = await queue.enqueueMany(upTo(20), { key: "acme" });
    const others = await queue.enqueueMany([100, 101], { key: "other" });

    const removing = jobs.slice(0, 19).map(({ id }) => queue.remove(id));
    busy.resolve();
    const removed = await Promise.all(removing);
    await waitUntil(() => areAllDone(opened), "all others are done");

    // One that was done before can be removed as well.
    const left = [...jobs, ...others].filter((_job, at) => removed[at] !== true);
    expect(removed).toContain(true);
    expect(done).toEqual(expect.arrayContaining(left.map(({ data }) => data)));
    expect(new Set(done).size).toBe(done.length);
    expect(await lanes.rest()).toEqual([]);
    await worker.close();
  });

  it.each([
    ["__proto__"],
    ["constructor"],
    ["a:b"],
    ["ключ"],
    ["of:acme"],
    ["*"],
    ["a key with blanks"],
    ["%d \"'[]\\"],
    ["k".repeat(256)],
  ])("are done with every kind of key: %s", async (key) => {
    const opened = lanes.open({ rate: "500/s", perKey: { rate: "50/s" } });
    const { sluice, queue } = opened;
    const done: (string | undefined)[] = [];
    await queue.enqueueMany(upTo(15), { key });
    sluice.worker(queue, async (job) => void done.push(job.key as string));

    await waitUntil(() => done.length === 15, "all are done");
    await waitUntil(() => areAllDone(opened), "their ends are stored");

    expect(new Set(done)).toEqual(new Set([key]));
    expect(await lanes.rest()).toEqual([]);
  });

  it("leave no state of their lanes once all are done", async () => {
    const opened = lanes.open(
      {
        rate: "1000/s",
        burst: 10,
        perKey: (key) => ({ rate: key === "slow" ? "20/s" : "500/s", burst: 5 }),
      },
      { heavy: 3, light: 0.1 },
    );
    const { sluice, queue } = opened;
    const keys = ["heavy", "light", "slow", "plain"];
    for (const key of keys) {
      await queue.enqueueMany(upTo(30), { key, cost: key === "heavy" ? 2 : 1 });
      await queue.enqueueMany(upTo(5), { key, maxWaitMs: 600_000, priority: "high" });
      await queue.enqueueMany(upTo(3), { key, delayMs: 300 });
    }
    let tries = 0;
    sluice.worker(queue, async (_job, { attempt }) => {
      tries += 1;
      if (tries % 10 === 0 && attempt === 1) throw new Error("once more");
    });

    await waitUntil(() => areAllDone(opened), "all are done");

    expect(await lanes.rest()).toEqual([]);
    expect(await lanes.redis.hget(`${lanes.prefix}:{jobs}:lanes:state`, "parked")).toBe("0");
    expect((await queue.counts()).failed).toBe(0);
  });
});
