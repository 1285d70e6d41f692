import { describe, expect, it } from "vitest";
import { z } from "zod";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const HOUR_MS = 3_600_000;

describe("a job's data", () => {
  it.each([
    ["waits", {}],
    ["waits in its lane", { key: "acme" }],
    ["is delayed", { delayMs: 50 }],
  ])("can be changed while it %s", async (_where, options) => {
    const { sluice, queue } = openQueue<{ to: string }>(sluices);
    const job = await queue.enqueue({ to: "ada" }, options);

    const isChanged = await job.update({ to: "bob" });
    const stored = (await queue.job(job.id))!.data;
    const seen: string[] = [];
    sluice.worker(queue, async ({ data }) => void seen.push(data.to));
    await job.finished();

    expect([isChanged, stored, seen]).toEqual([true, { to: "bob" }, ["bob"]]);
  });

  it("can be changed once the job has failed, and is used when it is replayed", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const seen: string[] = [];
    sluice.worker(queue, async ({ data }) => {
      seen.push(data);
      if (data === "wrong") throw new Error("no");
    });
    const job = await queue.enqueue("wrong", { attempts: 1 });
    await rejectionOf(job.finished());

    expect(await job.update("right")).toBe(true);
    await queue.replay(job.id);
    await waitUntil(async () => (await job.state()) === "done", "it is done");

    expect(seen).toEqual(["wrong", "right"]);
  });

  it("is left alone while the job runs, once it is done, and where there is none", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const job = await queue.enqueue("as it was", { key: "acme" });
    sluice.worker(queue, () => mayEnd);
    await waitUntil(async () => (await job.state()) === "active", "it runs");

    const running = await rejectionOf(job.update("other"));
    end();
    await job.finished();
    const done = await rejectionOf(job.update("other"));
    const { data } = (await queue.job(job.id))!;
    await job.remove();

    expect(running).toMatchObject({ code: "ERR_JOB_STATE", jobId: job.id, state: "active" });
    expect(done).toMatchObject({ code: "ERR_JOB_STATE", jobId: job.id, state: "done" });
    expect(data).toBe("as it was");
    expect(await job.update("other")).toBe(false);
    expect(await queue.job(job.id)).toBe(undefined);
  });

  it("is checked by the queue's schema", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "10/s" });
    const schema = z.object({ cents: z.number() });
    const queue = sluice.queue("jobs", { bucket, schema, maxJobBytes: 100 });
    const job = await queue.enqueue({ cents: 5 });

    const wrong = await rejectionOf(job.update({ cents: "5" } as never));
    const cyclic: { cents: number; self?: unknown } = { cents: 5 };
    cyclic.self = cyclic;

    expect(wrong).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(await job.update(cyclic)).toBe(true);
    expect((await queue.job(job.id))!.data).toEqual({ cents: 5 });
  });
});

describe("a job's time", () => {
  it("can be put off while it waits, in its lane or without a key", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const keyed = await queue.enqueue("keyed", { key: "acme" });
    const free = await queue.enqueue("free");
    const atMs = Date.now() + HOUR_MS;

    const moved = [
      await keyed.reschedule({ at: atMs }),
      await free.reschedule({ at: new Date(atMs) }),
    ];
    const states = [await keyed.state(), await free.state()];
    const started: string[] = [];
    sluice.worker(queue, async ({ data }) => void started.push(data));
    await (await queue.enqueue("another", { key: "acme" })).finished();
    await (await queue.enqueue("another of none")).finished();
    const dueAtMs = (await queue.job(keyed.id))!.dueAtMs;
    await keyed.reschedule({ delayMs: 0 });
    await free.reschedule({ delayMs: 10 });
    await Promise.all([keyed.finished(), free.finished()]);

    expect([moved, states]).toEqual([
      [true, true],
      ["delayed", "delayed"],
    ]);
    expect(dueAtMs).toBe(atMs);
    expect(started.toSorted()).toEqual(["another", "another of none", "free", "keyed"]);
  });

  it("can be brought forward, and it then starts in its turn", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const started: string[] = [];
    sluice.worker(queue, async ({ data }) => void started.push(data));
    const keyed = await queue.enqueue("keyed", { key: "acme", delayMs: HOUR_MS });
    const free = await queue.enqueue("free", { delayMs: HOUR_MS });

    const moved = [await keyed.runNow(), await free.runNow()];
    await Promise.all([keyed.finished(), free.finished()]);

    expect(moved).toEqual([true, true]);
    expect(started).toHaveLength(2);
  });

  it("of a next attempt can be brought forward", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    sluice.worker(queue, async (_job, { attempt }) => {
      if (attempt === 1) throw new Error("no");
    });
    const backoff = { baseMs: HOUR_MS, maxMs: HOUR_MS };
    const job = await queue.enqueue("a", { key: "acme", backoff });
    await waitUntil(async () => (await queue.job(job.id))!.attemptsMade === 1, "one has failed");
    await waitUntil(async () => (await queue.counts()).active === 0, "it waits for the next one");

    expect(await job.runNow()).toBe(true);
    await job.finished();

    expect((await queue.job(job.id))!.attemptsMade).toBe(2);
  });

  it("moves its deadline along", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const job = await queue.enqueue("a", { key: "acme", maxWaitMs: HOUR_MS });
    const dueAtMs = Date.now() + 2 * HOUR_MS;

    await job.reschedule({ at: dueAtMs });
    const { startByMs } = (await queue.job(job.id))!;
    sluice.worker(queue, async () => {});

    expect(startByMs).toBe(dueAtMs + HOUR_MS);
    await job.runNow();
    await job.finished();
  });

  it.each([{}, { key: "acme" }])(
    "is what it was put off to, by ten seconds too: %j",
    async (where) => {
      const { queue } = openQueue<string>(sluices);
      const job = await queue.enqueue("a", where);
      const at = job.enqueuedAtMs + 10_000;

      await job.reschedule({ at });
      const { dueAtMs } = (await queue.job(job.id))!;

      // That very delay marks jobs on their way to their lanes.
      expect(dueAtMs - at).toBeOneOf([0, 1]);
    },
  );

  it("stays as it is while the job runs, once it has ended, and where there is none", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const job = await queue.enqueue("a");
    sluice.worker(queue, () => mayEnd);
    await waitUntil(async () => (await job.state()) === "active", "it runs");

    const running = [await job.reschedule({ delayMs: 5 }), await job.runNow()];
    end();
    await job.finished();
    const done = [await job.reschedule({ delayMs: 5 }), await job.runNow()];
    await job.remove();
    const gone = [await job.reschedule({ delayMs: 5 }), await job.runNow()];
    await queue.enqueue("run", { every: HOUR_MS, dedupeId: "hourly" });
    const { jobs } = await queue.jobs({ state: "delayed" });
    const planned = await Promise.all(jobs.map((each) => each.reschedule({ delayMs: 5 })));

    expect([running, done, gone]).toEqual([
      [false, false],
      [false, false],
      [false, false],
    ]);
    expect(planned.every((moved) => !moved)).toBe(true);
  });

  it("is changed for a job, or the job is taken, and never both", async () => {
    const { sluice, queue } = openQueue<number>(sluices, { rate: "10000/s" });
    const started: number[] = [];
    const numbers = Array.from({ length: 300 }, (_, index) => index);
    const jobs = await queue.enqueueMany(numbers, { key: "acme" });
    sluice.worker(queue, async ({ data }) => void started.push(data), { concurrency: 10 });

    const moved = await Promise.all(
      jobs
        .toReversed()
        .map(async (job) => ((await job.reschedule({ delayMs: HOUR_MS })) ? job : undefined)),
    );
    const put = moved.flatMap((job) => (job === undefined ? [] : [job.data]));
    await waitUntil(async () => {
      const { waiting, active } = await queue.counts();
      return waiting + active === 0;
    }, "all others are done");

    expect([...started, ...put].toSorted((a, b) => a - b)).toEqual(numbers);
    expect(await queue.counts()).toMatchObject({ delayed: put.length, done: started.length });
  });

  it.each([
    ["options", undefined],
    ["options", {}],
    ["at", { at: Date.now(), delayMs: 5 }],
    ["at", { at: 5 }],
    ["delayMs", { delayMs: -1 }],
    ["delay", { delay: 5 }],
  ])("is refused for a bad %s: %j", async (option, due) => {
    const { queue } = openQueue<string>(sluices);
    const job = await queue.enqueue("a");

    const reasons = [
      await rejectionOf(job.reschedule(due as never)),
      await rejectionOf(queue.rescheduleJobs({}, due as never)),
    ];

    for (const reason of reasons)
      expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect(await job.state()).toBe("waiting");
  });
});
