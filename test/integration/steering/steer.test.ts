import { Queue as BullQueue } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { deferred } from "../../support/async/deferred.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("a job of a queue", () => {
  it("is found by its id in any process, with its facts", async () => {
    const { queue } = openQueue<{ amount: number }>(sluices);
    const other = openQueue<{ amount: number }>(sluices);
    const given = await queue.enqueue({ amount: 5 }, { key: "acme", priority: "high" });

    expect(await other.queue.job(given.id)).toEqual({ ...given, isNew: false });
    expect(await other.queue.job("no such id")).toBe(undefined);
  });

  it("shares its methods with the other jobs of one call", async () => {
    const { queue } = openQueue<number>(sluices);

    const [first, second] = await queue.enqueueMany([1, 2]);

    expect(Object.keys(first!)).not.toContain("state");
    expect(Object.getPrototypeOf(first)).toBe(Object.getPrototypeOf(second));
  });

  it("says where it is, from waiting to done", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const later = await queue.enqueue(1, { delayMs: 60_000 });
    const job = await queue.enqueue(2);
    const states = [await later.state(), await job.state()];
    sluice.worker(queue, () => mayEnd);

    await waitUntil(async () => (await job.state()) === "active", "the job runs");
    end();
    await job.finished();

    expect(states).toEqual(["delayed", "waiting"]);
    expect(await job.state()).toBe("done");
  });

  it("has no state, no progress and no logs once it was removed", async () => {
    const { queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);

    expect(await job.remove()).toBe(true);

    expect(await job.state()).toBe(undefined);
    expect(await job.progress()).toBe(undefined);
    expect(await job.logs()).toEqual([]);
    expect(await job.remove()).toBe(false);
  });

  it("shows changes that were reported after it was read", async () => {
    const { queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1);
    const before = [await job.progress(), await job.logs()];
    const connection = new Redis(inject("redisUrl"), { maxRetriesPerRequest: null });
    const stored = new BullQueue(queue.stored.name, { connection, prefix: queue.stored.prefix });
    const bullJob = await stored.getJob(job.id);

    await bullJob!.updateProgress({ percent: 50 });
    await bullJob!.log("half of it");

    expect(before).toEqual([undefined, []]);
    expect(await job.progress()).toEqual({ percent: 50 });
    expect(await job.logs()).toEqual(["half of it"]);
    await stored.close();
    await connection.quit();
  });
});

describe("a queue", () => {
  it("counts its jobs by where they are", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const done = await queue.enqueue("good");
    const failed = await queue.enqueue("bad", { attempts: 1 });
    const worker = sluice.worker(queue, async ({ data }) => {
      if (data === "bad") throw new Error("no");
    });
    await done.finished();
    await rejectionOf(failed.finished());
    await worker.close();

    await queue.enqueueMany(["a", "b", "c"]);
    await queue.enqueue("later", { delayMs: 60_000 });

    expect(await queue.counts()).toEqual({ waiting: 3, active: 0, delayed: 1, done: 1, failed: 1 });
  });

  it("counts all states at one moment, while jobs go from hand to hand", async () => {
    const JOBS = 500;
    const { sluice, queue } = openQueue<number>(sluices);
    await queue.enqueueMany(Array<number>(JOBS).fill(0), { key: "acme" });
    sluice.worker(queue, async () => {}, { concurrency: 50 });
    const seen = new Set<string>();

    let ended = 0;
    while (ended < JOBS) {
      const counts = await Promise.all(Array.from({ length: 10 }, () => queue.counts()));
      for (const { waiting, active, delayed, done } of counts) {
        seen.add(`${waiting + active + done} and ${delayed} delayed`);
        ended = done;
      }
    }

    expect([...seen]).toEqual([`${JOBS} and 0 delayed`]);
  });

  it("starts no job while it is paused, over all workers, and goes on when it is resumed", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const other = openQueue<number>(sluices);
    let started = 0;
    await queue.pause();
    other.sluice.worker(other.queue, async () => void (started += 1));
    await queue.enqueueMany([1, 2, 3]);
    const probe = sluice.queue<number>("probe", { bucket: queue.bucket });
    sluice.worker(probe, async () => {});

    await (await probe.enqueue(1)).finished();
    const startedWhilePaused = started;
    const { waiting } = await queue.counts();
    await queue.resume();
    await waitUntil(() => started === 3, "all jobs have started");

    expect(startedWhilePaused).toBe(0);
    expect(waiting).toBe(3);
  });

  it("drains its queued and delayed jobs, and returns their number", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const running = await queue.enqueue(0);
    const worker = sluice.worker(queue, () => mayEnd, { concurrency: 1 });
    await waitUntil(async () => (await running.state()) === "active", "a job runs");
    await queue.enqueueMany(Array.from({ length: 2_500 }, (_, index) => index));
    await queue.enqueueMany([1, 2], { delayMs: 60_000 });
    await queue.enqueue(3, { priority: "low" });

    const drained = await queue.drain();
    end();
    await running.finished();
    await worker.close();

    expect(drained).toBe(2_503);
    expect(await queue.counts()).toEqual({ waiting: 0, active: 0, delayed: 0, done: 1, failed: 0 });
    expect(await queue.drain()).toBe(0);
  });

  it("drains a job that came back from a worker that died", async () => {
    const { queue } = openQueue<number>(sluices);
    const { id } = await queue.enqueue(1);
    const redis = new Redis(inject("redisUrl"));
    const key = `${queue.stored.prefix}:${queue.stored.name}`;
    // Where BullMQ puts such a job, whatever its priority.
    await redis.zrem(`${key}:prioritized`, id);
    await redis.lpush(`${key}:wait`, id);

    expect(await queue.drain()).toBe(1);
    expect(await queue.job(id)).toBe(undefined);
    await redis.quit();
  });

  it("removes a job that waits or has ended, but not one that runs", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const running = await queue.enqueue(1);
    sluice.worker(queue, () => mayEnd, { concurrency: 1 });
    await waitUntil(async () => (await running.state()) === "active", "a job runs");
    const waiting = await queue.enqueue(2);

    const removed = [await queue.remove(running.id), await queue.remove(waiting.id)];
    end();
    await running.finished();

    expect(removed).toEqual([false, true]);
    expect(await queue.remove(running.id)).toBe(true);
    expect(await queue.remove(running.id)).toBe(false);
    expect(await queue.counts()).toMatchObject({ waiting: 0, active: 0, done: 0 });
  });

  it("does a job first that was given a higher priority", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const done: string[] = [];
    await queue.enqueueMany(["a", "b", "c"]);
    const last = await queue.enqueue("last");

    const isDone = await queue.reprioritise(last.id, "critical");
    const { priority } = (await queue.job(last.id))!;
    sluice.worker(queue, async ({ data }) => void done.push(data), { concurrency: 1 });
    await waitUntil(() => done.length === 4, "all jobs are done");

    expect([isDone, priority]).toEqual([true, "critical"]);
    expect(done).toEqual(["last", "a", "b", "c"]);
    expect(await queue.reprioritise(last.id, "low")).toBe(false);
    expect(await queue.reprioritise("no such id", "low")).toBe(false);
  });

  it.each([
    ["job", "id", (queue: ReturnType<typeof openQueue>["queue"]) => queue.job("")],
    ["remove", "id", (queue: ReturnType<typeof openQueue>["queue"]) => queue.remove(5 as never)],
    [
      "reprioritise",
      "priority",
      (queue: ReturnType<typeof openQueue>["queue"]) => queue.reprioritise("1", "urgent" as never),
    ],
  ])("refuses what %s() can never work with", async (_name, option, call) => {
    const { queue } = openQueue<unknown>(sluices);

    const reason = await rejectionOf(call(queue));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});

describe("a filter whose key is missing", () => {
  const given = { key: undefined };
  const due = { delayMs: 1 };
  type Opened = ReturnType<typeof openQueue<number>>;

  it.each<[string, (opened: Opened) => Promise<unknown>]>([
    ["queue.drain()", ({ queue }) => queue.drain(given)],
    ["queue.pause()", ({ queue }) => queue.pause(given)],
    ["queue.resume()", ({ queue }) => queue.resume(given)],
    ["queue.removeJobs()", ({ queue }) => queue.removeJobs(given)],
    ["queue.rescheduleJobs()", ({ queue }) => queue.rescheduleJobs(given, due)],
    ["queue.replay()", ({ queue }) => queue.replay(given)],
    ["queue.purge()", ({ queue }) => queue.purge(given)],
    ["bucket.pause()", ({ bucket }) => bucket.pause(given)],
    ["bucket.resume()", ({ bucket }) => bucket.resume(given)],
  ])("is not taken for all keys: %s", async (_method, call) => {
    const opened = openQueue<number>(sluices);
    const job = await opened.queue.enqueue(1, { key: "acme", delayMs: 60_000 });

    const reason = await rejectionOf(call(opened));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "key" });
    expect((reason as Error).message).toContain("leave it out to match every");
    expect(await job.state()).toBe("delayed");
    expect(await opened.queue.paused()).toEqual([]);
  });
});
