import { beforeEach, describe, expect, inject, it } from "vitest";
import { JobCancelledError, RetryAfter, type EnqueueOptions } from "sluice";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { isRunning } from "../../support/children/is-running.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const processes = children();
const sluices = realSluices();

function startWorker(lockMs = 30_000) {
  const args = [inject("redisUrl"), sluices.prefix(), String(lockMs)];
  return processes.start("workers/waiting-worker.ts", args);
}

const NOTHING = { waiting: 0, active: 0, delayed: 0, done: 0, failed: 0 };

describe("a job that is cancelled while it waits", () => {
  it.each<[string, EnqueueOptions]>([
    ["for a worker", {}],
    ["in the lane of its key", { key: "acme" }],
    ["for a later time", { delayMs: 60_000 }],
    ["for a later time, with a key", { delayMs: 60_000, key: "acme" }],
  ])("%s is removed, and a caller that waits for its end is notified", async (_what, options) => {
    const { queue } = openQueue<number>(sluices);
    const other = openQueue<number>(sluices).queue;
    const job = await queue.enqueue(1, options);
    const told = rejectionOf(job.finished());
    const toldElsewhere = rejectionOf((await other.job(job.id))!.finished());
    await waitUntil(async () => (await queue.job(job.id)) !== undefined, "it is there");

    expect(await job.cancel()).toBe(true);

    expect(await told).toBeInstanceOf(JobCancelledError);
    expect(await toldElsewhere).toMatchObject({ code: "ERR_JOB_CANCELLED", jobId: job.id });
    expect(await rejectionOf(job.finished())).toBeInstanceOf(JobCancelledError);
    expect(await queue.counts()).toEqual(NOTHING);
    expect(await job.cancel()).toBe(false);
  });

  it("for its next attempt is removed", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    sluice.worker(queue, () => new RetryAfter(60_000));
    const job = await queue.enqueue(1);
    await waitUntil(async () => (await queue.counts()).delayed === 1, "it is to be tried again");

    expect(await queue.cancel(job.id)).toBe(true);

    expect(await queue.counts()).toEqual(NOTHING);
  });

  it.each([undefined, "acme"])("for its slot in a worker's hands never begins", async (key) => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "1/h" });
    const begun: number[] = [];
    sluice.worker(queue, ({ data }) => void begun.push(data), { patienceMs: 60_000 });
    const [first, second] = await queue.enqueueMany([1, 2], { key });
    await first!.finished();
    await waitUntil(async () => (await second!.state()) === "active", "a worker holds it");

    expect(await second!.cancel()).toBe(true);

    expect(await rejectionOf(second!.finished())).toBeInstanceOf(JobCancelledError);
    await waitUntil(async () => (await second!.state()) === undefined, "it is gone");
    expect(await queue.counts()).toEqual({ ...NOTHING, done: 1 });
    expect(begun).toEqual([1]);
  });
});

describe("a job that is cancelled while it runs in another process", () => {
  it.each(["throw", "throw its reason", "ask for more", "return"])(
    "has its signal aborted, and ends as cancelled without another attempt: %s",
    async (what) => {
      const { queue } = openQueue<string>(sluices);
      const worker = startWorker();
      const job = await queue.enqueue(what, { attempts: 5, id: `job to ${what}` });
      await waitUntil(() => worker.messages.length === 2, "it runs");

      expect(await job.cancel()).toBe(true);

      expect(await rejectionOf(job.finished())).toBeInstanceOf(JobCancelledError);
      expect(worker.messages.slice(1)).toEqual([
        { begun: job.id, attempt: 1 },
        { aborted: job.id, by: "JobCancelledError" },
      ]);
      const reason = "Cancelled: somebody cancelled the job while it ran";
      const letter = { id: job.id, reason, code: "ERR_JOB_CANCELLED", attempts: 1 };
      expect(await queue.failed()).toMatchObject([letter]);
      expect(await job.cancel()).toBe(false);
    },
  );

  it("runs again as usual once it is replayed", async () => {
    const { queue } = openQueue<string>(sluices);
    const worker = startWorker();
    const job = await queue.enqueue("return");
    await waitUntil(() => worker.messages.length === 2, "it runs");
    await job.cancel();
    await rejectionOf(job.finished());

    await queue.replay(job.id);
    await waitUntil(() => worker.messages.length === 4, "it runs again");

    expect(await job.state()).toBe("active");
    expect(worker.messages.at(-1)).toEqual({ begun: job.id, attempt: 1 });
  });

  it("does not begin anew when its worker dies", async () => {
    const { queue } = openQueue<string>(sluices);
    const worker = startWorker(1_000);
    const job = await queue.enqueue("return");
    await waitUntil(() => worker.messages.length === 2, "it runs");
    worker.signal("SIGSTOP");

    expect(await job.cancel()).toBe(true);
    worker.signal("SIGKILL");
    const next = startWorker(1_000);

    expect(await rejectionOf(job.finished())).toBeInstanceOf(JobCancelledError);
    expect(next.messages).toEqual(["ready"]);
  });
});

describe("a job that is cancelled while its handler", () => {
  it("fails at that moment is not tried again", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const { promise: mayFail, resolve: fail } = deferred();
    let attempts = 0;
    sluice.worker(queue, async () => {
      attempts += 1;
      await mayFail;
      throw new Error("at that moment");
    });
    const job = await queue.enqueue(1, { backoff: { baseMs: 3_600_000 } });
    await waitUntil(() => attempts === 1, "it runs");

    const cancelling = job.cancel();
    fail();

    expect(await cancelling).toBe(true);
    expect(await rejectionOf(job.finished())).toBeInstanceOf(JobCancelledError);
    await waitUntil(async () => (await job.state()) === undefined, "it is gone");
    expect(await queue.counts()).toEqual(NOTHING);
    expect(attempts).toBe(1);
  });

  it("has ended already stays done", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    sluice.worker(queue, () => "a result");
    const job = await queue.enqueue(1);
    await job.finished();

    expect(await job.cancel()).toBe(false);

    expect(await job.finished()).toBe("a result");
  });
});

describe("the next run of a recurring job", () => {
  it("is not cancelled by its id: unschedule ends the schedule", async () => {
    const { queue } = openQueue<number>(sluices);
    const job = await queue.enqueue(1, { every: 60_000, dedupeId: "often" });

    expect(await queue.cancel(job.id)).toBe(false);

    expect(await queue.schedules()).toHaveLength(1);
  });
});

describe("a handler in a file whose job is cancelled", () => {
  beforeEach(useBuiltSandbox);

  it("is ended with its process, and another serves the next job", async () => {
    const { sluice, queue } = openQueue<{ do: string }>(sluices);
    const file = new URL("../../support/handlers/many-ways.mjs", import.meta.url);
    sluice.worker(queue, file, { concurrency: 1 });
    const pid = (await (await queue.enqueue({ do: "pid" })).finished()) as number;
    const job = await queue.enqueue({ do: "loop" });
    await waitUntil(async () => (await job.state()) === "active", "it runs");

    expect(await job.cancel()).toBe(true);

    expect(await rejectionOf(job.finished())).toBeInstanceOf(JobCancelledError);
    await waitUntil(() => !isRunning(pid), "its process is ended");
    const next = (await (await queue.enqueue({ do: "pid" })).finished()) as number;
    expect(next).not.toBe(pid);
  });
});
