import { randomBytes } from "node:crypto";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { concurrency, createSluice, InvalidOptionError, RedisRequiredError } from "sluice";
import {
  advanceTime,
  drainQueue,
  failNext,
  startFakeDownstream,
  type Arrival,
} from "sluice/testing";
import { createWebhooks } from "sluice/webhooks";
import { openSluice } from "../../support/redis/for-one-test.ts";

function open() {
  const sluice = openSluice({ redis: "memory" });
  const bucket = sluice.bucket("api", { rate: "1000/s" });
  return { sluice, queue: sluice.queue<{ n: number }, number>("jobs", { bucket }) };
}

describe("queues of a sluice in memory", () => {
  it("run, retry and give results", async () => {
    const { sluice, queue } = open();
    sluice.worker(queue, async ({ data }, { attempt }) => {
      if (attempt === 1) throw new Error("not yet");
      return data.n * 2;
    });

    const job = await queue.enqueue({ n: 21 }, { attempts: 2, backoff: { baseMs: 1 } });

    expect(await job.finished()).toBe(42);
  });

  it("begin delayed jobs and retries when the time has been advanced", async () => {
    const { sluice, queue } = open();
    const ran: number[] = [];
    sluice.worker(queue, async ({ data }) => ran.push(data.n));
    failNext(queue, new Error("once"));
    await queue.enqueue({ n: 1 }, { attempts: 2, backoff: { baseMs: 600_000, maxMs: 600_000 } });
    const before = await drainQueue(sluice, queue);
    await queue.enqueue({ n: 2 }, { delayMs: 3_600_000 });

    await advanceTime(sluice, 3_600_000);
    const after = await drainQueue(sluice, queue);

    expect(before).toEqual({ blocked: 0, delayed: 1 });
    expect(after).toEqual({ blocked: 0, delayed: 0 });
    expect(ran.toSorted((a, b) => a - b)).toEqual([1, 2]);
  });

  it("begin recurring jobs at each time that has been advanced to", async () => {
    const { sluice, queue } = open();
    let runs = 0;
    sluice.worker(queue, async () => (runs += 1));
    await queue.enqueue({ n: 1 }, { every: 3_600_000, dedupeId: "hourly" });
    await drainQueue(sluice, queue);
    const first = runs;

    for (let hour = 0; hour < 3; hour++) {
      await advanceTime(sluice, 3_600_000);
      await drainQueue(sluice, queue);
    }

    expect(runs - first).toBe(3);
  });

  it("give the slots of an advanced time to jobs that waited for them", async () => {
    const { sluice } = open();
    const bucket = sluice.bucket("slow", { rate: "1/h" });
    const queue = sluice.queue<number>("slow", { bucket });
    const ran: number[] = [];
    sluice.worker(queue, async ({ data }) => void ran.push(data));
    const jobs = await queue.enqueueMany([1, 2]);
    await jobs[0]!.finished();
    await expect.poll(async () => (await queue.counts()).active).toBe(1);

    await advanceTime(sluice, 3_600_000);
    await jobs[1]!.finished();

    expect(ran).toEqual([1, 2]);
  });

  it("do not share jobs with another sluice", async () => {
    const [one, other] = [open(), open()];

    await one.queue.enqueue({ n: 1 });

    expect((await one.queue.counts()).waiting).toBe(1);
    expect((await other.queue.counts()).waiting).toBe(0);
  });

  it("are refused where the options do not name memory", async () => {
    const sluice = openSluice({});
    const bucket = sluice.bucket("api", { rate: "10/s" });

    expect(() => sluice.queue("jobs", { bucket })).toThrow(RedisRequiredError);
    expect(() => sluice.queue("jobs", { bucket })).toThrow('{ redis: "memory" }');
    await expect(advanceTime(sluice, 1)).rejects.toThrow(InvalidOptionError);
  });
});

describe("queues in memory in production", () => {
  it("are refused, because their jobs would end with the process", () => {
    vi.stubEnv("NODE_ENV", "production");
    onTestFinished(() => void vi.unstubAllEnvs());
    const sluice = openSluice({ redis: "memory" });
    const bucket = sluice.bucket("api", { rate: "10/s" });

    expect(() => sluice.queue("jobs", { bucket })).toThrow("In production, no jobs are kept");
  });
});

describe("helpers for tests", () => {
  it("refuse to advance the time while a job runs", async () => {
    const { sluice, queue } = open();
    let resolve = (_result: number): void => {};
    const result = new Promise<number>((resolved) => (resolve = resolved));
    sluice.worker(queue, () => result);
    const job = await queue.enqueue({ n: 1 });
    await expect.poll(async () => (await queue.counts()).active).toBe(1);

    await expect(advanceTime(sluice, 1_000)).rejects.toThrow('a job of queue "jobs" runs');
    resolve(1);
    await job.finished();

    await advanceTime(sluice, 1_000);
  });

  it("name the jobs that no worker runs", async () => {
    const { sluice, queue } = open();
    await queue.enqueue({ n: 1 });

    const draining = drainQueue(sluice, queue, { timeoutMs: 20 });

    await expect(draining).rejects.toThrow('queue "jobs" still has 1 jobs to run after 20 ms');
  });

  it.each([0, -1, 1.5, NaN, Infinity])("refuse to advance by %s ms", async (ms) => {
    await expect(advanceTime(open().sluice, ms)).rejects.toThrow(InvalidOptionError);
  });

  it("fail the given number of attempts, with the given error", async () => {
    const { sluice, queue } = open();
    sluice.worker(queue, async () => 7);
    failNext(queue, new Error("planned"), 2);
    const dead = await queue.enqueue({ n: 1 }, { attempts: 2, backoff: { baseMs: 1 } });

    await expect(dead.finished()).rejects.toThrow("planned");

    expect(await (await queue.enqueue({ n: 2 })).finished()).toBe(7);
    expect(() => failNext(queue, new Error("no"), 0)).toThrow(InvalidOptionError);
  });
});

it("a sluice in memory sends signed webhooks", async () => {
  const downstream = await startFakeDownstream();
  onTestFinished(() => downstream.close());
  const sluice = openSluice({ redis: "memory" });
  const keys = `k1:${randomBytes(32).toString("base64")}`;
  const local = { http: true, allow: ["127.0.0.0/8"] };
  const hooks = createWebhooks(sluice, { keys, rate: "100/s", ...local });
  await hooks.endpoints.put({ tenant: "acme", id: "billing", url: downstream.url });
  hooks.worker();

  await hooks.send({ tenant: "acme", type: "invoice.paid", data: { cents: 7 } });

  await expect.poll(() => downstream.arrivals.length, { timeout: 60_000 }).toBe(1);
  const [{ body, headers }] = downstream.arrivals as [Arrival];
  expect(JSON.parse(body)).toMatchObject({ type: "invoice.paid", data: { cents: 7 } });
  expect(headers["webhook-signature"]).toMatch(/^v1,/);
});

it("a sluice in memory keeps its limits on concurrent calls for jobs", async () => {
  const sluice = createSluice({ redis: "memory" });
  const bucket = sluice.bucket("narrow", { limits: [concurrency(2)] });
  const queue = sluice.queue<number>("narrow", { bucket });
  let [running, most] = [0, 0];
  sluice.worker(queue, async () => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
  });
  const jobs = await queue.enqueueMany(Array.from({ length: 20 }, (_, index) => index));

  await Promise.all(jobs.map((job) => job.finished()));
  await sluice.close();

  expect(most).toBeLessThanOrEqual(2);
});
