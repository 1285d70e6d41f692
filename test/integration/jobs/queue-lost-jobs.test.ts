import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { JobLostError, LeaseLostError, concurrency, type JobContext } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { openAtWork, openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { whileOthersWork } from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

async function onRedis(work: (redis: Redis) => Promise<unknown>): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  await work(redis);
  await redis.quit();
}

async function loseLock(id: string): Promise<void> {
  const lock = `${sluices.prefix()}:{jobs}:${id}:lock`;
  await onRedis((redis) => redis.set(lock, "another worker", "PX", 60_000));
}

/** A handler that goes on until its signal is aborted, and why that was. */
function untilAborted() {
  const [begun, ended] = [deferred(), deferred()];
  const seen = { reason: undefined as unknown };
  const handler = async (_job: unknown, { signal }: JobContext): Promise<void> => {
    begun.resolve();
    signal.addEventListener("abort", ended.resolve);
    await ended.promise;
    seen.reason = signal.reason;
  };
  return { handler, begun: begun.promise, ended: ended.promise, seen };
}

describe("a job whose lock is lost", () => {
  it("while it waits for its slot is not started on a later slot", async () => {
    const { sluice, bucket, queue } = openQueue<string>(sluices, { rate: "1/2s" });
    let started = 0;
    await bucket.draw();
    const { id } = await queue.enqueue("waits");
    sluice.worker(queue, async () => void (started += 1), { lockMs: 1_000 });
    await waitUntil(() => bucket.waiting === 1, "the job waits");

    await loseLock(id);
    await waitUntil(() => bucket.waiting === 0, "its slot has come");
    await bucket.draw();

    expect(started).toBe(0);
  });

  it("while its handler runs is aborted by its signal", async () => {
    const { handler, begun, ended, seen } = untilAborted();
    const { queue } = openAtWork(sluices, handler, { options: { lockMs: 1_000 } });
    const { id } = await queue.enqueue("long");
    await begun;

    await loseLock(id);
    await ended;

    expect(seen.reason).toBeInstanceOf(JobLostError);
    expect(seen.reason).toMatchObject({ code: "ERR_JOB_LOST", jobId: id });
  });
});

describe("a job whose worker is gone", () => {
  it("is run by another worker soon after its lock has expired, within one more lock time", async () => {
    const opened = openQueue<number>(sluices);
    const { sluice, queue } = opened;
    const options = { lockMs: 4_000, concurrency: 1 };
    const mayEnd = deferred();
    const begun: number[] = [];
    const done: number[] = [];
    sluice.worker(
      queue,
      async ({ data }) => {
        begun.push(data);
        await mayEnd.promise;
        done.push(data);
      },
      options,
    );
    await queue.enqueue(1);
    await waitUntil(() => begun.length === 1, "one has its hands full");
    const gone = sluice.worker(
      queue,
      async ({ data }) => {
        begun.push(data);
        await new Promise(() => {});
      },
      options,
    );
    await queue.enqueue(2);
    await waitUntil(() => begun.length === 2, "the other has a job too");

    await gone.close({ deadlineMs: 0 });
    mayEnd.resolve();
    await whileOthersWork(opened, 130);

    expect(done).toEqual([1, 2]);
  });
});

describe("a job whose slot's lease is lost", () => {
  it("is notified by its signal", async () => {
    const { handler, begun, ended, seen } = untilAborted();
    const policy = { limits: [concurrency(1, { leaseMs: 1_000 })], rate: undefined };
    const { queue } = openAtWork(sluices, handler, { policy });
    await queue.enqueue("long");
    await begun;

    await onRedis(async (redis) =>
      redis.del(await redis.keys(`${sluices.prefix()}:{downstream}:*`)),
    );
    await ended;

    expect(seen.reason).toBeInstanceOf(LeaseLostError);
  });
});

describe("a worker that is closed again, with an earlier deadline", () => {
  it("keeps the earlier deadline for both callers of close()", async () => {
    const { handler, begun, seen } = untilAborted();
    const { queue, worker } = openAtWork(sluices, handler, { options: { lockMs: 1_000 } });
    await queue.enqueue("long");
    await begun;

    const first = worker.close({ deadlineMs: 2 ** 31 - 1 });
    await worker.close({ deadlineMs: 50 });
    await first;

    expect(seen.reason).toBeInstanceOf(JobLostError);
  });
});
