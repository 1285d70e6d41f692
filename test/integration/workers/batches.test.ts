import { describe, expect, it } from "vitest";
import { Discard, InvalidOptionError, JobCancelledError, RetryAfter } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openQueue, openTokenQueue } from "../../support/jobs/open-queue.ts";
import { startMember } from "../../support/jobs/queue-members.ts";
import type { MemberJob } from "../../support/processes/queue-member.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

describe("jobs in batches", () => {
  it("take one slot for each call: 1,000 jobs by 100 at 10/s are 10 calls, evenly spaced", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "10/s" });
    const sizes: number[] = [];
    const slots: number[] = [];
    const call = async (): Promise<unknown> =>
      (await fetch(downstream.url, { method: "POST" })).arrayBuffer();
    // The first call opens the connection.
    await call();
    await queue.enqueueMany(upTo(1_000));
    sluice.worker(
      queue,
      async (jobs, { slot }) => {
        sizes.push(jobs.length);
        slots.push(slot.atMs);
        await call();
      },
      { batch: { size: 100, waitMs: 500 } },
    );

    await waitUntil(async () => (await queue.counts()).done === 1_000, "all are done");

    expect(sizes).toEqual(Array.from({ length: 10 }, () => 100));
    expect(downstream.arrivals).toHaveLength(11);
    const gaps = slots.slice(1).map((atMs, index) => atMs - slots[index]!);
    expect(Math.min(...gaps)).toBeGreaterThan(99);
    const times = downstream.arrivals.map(({ atMs }) => atMs).slice(1);
    // Its slots are evenly spaced; as a process starts, a call may reach the downstream half an interval late.
    expect(times.at(-1)! - times[0]!).toBeGreaterThan(800);
  });

  it("have an outcome each: a result, a failure, another time, or none any more", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const attempts: string[] = [];
    sluice.worker(
      queue,
      (jobs, { contexts }) =>
        jobs.map(({ data }, index) => {
          const { attempt } = contexts[index]!;
          attempts.push(`${data} ${attempt}`);
          if (attempt > 1) return `${data} at last`;
          if (data === "fails") return new Error("this one");
          if (data === "later") return new RetryAfter(50);
          return data === "never" ? new Discard("no such account") : `${data} done`;
        }),
      { batch: { size: 4, waitMs: 1_000 } },
    );

    const backoff = { baseMs: 1 };
    const jobs = await queue.enqueueMany(["good", "fails", "later", "never"], { backoff });
    const ends = await Promise.allSettled(jobs.map((job) => job.finished()));

    expect(ends).toMatchObject([
      { value: "good done" },
      { value: "fails at last" },
      { value: "later at last" },
      { reason: { reason: "no such account" } },
    ]);
    expect(attempts.slice(0, 4)).toEqual(["good 1", "fails 1", "later 1", "never 1"]);
  });

  it("have all failed when the handler throws, or answers for another number of jobs", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    let calls = 0;
    sluice.worker(
      queue,
      () => {
        calls += 1;
        if (calls === 1) throw new Error("for all");
        return calls === 2 ? [1] : undefined;
      },
      { batch: { size: 3, waitMs: 1_000 } },
    );

    const jobs = await queue.enqueueMany(upTo(3), { backoff: { baseMs: 1 } });

    expect(await Promise.all(jobs.map((job) => job.finished()))).toEqual([null, null, null]);
    expect(calls).toBeGreaterThanOrEqual(3);
  });

  it.each([
    ["of one key each, where keys have limits of their own", { perKey: { rate: "100/s" } }, 1],
    ["of any keys, where they have none", {}, 2],
  ])("are %s", async (_what, policy, keys) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "100/s", ...policy });
    const queue = sluice.queue<number>("jobs", { bucket });
    const seen: Set<unknown>[] = [];
    await queue.enqueueMany(upTo(40), (index) => ({ key: index % 2 === 0 ? "acme" : "bolt" }));
    const batch = { size: 10, waitMs: 300 };
    sluice.worker(queue, (jobs) => void seen.push(new Set(jobs.map(({ key }) => key))), { batch });

    await waitUntil(async () => (await queue.counts()).done === 40, "all are done");

    expect(Math.max(...seen.map(({ size }) => size))).toBe(keys);
  });

  it("draw what the cost of their jobs says", async () => {
    const { sluice, bucket, queue } = openTokenQueue<number>(sluices);
    const costs: number[] = [];
    const cost = (jobs: readonly { readonly data: number }[]): { tokens: number } => {
      costs.push(jobs.reduce((sum, { data }) => sum + data, 0));
      return { tokens: costs.at(-1)! };
    };
    sluice.worker(queue, () => {}, { batch: { size: 2, waitMs: 60_000, cost } });

    await queue.enqueueMany([10, 20, 30, 35]);
    await waitUntil(async () => (await queue.counts()).done === 4, "all are done");

    expect(costs).toEqual([30, 65]);
    expect((await bucket.peek()).limits[1]!.level).toBeGreaterThan(94);
  });
});

describe("a cost of a batch that can be none", () => {
  it.each([
    ["is NaN", () => Number.NaN],
    [
      "is thrown instead",
      () => {
        throw new Error("no idea");
      },
    ],
  ])("fails the attempts of its jobs, and none is lost: it %s", async (_what, cost) => {
    const { sluice, queue } = openQueue<number>(sluices);
    sluice.worker(queue, () => {}, { batch: { size: 2, waitMs: 60_000, cost } });

    const jobs = await queue.enqueueMany([1, 2], { attempts: 1 });

    for (const end of await Promise.allSettled(jobs.map((job) => job.finished()))) {
      expect(end).toMatchObject({ reason: { code: "ERR_JOB_FAILED" } });
    }
  });
});

describe("one job of a batch", () => {
  it("that waits too long or is cancelled leaves the others to go", async () => {
    const { sluice, bucket, queue } = openQueue<string>(sluices, { rate: "100/s" });
    await bucket.pause();
    const ran: string[] = [];
    const batch = { size: 3, waitMs: 0 };
    sluice.worker(queue, (jobs) => void ran.push(...jobs.map(({ data }) => data)), { batch });
    const [stays] = await queue.enqueueMany(["stays"]);
    const late = await queue.enqueue("late", { maxWaitMs: 300 });
    const cancelled = await queue.enqueue("cancelled");
    await waitUntil(async () => (await queue.counts()).active >= 2, "they wait for a slot");

    expect(await rejectionOf(late.finished())).toMatchObject({ code: "ERR_JOB_FAILED" });
    expect(await cancelled.cancel()).toBe(true);
    expect(await rejectionOf(cancelled.finished())).toBeInstanceOf(JobCancelledError);
    await bucket.resume();
    await stays!.finished();

    expect(ran).toEqual(["stays"]);
  });

  it("that is cancelled while it runs has its own signal aborted, and ends alone", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    let signals: AbortSignal[] = [];
    sluice.worker(
      queue,
      async (jobs, { contexts, signal }) => {
        signals = [...contexts.map((each) => each.signal), signal];
        await mayEnd;
        return jobs.map(({ data }) => `${data} done`);
      },
      { batch: { size: 2, waitMs: 1_000 } },
    );
    const [first, second] = await queue.enqueueMany(["first", "second"]);
    await waitUntil(() => signals.length === 3, "the batch runs");

    await second!.cancel();
    await waitUntil(() => signals[1]?.aborted === true, "the handler is told");
    end();

    expect(await first!.finished()).toBe("first done");
    expect(await rejectionOf(second!.finished())).toBeInstanceOf(JobCancelledError);
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, true, false]);
  });
});

describe("a worker process that is killed in the midst of a batch", () => {
  it("loses none of its jobs: another does them, and those that it only gathered", async () => {
    const rate = "1/s";
    const { bucket, queue } = openQueue<MemberJob>(sluices, { rate });
    const names = upTo(30).map((index) => `job ${index}`);
    const settings = {
      prefix: sluices.prefix(),
      bucket: { rate },
      worker: { batch: { size: 10, waitMs: 500 }, concurrency: 2, lockMs: 1_000 },
    };
    const killed = await startMember(processes, settings);
    await queue.enqueueMany(
      names.map((name) => ({ name, takesMs: 1_500 })),
      { attempts: 2 },
    );
    await waitUntil(() => killed.attempts.length === 10, "one batch runs");
    await bucket.pause();
    await waitUntil(async () => (await queue.counts()).active === 20, "another waits for its slot");

    killed.signal("SIGKILL");
    const other = await startMember(processes, settings);
    await bucket.resume();
    await waitUntil(async () => (await queue.counts()).done === 30, "all are done");

    const redone = other.attempts.map(({ name }) => name);
    expect(killed.attempts).toHaveLength(10);
    expect(redone.toSorted()).toEqual(names.toSorted());
    expect(await queue.counts()).toMatchObject({ failed: 0, active: 0, waiting: 0 });
  });
});

describe("a call of a batch that finds its downstream away", () => {
  it("counts as one failure, of however many jobs and keys", async () => {
    const warnings: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warnings.push(text), error: () => {} };
    const sluice = sluices.open({ logger });
    const bucket = sluice.bucket("downstream", { rate: "1000/s", breaker: { failures: 2 } });
    const queue = sluice.queue<number>("jobs", { bucket });
    const attempts: number[] = [];
    let calls = 0;
    sluice.worker(
      queue,
      (_jobs, { contexts }) => {
        attempts.push(...contexts.map(({ attempt }) => attempt));
        calls += 1;
        if (calls === 1) throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
      },
      { batch: { size: 6, waitMs: 1_000 } },
    );

    await queue.enqueueMany(upTo(6), (index) => ({
      key: index < 2 ? undefined : `key ${index}`,
      backoff: { baseMs: 1 },
    }));
    await waitUntil(async () => (await queue.counts()).done === 6, "all are done");

    expect(attempts).toEqual([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
    expect(warnings.filter((text) => text.includes("is away"))).toEqual([]);
  });
});

describe("a worker with batches", () => {
  it("keeps the slot of a batch while it runs, when one of its jobs is not to begin", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { concurrency: 1 });
    const queue = sluice.queue<string>("jobs", { bucket });
    const { promise: mayEnd, resolve: end } = deferred();
    const begun: string[] = [];
    const held = await bucket.draw();
    sluice.worker(
      queue,
      async (jobs) => {
        begun.push(...jobs.map(({ data }) => data));
        await mayEnd;
      },
      { batch: { size: 2, waitMs: 60_000 } },
    );
    await queue.enqueue("run", { every: 3_600_000, dedupeId: "hourly" });
    await queue.enqueue("plain");
    await waitUntil(async () => (await queue.counts()).active === 2, "they wait for a slot");

    await queue.unschedule("hourly");
    held.release();
    await waitUntil(() => begun.length > 0, "the batch runs");
    const next = await bucket.tryDraw();
    end();
    await waitUntil(async () => (await queue.counts()).done === 1, "it is done");

    expect(begun).toEqual(["plain"]);
    expect(next).toMatchObject({ allowed: false });
  });

  it("releases the slot of a batch of which no job is to begin", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { concurrency: 1 });
    const queue = sluice.queue<string>("jobs", { bucket });
    const held = await bucket.draw();
    sluice.worker(queue, () => {}, { batch: { size: 1 } });
    await queue.enqueue("run", { every: 3_600_000, dedupeId: "hourly" });
    await waitUntil(async () => (await queue.counts()).active === 1, "it waits for a slot");

    await queue.unschedule("hourly");
    const next = bucket.draw();
    held.release();

    expect((await next).hasLease).toBe(true);
  });

  it("that closes gives back what has not begun, and loses nothing", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const worker = sluice.worker(queue, () => {}, { batch: { size: 100, waitMs: 60_000 } });
    await queue.enqueueMany(upTo(5));
    await waitUntil(async () => (await queue.counts()).active === 5, "they are gathered");

    await worker.close();
    const counts = await queue.counts();
    await worker.close();
    sluice.worker(queue, () => {}, { batch: { size: 5, waitMs: 60_000 } });
    await waitUntil(async () => (await queue.counts()).done === 5, "another has done them");

    expect(counts).toMatchObject({ waiting: 5, active: 0, done: 0, failed: 0 });
  });

  it("gives back what it gathers when the queue is paused", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    sluice.worker(queue, () => {}, { batch: { size: 100, waitMs: 60_000 } });
    await queue.enqueueMany(upTo(5));
    await waitUntil(async () => (await queue.counts()).active === 5, "they are gathered");

    await queue.pause();
    await waitUntil(async () => (await queue.counts()).waiting === 5, "they went back");

    expect(await queue.counts()).toMatchObject({ active: 0, done: 0, failed: 0 });
  });

  it.each([
    ["batch.size", { size: 0 }],
    ["batch.waitMs", { size: 5, waitMs: -1 }],
    ["batch.cost", { size: 5, cost: 3 }],
    ["batch", 5],
    ["most", { size: 5, most: 5 }],
  ])("is refused with a bad %s", (option, batch) => {
    const { sluice, queue } = openQueue<number>(sluices);
    const start = (): unknown => sluice.worker(queue, () => {}, { batch } as never);

    expect(start).toThrow(InvalidOptionError);
    expect(start).toThrow(option);
  });

  it("is refused with handlers by name, or in a file", () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const start = (handler: unknown) => () =>
      sluice.worker(queue, handler as never, { batch: { size: 5 } });

    expect(start({ charge: () => {} })).toThrow("array of jobs");
    expect(start(import.meta.filename)).toThrow("array of jobs");
  });
});
