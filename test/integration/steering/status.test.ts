import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { Discard, type BucketOptions, type QueuedJob } from "sluice";
import { block } from "../../support/async/block.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const MINUTE_MS = 60_000;
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.quit());

function open(policy: BucketOptions = { rate: "100/s" }) {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  const bucket = sluice.bucket("downstream", policy);
  return { sluice, bucket, queue: sluice.queue<number>("jobs", { bucket }) };
}

const keyOf = (name: string): string => `${sluices.prefix()}:{jobs}:${name}`;

/** As if a job had been stored before. */
async function makeOlder(id: string, byMs: number): Promise<void> {
  const key = keyOf(id);
  await redis.hset(key, "timestamp", Number(await redis.hget(key, "timestamp")) - byMs);
}

/** As if a job had become due again before. */
async function makeDueBefore(id: string, byMs: number): Promise<void> {
  await redis.hincrby(keyOf(id), "sluice:due", -byMs);
}

/** As if handlers had taken so long in the last seconds. */
async function pretendEnded(done: number, ms: number): Promise<void> {
  const [seconds] = await redis.time();
  const step = Math.floor(Number(seconds) / 10);
  await redis.hset(keyOf("workers:ended"), `${step} done`, done, `${step} ms`, ms);
}

describe("the status of a queue", () => {
  it("is quiet while there is nothing", async () => {
    const { queue } = open();

    expect(await queue.status()).toEqual({
      name: "jobs",
      generation: 0,
      jobs: { waiting: 0, active: 0, delayed: 0, done: 0, failed: 0 },
      oldest: undefined,
      unexplainedMs: 0,
      emptyInMs: 0,
      goneInMs: 0,
      reason: undefined,
      workers: 0,
      totalConcurrency: 0,
      places: 0,
      lanes: [],
      totalLanes: 0,
      lanesInAll: 0,
      workersWanted: 0,
      donePerSecond: 0,
      failedPerSecond: 0,
      failureRate: 0,
      handlerMs: undefined,
      settings: [
        { name: "keepDone.count", value: 1_000, setBy: "code" },
        { name: "keepDone.forMs", value: 86_400_000, setBy: "code" },
      ],
      rulesVersion: undefined,
    });
  });

  it.each([
    ["without a key", undefined],
    ["of a key", "acme"],
    ["of a path", ["acme", "e1", "eu"]],
  ])("shows the oldest due job, even if it is the least urgent: one %s", async (_, key) => {
    const { queue } = open();
    const delayed = await queue.enqueue(0, { delayMs: 30 * MINUTE_MS, key });
    await queue.enqueueMany([1, 2], { priority: "critical", key });
    const oldest = await queue.enqueue(3, { priority: "low", key });
    await queue.enqueueMany([4, 5], { priority: "high", key: ["acme", "e2"] });
    await queue.enqueueMany([6, 7]);
    await makeOlder(delayed.id, 20 * MINUTE_MS);
    await makeOlder(oldest.id, 10 * MINUTE_MS);

    const { oldest: found, jobs } = await queue.status();

    expect(found).toMatchObject({ id: oldest.id, key, why: { waitsFor: "no worker" } });
    expect(Math.round(found!.waitingMs / MINUTE_MS)).toBe(10);
    expect(jobs).toMatchObject({ waiting: 7, delayed: 1 });
  });

  it("finds the oldest among hundreds of keys", async () => {
    const { queue } = open();
    const jobs = await queue.enqueueMany(
      Array.from({ length: 300 }, (_, index) => index),
      (index) => ({ key: [`customer-${index % 20}`, `e${index}`] }),
    );
    for (const [at, minutes] of [
      [3, 5],
      [171, 7],
      [299, 6],
    ] as const) {
      await makeOlder(jobs[at]!.id, minutes * MINUTE_MS);
    }

    expect((await queue.status()).oldest!.id).toBe(jobs[171]!.id);
  });

  it("repeats the age of the oldest dead letter and the block of a lane under their old names", async () => {
    const { sluice, queue } = open({ rate: "100/s", perKey: { rate: "1/h" } });
    const dead = await queue.enqueue(1, { attempts: 1 });
    const worker = sluice.worker(queue, async () => Promise.reject(new Error("refused")));
    await rejectionOf(dead.finished());
    const isBlocked = async () => ((await queue.status()).lanes[0]?.blockedForMs ?? 0) > 0;
    await queue.enqueueMany([1, 2, 3], { key: "acme" });
    await waitUntil(isBlocked, "the lane is blocked");

    const status = await queue.status();

    expect(status.oldestDeadMs).toBe(status.oldestDeadLetterMs);
    expect(status.oldestDeadLetterMs).toBeGreaterThanOrEqual(0);
    expect(status.lanes[0]!.asideMs).toBe(status.lanes[0]!.blockedForMs);
    await worker.close();
  });

  it("reports an unexplained delay, and none that a pause or a limit explains", async () => {
    const { queue, bucket } = open({ rate: "30/h" });
    const job = await queue.enqueue(1);
    const fresh = await queue.status();
    await makeOlder(job.id, 10 * MINUTE_MS);

    const [alone] = [await queue.status()];
    await pretendWorker(sluices.prefix(), "jobs");
    const stuck = await queue.status();
    await queue.pause();
    const paused = await queue.status();
    await queue.resume();
    await bucket.draw();
    const limited = await queue.status();

    expect(fresh.unexplainedMs).toBe(0);
    expect(alone).toMatchObject({ reason: "no worker", emptyInMs: undefined, workersWanted: 1 });
    expect(Math.round(alone.unexplainedMs / MINUTE_MS)).toBe(10);
    expect(stuck.oldest!.why!.waitsFor).toBe("lane");
    expect(Math.round(stuck.unexplainedMs / MINUTE_MS)).toBe(10);
    expect(paused).toMatchObject({ reason: "queue paused", unexplainedMs: 0 });
    expect(limited).toMatchObject({ unexplainedMs: 0, oldest: { why: { waitsFor: "limit" } } });
  });

  it.each([
    ["without a key", undefined],
    ["of a key", "acme"],
  ])("counts the wait of a replayed dead letter from its replay: one %s", async (_, key) => {
    const { sluice, queue } = open();
    const job = await queue.enqueue(1, { attempts: 1, key });
    const worker = sluice.worker(queue, async () => Promise.reject(new Error("refused")));
    await rejectionOf(job.finished());
    await worker.close();
    await makeOlder(job.id, 10 * MINUTE_MS);

    await queue.replay({});
    const replayed = await queue.status();
    await makeDueBefore(job.id, 10 * MINUTE_MS);
    const later = await queue.status();

    expect(replayed.oldest!.id).toBe(job.id);
    expect(Math.round(replayed.oldest!.waitingMs / MINUTE_MS)).toBe(0);
    expect(replayed.unexplainedMs).toBe(0);
    expect(Date.now() - replayed.oldest!.why!.sinceMs).toBeLessThan(MINUTE_MS);
    expect(Math.round(later.oldest!.waitingMs / MINUTE_MS)).toBe(10);
    expect(Math.round(later.unexplainedMs / MINUTE_MS)).toBe(10);
  });

  it.each([
    ["made due by hand", undefined, (job: QueuedJob<number>) => job.runNow()],
    ["of a key, made due by hand", "acme", (job: QueuedJob<number>) => job.runNow()],
    ["rescheduled to now", undefined, (job: QueuedJob<number>) => job.reschedule({ delayMs: 0 })],
    [
      "of a key, rescheduled to now",
      "acme",
      (job: QueuedJob<number>) => job.reschedule({ delayMs: 0 }),
    ],
  ])("counts the wait of a delayed job from when it is due: one %s", async (_, key, makeDue) => {
    const { queue } = open();
    const job = await queue.enqueue(1, { delayMs: 30 * MINUTE_MS, key });
    await makeOlder(job.id, 20 * MINUTE_MS);

    expect(await makeDue(job)).toBe(true);
    const { oldest } = await queue.status();

    expect(oldest!.id).toBe(job.id);
    expect(Math.round(oldest!.waitingMs / MINUTE_MS)).toBe(0);
    expect(Date.now() - oldest!.why!.sinceMs).toBeLessThan(MINUTE_MS);
  });

  it("wants a worker for a delayed job that came due while none is alive", async () => {
    const { queue } = open();
    const job = await queue.enqueue(1, { delayMs: 10 * MINUTE_MS, attempts: 2 });
    const early = await queue.status();
    // As if it had been stored 20 minutes ago.
    await makeOlder(job.id, 20 * MINUTE_MS);
    await redis.zadd(keyOf("delayed"), (Date.now() - 10 * MINUTE_MS) * 4_096, job.id);

    const due = await queue.status();

    expect(early).toMatchObject({ workersWanted: 0, unexplainedMs: 0 });
    expect(early.oldest).toBeUndefined();
    expect(due).toMatchObject({ reason: "no worker", workersWanted: 1, oldest: { id: job.id } });
    expect(Math.round(due.unexplainedMs / MINUTE_MS)).toBe(10);
    expect((await queue.forecast()).waiting).toBe(1);
  });

  it("counts the wait of a retry from when it is due, and not from its last attempt", async () => {
    const { sluice, queue } = open();
    const job = await queue.enqueue(1, { attempts: 2, key: "acme" });
    sluice.worker(queue, async () => {
      await queue.pause();
      throw new Error("refused");
    });
    await waitUntil(async () => (await queue.counts()).delayed === 1, "it waits for its retry");
    await makeOlder(job.id, 10 * MINUTE_MS);
    await redis.hset(keyOf(job.id), "processedOn", Date.now() - 10 * MINUTE_MS);

    await waitUntil(async () => (await queue.status()).oldest !== undefined, "it is due");
    const { oldest } = await queue.status();

    expect(Math.round(oldest!.waitingMs / MINUTE_MS)).toBe(0);
  });

  it("reports no delay that the calls at the allowed rate explain", async () => {
    const { queue, bucket } = open({ rate: "30/h", burst: 10 });
    const job = await queue.enqueue(1);
    await makeOlder(job.id, 8 * MINUTE_MS);
    await pretendWorker(sluices.prefix(), "jobs");
    const before = await queue.status();

    for (let call = 0; call < 4; call++) await bucket.draw();
    const started = async (): Promise<number> =>
      (await bucket.history()).points.reduce((sum, point) => sum + point.started, 0);
    await waitUntil(async () => (await started()) === 4, "the calls were told of");
    const after = await queue.status();

    expect(Math.round(before.unexplainedMs / MINUTE_MS)).toBe(8);
    expect(after.oldest!.why!.waitsFor).toBe("lane");
    expect(after.unexplainedMs).toBe(0);
  });

  it("does not count a job that ended after its worker's report as the oldest", async () => {
    const { sluice, queue } = open();
    const ended = await queue.enqueue(1);
    const worker = sluice.worker(queue, async () => {});
    await ended.finished();
    await worker.close();
    await pretendWorker(sluices.prefix(), "jobs");
    const held = await queue.enqueue(2);
    await redis.set(keyOf("lanes:held:pretended"), JSON.stringify([ended.id, held.id]));

    expect((await queue.status()).oldest!.id).toBe(held.id);
  });

  it("shows the wanted number of workers, by the rate and the handlers' durations", async () => {
    const { queue } = open();
    await pretendWorker(sluices.prefix(), "jobs");
    const idle = await queue.status();
    await queue.enqueueMany(Array.from({ length: 1_000 }, (_, index) => index));

    const quick = await queue.status();
    await pretendEnded(10, 50_000);
    const slow = await queue.status();

    // At 100 a second, ten are under way in 0.1 s, and 510 if each takes 5 s; a worker has 50 places.
    expect([idle, quick, slow].map(({ workersWanted }) => workersWanted)).toEqual([0, 1, 11]);
    expect(slow).toMatchObject({ workers: 1, totalConcurrency: 50, places: 50, handlerMs: 5_000 });
  });

  it("shows the results of attempts of all workers, and the handlers' durations", async () => {
    const { sluice, queue } = open({ rate: "1000/s" });
    const { sluice: other, queue: otherQueue } = open({ rate: "1000/s" });
    const handle = async ({ data }: { data: number }): Promise<void> => {
      block(3);
      if (data % 4 === 0) throw new Discard("no");
    };
    const workers = [sluice.worker(queue, handle), other.worker(otherQueue, handle)];
    await queue.enqueueMany(Array.from({ length: 40 }, (_, index) => index));
    await waitUntil(async () => {
      const { done, failed } = await queue.counts();
      return done + failed === 40;
    }, "all have ended");
    await Promise.all(workers.map((worker) => worker.close()));

    const { failureRate, donePerSecond, failedPerSecond, handlerMs } = await queue.status();

    expect(failureRate).toBe(0.25);
    expect(donePerSecond / failedPerSecond).toBeCloseTo(3);
    expect(donePerSecond).toBeGreaterThanOrEqual(0.5);
    expect(handlerMs).toBeGreaterThanOrEqual(2);
  });

  it("keeps what came of attempts for the last minute alone, however long workers are busy", async () => {
    const { sluice, queue } = open();
    const [seconds] = await redis.time();
    for (let step = 0; step < 10; step++) {
      const longAgo = Math.floor(Number(seconds) / 10) - 100 - step;
      const counts = { [`${longAgo} done`]: 1, [`${longAgo} failed`]: 9, [`${longAgo} ms`]: 1 };
      await redis.hset(keyOf("workers:ended"), counts);
    }
    const worker = sluice.worker(queue, async () => {});
    await (await queue.enqueue(1)).finished();
    await worker.close();

    expect((await queue.status()).failureRate).toBe(0);
    expect(await redis.hlen(keyOf("workers:ended"))).toBe(3);
    expect(await redis.pttl(keyOf("workers:ended"))).toBeGreaterThan(0);
  });
});
