import { describe, expect, it } from "vitest";
import { CostTooLargeError, InvalidOptionError, type Job } from "sluice";
import { openTokenQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

describe("a job's cost", () => {
  it("is kept with the job, and drawn before its handler runs", async () => {
    const { sluice, bucket, queue } = openTokenQueue<string>(sluices);
    const seen: Job<string>[] = [];
    const given = await queue.enqueue("large", { cost: { tokens: 100 } });

    sluice.worker(queue, async (job) => void seen.push(job));
    await waitUntil(() => seen.length === 1, "the job is done");
    const { limits } = await bucket.peek();

    expect(given.cost).toEqual({ tokens: 100 });
    expect(seen[0]).toMatchObject({ cost: { tokens: 100 } });
    expect(limits[1]!.level).toBeGreaterThan(0);
  });

  it("that exceeds every limit is refused immediately", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const reason = await rejectionOf(queue.enqueue("larger", { cost: { tokens: 101 } }));

    expect(reason).toBeInstanceOf(CostTooLargeError);
    expect(reason).toMatchObject({ cost: 101, unit: "tokens", maxCost: 100 });
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("with an uncounted unit is refused by the unit's name", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const reason = await rejectionOf(queue.enqueue("odd", { cost: { bytes: 1 } }));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option: "cost.bytes" });
  });
});

describe("the defaults of a queue", () => {
  function openWithDefaults() {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    const defaults = { attempts: 2, backoff: { baseMs: 1 }, maxWaitMs: 60_000 } as const;
    return { sluice, queue: sluice.queue<string>("jobs", { bucket, defaults }) };
  }

  it("apply to one job or many, and a job's own options override them", async () => {
    const { sluice, queue } = openWithDefaults();
    const tried: Record<string, number> = {};
    sluice.worker(queue, async ({ data }) => {
      tried[data] = (tried[data] ?? 0) + 1;
      throw new Error("no such number");
    });

    const jobs = [
      await queue.enqueue("one"),
      ...(await queue.enqueueMany(["many"])),
      await queue.enqueue("other", { attempts: 3, maxWaitMs: undefined }),
    ];
    for (const job of jobs) await rejectionOf(job.finished());

    expect(tried).toEqual({ one: 2, many: 2, other: 3 });
    for (const { enqueuedAtMs, startByMs } of jobs) {
      expect(startByMs).toBeGreaterThanOrEqual(enqueuedAtMs + 60_000);
      expect(startByMs).toBeLessThanOrEqual(Date.now() + 60_000);
    }
  });

  it.each([
    [{ attempts: 0 }, "defaults.attempts"],
    [{ dedupeId: "a" }, "defaults.dedupeId"],
  ])("are refused when the queue is created: %j", (defaults, option) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    const open = (): unknown => sluice.queue("jobs", { bucket, defaults: defaults as object });

    expect(open).toThrow(InvalidOptionError);
    expect(open).toThrow(`option "${option}"`);
  });
});

describe("a job's time", () => {
  it("may be a moment, before which the job does not start", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const at = new Date(Date.now() + 300);
    let startedAtMs = 0;
    await queue.enqueue("later", { at });
    sluice.worker(queue, async () => void (startedAtMs = Date.now()));

    await waitUntil(() => startedAtMs > 0, "the job has started");

    expect(startedAtMs).toBeGreaterThanOrEqual(at.getTime());
  });

  it("in the past means immediately", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    let isDone = false;
    await queue.enqueue("late already", { at: Date.now() - 60_000 });

    sluice.worker(queue, async () => void (isDone = true));
    await waitUntil(() => isDone, "the job is done");

    expect(await queue.counts()).toMatchObject({ delayed: 0, failed: 0 });
  });

  it("limits its start by maxWaitMs from its due time on", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const now = await queue.enqueue("now", { maxWaitMs: 5_000 });
    const later = await queue.enqueue("later", { delayMs: 1_000, maxWaitMs: 5_000 });
    const keyed = await queue.enqueue("keyed", { key: "acme", maxWaitMs: 5_000 });

    const waits = [
      [now, 5_000],
      [later, 6_000],
      [keyed, 5_000],
    ] as const;
    for (const [{ enqueuedAtMs, startByMs }, ms] of waits) {
      expect(startByMs).toBeGreaterThanOrEqual(enqueuedAtMs + ms);
      expect(startByMs).toBeLessThanOrEqual(Date.now() + ms);
    }
  });
});

describe("a dedupeId", () => {
  it("allows one job in the queue at a time", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const done: string[] = [];

    const first = await queue.enqueue("first", { dedupeId: "order:1" });
    const second = await queue.enqueue("second", { dedupeId: "order:1" });
    sluice.worker(queue, async (job) => void done.push(job.data));
    await waitUntil(async () => (await first.state()) === "done", "the job is done");
    const third = await queue.enqueue("third", { dedupeId: "order:1" });
    await waitUntil(async () => (await third.state()) === "done", "the next one is done");

    expect(second.id).toBe(first.id);
    expect(done).toEqual(["first", "third"]);
  });

  it("is free again when its job has failed", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    sluice.worker(queue, async () => Promise.reject(new Error("no")));

    const first = await queue.enqueue("first", { dedupeId: "a", attempts: 1 });
    await waitUntil(async () => (await first.state()) === "failed", "the job has failed");
    const second = await queue.enqueue("second", { dedupeId: "a", attempts: 1 });

    expect(second.id).not.toBe(first.id);
  });

  it("lasts beyond the end of its job for dedupeMs", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const options = { dedupeId: "a", dedupeMs: 600_000 };
    sluice.worker(queue, async () => {});

    const first = await queue.enqueue("first", options);
    await waitUntil(async () => (await first.state()) === "done", "the job is done");
    const second = await queue.enqueue("second", options);

    expect(second.id).toBe(first.id);
  });

  it("does not start its delayed job earlier", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const done: string[] = [];
    sluice.worker(queue, async (job) => void done.push(job.data));

    const later = await queue.enqueue("later", { key: "k", dedupeId: "a", delayMs: 600_000 });
    await queue.enqueue("now", { key: "k", dedupeId: "a" });
    await queue.enqueue("other", { key: "k" });
    await waitUntil(() => done.length > 0, "the other job is done");

    expect(done).toEqual(["other"]);
    expect(await later.state()).toBe("delayed");
  });
});

describe("many jobs at once", () => {
  it("may each have separate options", async () => {
    const { queue } = openTokenQueue<number>(sluices);

    const jobs = await queue.enqueueMany([1, 2, 1], (data, index) => ({
      key: `tenant ${index}`,
      dedupeId: `order ${data}`,
    }));

    expect(jobs.map(({ key }) => key)).toEqual(["tenant 0", "tenant 1", "tenant 0"]);
    expect(jobs[2]!.id).toBe(jobs[0]!.id);
  });

  it("store nothing when one of them can never work", async () => {
    const { queue } = openTokenQueue<number>(sluices);

    const reason = await rejectionOf(
      queue.enqueueMany([1, 2], (data) => ({ cost: { tokens: data * 100 } })),
    );

    expect(reason).toBeInstanceOf(CostTooLargeError);
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it.each([
    [{ dedupeId: "a" }, "dedupeId"],
    [{ dedupeId: "a", every: 1_000 }, "every"],
  ])("refuse %j, which only one job can have", async (options, option) => {
    const { queue } = openTokenQueue<number>(sluices);

    const reason = await rejectionOf(queue.enqueueMany([1, 2], options));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});
