import { describe, expect, it } from "vitest";
import { Discard, InvalidOptionError, RetryAfter, StoreUnavailableError } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { SILENT } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const servers = ownRedisServers();

const IDLE = { idleMs: 200 };
const HOUR_MS = 3_600_000;

describe("worker.drain()", () => {
  it("runs all jobs and near retries, closes the worker, and says what happened", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const worker = sluice.worker(queue, ({ data }, { attempt }) => {
      if (data === "bad") throw new Discard("bad");
      if (data === "late" && attempt === 1) throw new RetryAfter(100);
    });
    await queue.enqueueMany(["good", "bad", "late"]);
    await queue.enqueueMany(["a", "b"], { key: "acme" });

    const drained = await worker.drain(IDLE);

    const totals = { done: 4, failed: 1, retried: 1 };
    expect(drained).toEqual({ reason: "empty", ...totals, blocked: 0, delayed: 0 });
    expect(worker.status().state).toBe("closed");
  });

  it("closes at an empty queue", async () => {
    const { sluice, queue } = openQueue<string>(sluices);

    const drained = await sluice.worker(queue, () => {}).drain({ idleMs: 1 });

    expect(drained).toMatchObject({ reason: "empty", done: 0 });
  });

  it("leaves jobs, retries and runs of schedules that are due later, and counts them", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("later", { delayMs: HOUR_MS });
    await queue.enqueue("later", { delayMs: HOUR_MS, key: "acme" });
    await queue.enqueue("run", { dedupeId: "often", every: HOUR_MS });
    const worker = sluice.worker(queue, ({ data }) => {
      if (data === "retried") throw new RetryAfter(HOUR_MS);
    });
    await queue.enqueue("retried");

    const drained = await worker.drain(IDLE);

    // The first run of the schedule is due at once; the next one is left.
    expect(drained).toMatchObject({ reason: "empty", done: 1, retried: 1, delayed: 4 });
  });

  it("does not wait for the next run of a schedule, although that is due within idleMs", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("run", { dedupeId: "hourly", every: HOUR_MS });
    const worker = sluice.worker(queue, () => {});
    await waitUntil(async () => (await queue.counts()).done === 1, "the first run is done");
    const { nextAtMs } = (await queue.schedule("hourly"))!;

    const drained = await worker.drain({ idleMs: 400 });

    expect(nextAtMs).toBeGreaterThan(0);
    expect(drained).toMatchObject({ reason: "empty", done: 1, delayed: 1 });
  });

  it("runs a job that is due within idleMs", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("soon", { delayMs: 900, key: "acme" });

    const drained = await sluice.worker(queue, () => {}).drain({ idleMs: 1_000 });

    expect(drained).toMatchObject({ reason: "empty", done: 1, delayed: 0 });
  });

  it("waits for the rate of the bucket, and of keys", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("slow", { rate: "3/s", perKey: { rate: "2/s" } });
    const queue = sluice.queue<number>("jobs", { bucket });
    await queue.enqueueMany([1, 2, 3], { key: "acme" });
    await queue.enqueueMany([1, 2, 3]);
    await queue.enqueueMany([1, 2, 3], { key: ["umbrella", "a"] });

    const drained = await sluice.worker(queue, () => {}).drain({ idleMs: 50 });

    expect(drained).toMatchObject({ reason: "empty", done: 9 });
  });

  it("waits for a job of another worker, and works until then", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const held = deferred();
    sluice.worker(queue, () => held.promise, { concurrency: 1 });
    const first = await queue.enqueue("held");
    await waitUntil(async () => (await first.state()) === "active", "it runs");
    await queue.enqueue("late", { delayMs: 1_000 });
    const worker = sluices.open();
    const own = openQueueAgain(worker);

    const draining = worker.worker(own, () => held.resolve()).drain(IDLE);

    // Another worker's job keeps it, so it runs the job that is due after idleMs.
    expect(await draining).toMatchObject({ reason: "empty", done: 1 });
    expect((await queue.counts()).done).toBe(2);
  });

  it("leaves the jobs of a paused queue", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueueMany(["a", "b"]);
    await queue.enqueue("c", { key: "acme" });
    await queue.pause();

    const drained = await sluice.worker(queue, () => {}).drain(IDLE);

    expect(drained).toMatchObject({ reason: "blocked", done: 0, blocked: 3 });
    expect((await queue.counts()).waiting).toBe(3);
  });

  it("leaves the jobs of a paused key and of all keys below it, and runs all others", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.pause({ key: "acme" });
    await queue.pause({ key: ["acme", "a"], forMs: HOUR_MS });
    for (const key of ["acme", ["acme", "a"], ["acme", "b"], "umbrella"] as const) {
      await queue.enqueueMany(["a", "b"], { key });
    }

    const drained = await sluice.worker(queue, () => {}).drain(IDLE);

    expect(drained).toMatchObject({ reason: "blocked", done: 2, blocked: 6 });
  });

  it("leaves the jobs of a paused bucket", async () => {
    const { sluice, bucket, queue } = openQueue<string>(sluices);
    await bucket.pause();
    await queue.enqueueMany(["a", "b"]);

    const drained = await sluice.worker(queue, () => {}).drain(IDLE);

    expect(drained).toMatchObject({ reason: "blocked", done: 0, blocked: 2 });
    expect((await queue.counts()).waiting).toBe(2);
  });

  it("waits for the end of a pause that is shorter than idleMs", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueue("a");
    await queue.enqueue("b", { key: "acme" });
    await queue.pause({ key: "acme", forMs: 900 });
    await queue.pause({ forMs: 600 });

    const drained = await sluice.worker(queue, () => {}).drain({ idleMs: 1_000 });

    expect(drained).toMatchObject({ reason: "empty", done: 2 });
  });

  it("leaves the jobs behind a dead letter of an ordered key, and behind a late retry", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    const ordered = { keys: () => true, stuck: "hold" } as const;
    const queue = sluice.queue<string>("jobs", { bucket, ordered });
    await queue.enqueueMany(["dead", "next", "next"], { key: "acme" });
    await queue.enqueueMany(["late", "next"], { key: "umbrella" });
    await queue.enqueueMany(["fine", "fine"], { key: "initech" });
    const worker = sluice.worker(queue, ({ data }) => {
      if (data === "dead") throw new Discard("bad");
      if (data === "late") throw new RetryAfter(HOUR_MS);
    });

    const drained = await worker.drain(IDLE);

    expect(drained).toMatchObject({ reason: "blocked", done: 2, failed: 1, retried: 1 });
    expect(drained).toMatchObject({ blocked: 3, delayed: 1 });
  });

  it("ends beside more blocked keys than one script looks at", async () => {
    const sluice = sluices.open({ logger: SILENT });
    const bucket = sluice.bucket("b", { rate: "10000/s" });
    const ordered = { keys: () => true, stuck: "hold" } as const;
    const queue = sluice.queue<string>("jobs", { bucket, ordered });
    const keys = Array.from({ length: 1_100 }, (_, at) => `key-${at}`);
    await queue.enqueueMany([...keys, ...keys], (key) => ({ key }));
    const options = { concurrency: 200 };
    const worker = sluice.worker(queue, () => Promise.reject(new Discard("bad")), options);

    const drained = await worker.drain(IDLE);

    expect(drained).toMatchObject({ reason: "blocked", done: 0, failed: 1_100, blocked: 1_100 });
  });

  it("ends when the worker is closed, and says so", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const held = deferred();
    const worker = sluice.worker(queue, () => held.promise);
    await queue.enqueue("held");
    await waitUntil(() => worker.status().running === 1, "it runs");

    const draining = worker.drain(IDLE);
    const closing = worker.close();
    held.resolve();
    await closing;

    expect(await draining).toMatchObject({ reason: "closed", done: 1 });
    expect(await worker.drain(IDLE)).toMatchObject({ reason: "closed", done: 1 });
  });

  it.each([
    [{ idleMs: 0 }, "idleMs", "give a whole number"],
    [{ idleMS: 5 }, "idleMS", "did you mean idleMs"],
  ])("refuses %j and keeps working", async (options, option, remedy) => {
    const { sluice, queue } = openQueue<string>(sluices);
    const worker = sluice.worker(queue, ({ data }) => data);

    const error = await rejectionOf(worker.drain(options as never));

    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option, message: expect.stringContaining(remedy) });
    expect(await (await queue.enqueue("a")).finished()).toBe("a");
  });
});

describe("worker.drain(), with faults", () => {
  it("rejects if Redis is unreachable at the start", async () => {
    const { sluice, queue } = openQueue<string>(sluices, {
      redis: (await closedUrl()).replace("http", "redis"),
      storeTimeoutMs: 100,
      logger: { warn: () => {}, error: () => {} },
    });
    const worker = sluice.worker(queue, () => {});

    const error = await rejectionOf(worker.drain(IDLE));

    expect(error).toBeInstanceOf(StoreUnavailableError);
    expect(worker.status().state).toBe("running");
  });

  it("waits for a restart of Redis, and then runs all jobs", async () => {
    const redis = await servers.start(["--appendonly", "yes", "--appendfsync", "always"]);
    const sluice = redis.open({ storeTimeoutMs: 200 });
    const bucket = sluice.bucket("b", { rate: "20/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    await queue.enqueueMany([...Array(20).keys()]);
    const worker = sluice.worker(queue, () => {}, { lockMs: 1_000 });

    const draining = worker.drain(IDLE);
    await waitUntil(async () => (await queue.counts()).done > 3, "some are done");
    await redis.crash();

    expect(await draining).toMatchObject({ reason: "empty", failed: 0 });
    const again = redis.open();
    const left = again.queue("jobs", { bucket: again.bucket("b", { rate: "20/s" }) });
    expect(await left.counts()).toMatchObject({ waiting: 0, active: 0, delayed: 0, done: 20 });
  });
});

function openQueueAgain(sluice: ReturnType<typeof sluices.open>) {
  return sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", { rate: "1000/s" }) });
}
