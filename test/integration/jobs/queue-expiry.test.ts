import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { RetryAfter, type Bucket } from "sluice";
import { runScript } from "../../../src/stores/redis/scripts/script.ts";
import { jobScripts } from "../../../src/stores/redis/scripts/queue/jobs.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

/** A connection beside those of the queue. */
function openRedis(): Redis {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  return redis;
}

function openQueue() {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "500/s" });
  return { sluice, bucket, queue: sluice.queue<string>("jobs", { bucket }) };
}

describe("a job with maxWaitMs", () => {
  it.each([
    ["without a key", {}],
    ["with a key", { key: "acme" }],
  ])(
    "%s that does not start in time fails as expired, and does not run",
    async (_name, options) => {
      const { sluice, bucket, queue } = openQueue();
      let calls = 0;
      await bucket.pause();
      const job = await queue.enqueue("late", { ...options, attempts: 5, maxWaitMs: 100 });

      sluice.worker(queue, async () => void (calls += 1));
      await waitUntil(async () => (await job.state()) === "failed", "the job has expired");
      const [failed] = await queue.failed();

      expect(failed).toMatchObject({ id: job.id, attempts: 1 });
      expect(failed!.reason).toMatch(/^Expired: it had to start by /);
      expect(calls).toBe(0);
    },
  );

  it("expires immediately when it is known that it cannot start in time", async () => {
    const { sluice, bucket, queue } = openQueue();
    await bucket.pause({ forMs: 3_600_000 });
    const job = await queue.enqueue("hopeless", { maxWaitMs: 1_800_000 });

    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await job.state()) === "failed", "the job has expired");

    const [failed] = await queue.failed();
    expect(failed!.reason).toMatch(/^Expired: it had to start by .*, and a pause lets it start in/);
  });

  it.each<[string, (bucket: Bucket) => Promise<unknown>]>([
    ["a pause", (bucket) => bucket.pause({ key: "acme", forMs: 3_600_000 })],
    ["1/h", (bucket) => bucket.draw({ key: "acme" })],
  ])("expires immediately when its key cannot let it start in time: %s", async (what, close) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s", perKey: { rate: "1/h" } });
    const queue = sluice.queue<string>("jobs", { bucket });
    await close(bucket);
    const job = await queue.enqueue("hopeless", { key: "acme", maxWaitMs: 1_800_000 });

    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await job.state()) === "failed", "the job has expired");

    const [failed] = await queue.failed();
    expect(failed!.reason).toMatch(/^Expired: it had to start by /);
    expect(failed!.reason).toContain(`, and ${what} lets it start in`);
  });

  it("expires in its lane, where its key has no room", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s", perKey: { rate: "1/h" } });
    const queue = sluice.queue<string>("jobs", { bucket });
    const started: string[] = [];
    sluice.worker(queue, async ({ id }) => void started.push(id), { patienceMs: 0 });
    const first = await queue.enqueue("has the room", { key: "acme" });
    await first.finished();

    const job = await queue.enqueue("late", { key: "acme", maxWaitMs: 500 });
    await waitUntil(async () => (await job.state()) === "failed", "the job has expired");

    expect((await queue.failed())[0]).toMatchObject({
      id: job.id,
      reason: expect.stringMatching(/^Expired: /),
    });
    expect(started).toEqual([first.id]);
  });

  it("that reached no worker in time expires too", async () => {
    const { sluice, queue } = openQueue();
    const job = await queue.enqueue("late", { maxWaitMs: 1 });
    await waitUntil(() => Date.now() > job.startByMs! + 1, "its time is over");

    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await job.state()) === "failed", "the job has expired");

    expect((await queue.failed())[0]!.reason).toMatch(/^Expired: /);
  });

  it("that started in time may be retried later", async () => {
    const { sluice, queue } = openQueue();
    sluice.worker(queue, async (_job, { attempt }) => {
      if (attempt === 1) throw new RetryAfter(2_100);
      return attempt;
    });

    const job = await queue.enqueue("once more", { maxWaitMs: 2_000 });

    expect(await job.finished()).toBe(2);
  });

  it.each([
    ["without a key", {}],
    ["with a key", { key: "acme" }],
  ])(
    "%s that started in time runs again when its worker is lost, however late that is",
    async (_name, options) => {
      const { sluice, queue } = openQueue();
      let hasStarted = false;
      const lost = sluice.worker(
        queue,
        () => {
          hasStarted = true;
          return new Promise(() => {});
        },
        { lockMs: 1_000 },
      );
      const job = await queue.enqueue("once more", { ...options, maxWaitMs: 500 });
      await waitUntil(() => hasStarted, "it has started");
      await lost.close({ deadlineMs: 0 });
      await waitUntil(() => Date.now() > job.startByMs!, "its time is over");

      sluice.worker(queue, async () => "done", { lockMs: 1_000 });

      expect(await job.finished()).toBe("done");
    },
  );

  it("that a lost worker held and did not start still expires", async () => {
    const { sluice, queue } = openQueue();
    const job = await queue.enqueue("late", { maxWaitMs: 1 });
    await waitUntil(() => Date.now() > job.startByMs! + 1, "its time is over");
    // As BullMQ notes it of the jobs of a worker that was lost.
    await openRedis().hset(`${sluices.prefix()}:{jobs}:${job.id}`, "stc", 1);

    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await job.state()) === "failed", "the job has expired");

    expect((await queue.failed())[0]!.reason).toMatch(/^Expired: /);
  });

  it("that was removed when it begins leaves nothing behind", async () => {
    const redis = openRedis();
    const prefix = sluices.prefix();

    const begun = { id: "1", startByMs: 5, isSuspect: true };
    await runScript(redis, jobScripts.noteBegun, { prefix, queue: "jobs", ...begun });

    expect(await redis.exists(`${prefix}:{jobs}:1`)).toBe(0);
  });
});
