import { describe, expect, it } from "vitest";
import {
  InvalidOptionError,
  RedisRequiredError,
  createSluice,
  tokenBucket,
  type BucketOptions,
  type Job,
} from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

/** A queue of one bucket, and a log of what its handlers saw. */
function openQueue<Data>(policy: BucketOptions = { rate: "500/s" }) {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", policy);
  return { sluice, bucket, queue: sluice.queue<Data>("jobs", { bucket }) };
}

describe("a queue", () => {
  it("runs each job once and passes its data, key and priority", async () => {
    const { sluice, queue } = openQueue<{ amount: number }>();
    const seen: Job<{ amount: number }>[] = [];
    const given = await queue.enqueue({ amount: 5 }, { key: "acme", priority: "high" });
    sluice.worker(queue, async (job) => void seen.push(job));

    await waitUntil(() => seen.length === 1, "the job is done");

    const { isNew: _isNew, startedAtMs: _startedAtMs, queue: name, ...facts } = given;
    expect(seen).toMatchObject([facts]);
    expect(name).toBe("jobs");
    expect(given).toMatchObject({ data: { amount: 5 }, key: "acme", priority: "high" });
  });

  it("accepts 2,500 jobs at once, runs each of them, and keeps a thousand", async () => {
    const { sluice, queue } = openQueue<number>({ rate: "100000/s" });
    const done = new Set<number>();

    const jobs = await queue.enqueueMany(Array.from({ length: 2_500 }, (_, index) => index));
    sluice.worker(queue, async (job) => void done.add(job.data), { concurrency: 200 });
    await waitUntil(() => done.size === 2_500, "all jobs are done");
    await waitUntil(async () => (await queue.counts()).active === 0, "that is stored");
    await waitUntil(async () => (await queue.counts()).done === 1_000, "the others are removed");

    expect(new Set(jobs.map((job) => job.id)).size).toBe(2_500);
  });

  it("runs urgent jobs first, and others in order of arrival", async () => {
    const { sluice, queue } = openQueue<string>();
    await queue.enqueueMany(["low 1", "low 2"], { priority: "low" });
    await queue.enqueueMany(["normal 1", "normal 2"]);
    await queue.enqueueMany(["critical 1", "critical 2"], { priority: "critical" });
    await queue.enqueueMany(["high 1", "high 2"], { priority: "high" });
    const done: string[] = [];

    sluice.worker(queue, async (job) => void done.push(job.data), { concurrency: 1 });
    await waitUntil(() => done.length === 8, "all jobs are done");

    const ranks = ["critical", "high", "normal", "low"];
    expect(done).toEqual(ranks.flatMap((rank) => [`${rank} 1`, `${rank} 2`]));
  });

  it("keeps a delayed job until its time", async () => {
    const { sluice, queue } = openQueue<string>();
    let startedAtMs = 0;
    const job = await queue.enqueue("later", { delayMs: 300 });
    sluice.worker(queue, async () => {
      startedAtMs = Date.now();
    });

    await waitUntil(() => startedAtMs > 0, "the job has started");

    expect(startedAtMs - job.enqueuedAtMs).toBeGreaterThanOrEqual(300);
  });

  it("retries a failing job, each time on a separate slot, and then keeps it as failed", async () => {
    const { sluice, bucket, queue } = openQueue<string>({ rate: "20/s" });
    const tries: { attempt: number; atMs: number }[] = [];
    await queue.enqueue("bad", { attempts: 3, backoff: { baseMs: 1 } });
    sluice.worker(queue, async (_job, { attempt }) => {
      tries.push({ attempt, atMs: performance.now() });
      throw new Error("downstream says no");
    });

    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(tries.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(tries[2]!.atMs - tries[0]!.atMs).toBeGreaterThanOrEqual(95);
    expect(bucket.waiting).toBe(0);
  });

  it("attempts a failing job twenty times by default", async () => {
    const { sluice, queue } = openQueue<string>();
    let tries = 0;
    await queue.enqueue("bad", { backoff: { baseMs: 1, maxMs: 1 } });
    sluice.worker(queue, async () => {
      tries += 1;
      throw new Error("downstream says no");
    });

    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(tries).toBe(20);
  });

  it.each([
    ["undefined", undefined],
    ["null", null],
    ["a string", "no"],
    ["an error by a name of BullMQ's", Object.assign(new Error("no"), { name: "DelayedError" })],
    ["an error by a message of BullMQ's", new Error("bullmq:rateLimitExceeded")],
  ])("counts an attempt when a handler throws %s", async (_name, thrown) => {
    const { sluice, queue } = openQueue<string>();
    let tries = 0;
    await queue.enqueue("bad", { attempts: 2, backoff: { baseMs: 1 } });
    sluice.worker(queue, async () => {
      tries += 1;
      throw thrown;
    });

    await waitUntil(async () => (await queue.counts()).failed === 1, "the job has failed");

    expect(tries).toBe(2);
  });

  it("runs a job once whose result is not JSON", async () => {
    const { sluice, queue } = openQueue<string>();
    let tries = 0;
    await queue.enqueue("odd");
    sluice.worker(queue, async () => {
      tries += 1;
      const response: { self?: unknown } = {};
      response.self = response;
      return response;
    });

    await waitUntil(async () => {
      const { waiting, active, delayed } = await queue.counts();
      return tries > 0 && waiting + active + delayed === 0;
    }, "the queue is empty");

    expect(tries).toBe(1);
    expect((await queue.counts()).failed).toBe(0);
  });

  it("uses no attempt while jobs wait for their slots", async () => {
    const { sluice, queue } = openQueue<number>({ rate: "10/s" });
    const attempts: number[] = [];
    await queue.enqueueMany([1, 2, 3, 4, 5, 6], { attempts: 1 });
    sluice.worker(queue, async (_job, { attempt }) => void attempts.push(attempt));

    await waitUntil(() => attempts.length === 6, "all jobs are done");

    expect(attempts).toEqual([1, 1, 1, 1, 1, 1]);
  });

  it("charges a job once whose handler calls a throttled client of the same bucket", async () => {
    const limits = [tokenBucket({ capacity: 30, refill: "1/h" })];
    const { sluice, bucket, queue } = openQueue<number>({ limits });
    const charge = bucket.throttled(async (amount: number) => amount);
    const charged: number[] = [];
    await queue.enqueueMany(Array.from({ length: 20 }, (_, index) => index));
    sluice.worker(queue, async ({ data }) => void charged.push(await charge(data)));

    await waitUntil(() => charged.length === 20, "all jobs are done");

    // Had each taken two of the 30 slots, the last ones would wait for hours.
    expect((await bucket.peek()).limits[0]!.remaining).toBeLessThanOrEqual(10);
  });

  it.each([
    [{ delay: 5 }, "delay"],
    [{ priority: "urgent" }, "priority"],
    [{ attempts: 0 }, "attempts"],
    [{ backoff: { baseMs: -1 } }, "backoff.baseMs"],
    [{ key: "a\nb" }, "key"],
  ])("refuses %j by the name of the option", async (options, option) => {
    const { queue } = openQueue<number>();

    const reason = await rejectionOf(queue.enqueue(1, options as object));

    expect(reason).toBeInstanceOf(InvalidOptionError);
    expect(reason).toMatchObject({ option });
  });

  it.each([
    ["undefined", undefined],
    ["a BigInt", 1n],
    ["a function", () => 1],
    ["a promise", Promise.resolve(1)],
  ])("refuses data that is %s, since JSON would lose it", async (_name, data) => {
    const { queue } = openQueue<unknown>();

    expect(await rejectionOf(queue.enqueue(data))).toBeInstanceOf(InvalidOptionError);
  });

  it("names the part of the data that JSON cannot hold", async () => {
    const { queue } = openQueue<unknown>();

    const reason = (await rejectionOf(queue.enqueue({ a: 1n }))) as Error;

    expect(reason.message).toContain('option "data" is {"a":"1n"}');
    expect(reason.message).toMatch(/give data that JSON can hold \(TypeError: .*BigInt/);
  });

  it("requires Redis", async () => {
    const sluice = createSluice({ redis: undefined, logger: { warn: () => {}, error: () => {} } });
    const bucket = sluice.bucket("b", { rate: "1/s" });

    expect(() => sluice.queue("jobs", { bucket })).toThrow(RedisRequiredError);

    await sluice.close();
  });
});

describe("a worker", () => {
  it("accepts only queues of its own sluice, whose bucket it draws from", () => {
    const { queue } = openQueue<number>();

    const start = (): unknown => sluices.open().worker(queue, async () => {});

    expect(start).toThrow(InvalidOptionError);
    expect(start).toThrow('option "queue"');
  });
});

describe("a worker that is closed", () => {
  it("returns jobs that wait for a slot, and starts none after close() has resolved", async () => {
    const { sluice, queue } = openQueue<number>({ rate: "5/s" });
    let started = 0;
    await queue.enqueueMany(
      Array.from({ length: 30 }, (_, index) => index),
      { attempts: 1 },
    );
    const worker = sluice.worker(queue, async () => void (started += 1), { concurrency: 20 });
    await waitUntil(() => started === 2, "two jobs have started");

    await worker.close();
    const startedAtClose = started;
    const { active, waiting, delayed, failed } = await queue.counts();

    expect({ active, delayed, failed }).toEqual({ active: 0, delayed: 0, failed: 0 });
    expect(waiting).toBe(30 - startedAtClose);

    const done = new Set<string>();
    const other = openQueue<number>({ rate: "5/s" });
    other.sluice.worker(
      other.queue,
      async (job, { attempt }) => void done.add(`${job.id} ${attempt}`),
    );
    await waitUntil(() => done.size === 30 - startedAtClose, "another worker has done the rest");
    expect(started).toBe(startedAtClose);
    expect([...done].every((each) => each.endsWith(" 1"))).toBe(true);
  });

  it("lets a running handler end", async () => {
    const { sluice, queue } = openQueue<string>();
    const { promise: ended, resolve: end } = deferred();
    let hasStarted = false;
    await queue.enqueue("slow");
    const worker = sluice.worker(queue, async () => {
      hasStarted = true;
      await ended;
    });
    await waitUntil(() => hasStarted, "the handler runs");

    const closing = worker.close();
    end();
    await closing;

    expect(await queue.counts()).toMatchObject({ active: 0, waiting: 0, failed: 0 });
  });

  it("aborts a handler at the deadline, whose job another worker then runs", async () => {
    const { sluice, queue } = openQueue<string>();
    let reason: unknown;
    const options = { lockMs: 1_000 };
    await queue.enqueue("endless", { attempts: 1 });
    let hasStarted = false;
    const stuck = sluice.worker(
      queue,
      (_job, { signal }) => {
        hasStarted = true;
        signal.addEventListener("abort", () => (reason = signal.reason));
        return new Promise<void>(() => {});
      },
      options,
    );
    await waitUntil(() => hasStarted, "the handler runs");

    await stuck.close({ deadlineMs: 10 });
    expect(reason).toMatchObject({ code: "ERR_JOB_LOST" });

    let attempt = 0;
    const other = openQueue<string>();
    other.sluice.worker(
      other.queue,
      async (_job, context) => void (attempt = context.attempt),
      options,
    );
    await waitUntil(() => attempt > 0, "another worker has done the job");
    expect(attempt).toBe(1);
  });
});
