import { describe, expect, inject, it } from "vitest";
import { InvalidOptionError, QueueFullError, RetryAfter, type QueueOptions } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();

function open(maxBacklog: QueueOptions["maxBacklog"]) {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "1000/s" });
  return { sluice, queue: sluice.queue<number>("jobs", { bucket, maxBacklog }) };
}

const HOUR_MS = 3_600_000;

describe("a queue with a maxBacklog", () => {
  it.each([
    ["without a key", [{}, {}, {}]],
    ["in lanes", [{ key: "a" }, { key: "b" }, { key: "c" }]],
    ["that are delayed", [{ delayMs: HOUR_MS }, { delayMs: HOUR_MS }, { delayMs: HOUR_MS }]],
    ["of all kinds", [{ key: "a" }, { key: "b", delayMs: HOUR_MS }, {}]],
  ])("rejects further jobs, and stores none of them: jobs %s", async (_which, options) => {
    const { queue } = open(3);

    for (const [index, own] of options.entries()) await queue.enqueue(index, own);
    const refusals = await Promise.all(
      [
        {},
        { key: "a" },
        { delayMs: 5 },
        { id: "a" },
        { dedupeId: "a", dedupe: "last" as const },
      ].map((more) => rejectionOf(queue.enqueue(4, more))),
    );

    for (const reason of refusals) {
      expect(reason).toBeInstanceOf(QueueFullError);
      const facts = { queue: "jobs", limit: 3, waiting: 3, key: undefined, storedCount: 0 };
      expect(reason).toMatchObject({ code: "ERR_QUEUE_FULL", ...facts });
    }
    const { waiting, delayed } = await queue.counts();
    expect(waiting + delayed).toBe(3);
    expect(await queue.jobOf("a")).toBeUndefined();
  });

  it("limits each key separately by perKey, including its delayed jobs", async () => {
    const { sluice, queue } = open({ perKey: 2 });

    await queue.enqueue(1, { key: "a" });
    const delayed = await queue.enqueue(2, { key: "a", delayMs: HOUR_MS });
    const reason = await rejectionOf(queue.enqueue(3, { key: "a" }));
    await queue.enqueueMany([4, 5], { key: "b" });
    await queue.enqueueMany([6, 7, 8]);

    expect(reason).toMatchObject({ limit: 2, waiting: 2, key: "a" });
    expect(await queue.counts()).toMatchObject({ waiting: 6, delayed: 1 });
    await delayed.remove();
    await queue.enqueue(9, { key: "a" });
    expect(await rejectionOf(queue.enqueue(10, { key: "a" }))).toBeInstanceOf(QueueFullError);
    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await queue.counts()).waiting === 0, "all are done");
    await queue.enqueueMany([11, 12], { key: "a", delayMs: HOUR_MS });
    expect(await rejectionOf(queue.enqueue(13, { key: "a" }))).toBeInstanceOf(QueueFullError);
  });

  it("counts a delayed job of a key once, also after it is due", async () => {
    const { sluice, queue } = open({ perKey: 3 });
    const jobs = await queue.enqueueMany([1, 2], { key: "a", delayMs: 1 });
    await queue.pause();
    sluice.worker(queue, async () => {});
    for (const job of jobs) {
      await waitUntil(async () => (await job.state()) === "waiting", "it waits in its lane");
    }

    const third = await queue.enqueue(3, { key: "a" });
    const reason = await rejectionOf(queue.enqueue(4, { key: "a" }));

    expect(third.isNew).toBe(true);
    expect(reason).toMatchObject({ waiting: 3, limit: 3, key: "a" });
  });

  it("rejects with the numbers of new and of pending jobs", async () => {
    const { queue } = open(3);
    await queue.enqueueMany([1, 2]);

    const reason = await rejectionOf(queue.enqueueMany([3, 4]));

    expect(reason).toMatchObject({ waiting: 2, asked: 2, limit: 3, storedCount: 0 });
    expect((reason as Error).message).toContain("2 jobs wait, 2 more were to be stored");
  });

  it.each([
    [{}, "maxBacklog", "give a number of jobs from 1, or { all: 10_000, perKey: 1_000 }"],
    [{ perkey: 2 }, "maxBacklog.perkey", "did you mean perKey?"],
    [{ bogus: 2 }, "maxBacklog.bogus", "the options are all, perKey"],
  ])("is refused as %j, with its remedy", (wrong, option, remedy) => {
    const refused = () => open(wrong as QueueOptions["maxBacklog"]);

    expect(refused).toThrow(InvalidOptionError);
    expect(refused).toThrow(remedy);
    expect(refused).toThrow(`option "${option}"`);
  });

  it("stores all or none of a round trip of enqueueMany, and reports how many are stored", async () => {
    const { queue } = open(2_500);

    const some = await queue.enqueueMany([...Array(400).keys()]);
    const none = await rejectionOf(queue.enqueueMany([...Array(3_000).keys()]));
    const { waiting } = await queue.counts();
    const few = await rejectionOf(queue.enqueueMany([...Array(101).keys()], { key: "a" }));
    const last = await queue.enqueueMany([...Array(100).keys()], { key: "a" });

    expect(some).toHaveLength(400);
    expect(none).toMatchObject({ waiting: 2_400, limit: 2_500, storedCount: 2_000 });
    expect(few).toMatchObject({ waiting: 2_400, storedCount: 0 });
    expect([waiting, last.length, (await queue.counts()).waiting]).toEqual([2_400, 100, 2_500]);
  });

  it("does not reject a stored job, nor count it twice within a call", async () => {
    const { queue } = open(2);

    const jobs = await queue.enqueueMany([1, 2, 3, 4], (data) => ({ dedupeId: `${data % 2}` }));
    const kept = await queue.enqueue(5, { dedupeId: "0" });
    const replaced = await queue.enqueue(6, { dedupeId: "1", dedupe: "last" });

    expect(jobs.map(({ isNew }) => isNew)).toEqual([true, true, false, false]);
    expect([kept.data, replaced.data]).toEqual([2, 6]);
    expect(await queue.counts()).toMatchObject({ waiting: 2 });
  });

  it("rejects no retry, no replay and no recurring job", async () => {
    const { sluice, queue } = open({ all: 1, perKey: 1 });
    let isUp = false;
    const worker = sluice.worker(queue, async ({ data }, { attempt }) => {
      if (data === 1 && attempt === 1) throw new RetryAfter(1);
      if (!isUp) throw new Error("down");
    });
    const dead = await queue.enqueue(0, { key: "a", attempts: 1 });
    await rejectionOf(dead.finished());
    isUp = true;
    const retried = await queue.enqueue(1, { key: "a" });
    await retried.finished();
    await worker.close();

    await queue.enqueue(2, { key: "a" });
    const run = await queue.enqueue(3, { every: HOUR_MS, dedupeId: "hourly", key: "a" });
    const replayed = await queue.replay({});
    const reason = await rejectionOf(queue.enqueue(4, { key: "b" }));
    sluice.worker(queue, async () => {});
    await Promise.all([dead.finished(), run.finished()]);

    expect(replayed).toBe(1);
    expect(reason).toMatchObject({ limit: 1, key: undefined });
  });

  it("is never exceeded by twenty producers in several processes", async () => {
    const { queue } = open({ all: 500, perKey: 300 });
    const args = [inject("redisUrl"), sluices.prefix(), JSON.stringify({ all: 500, perKey: 300 })];
    const producers = [1, 2, 3].map(() => processes.start("workers/full-producer.ts", args));
    const seen: number[] = [];

    const all = Promise.all(producers.map(({ ended }) => ended));
    let isOver = false;
    void all.then(() => (isOver = true));
    while (!isOver) {
      const { waiting, delayed } = await queue.counts();
      seen.push(waiting + delayed);
    }

    expect(await all).toEqual([0, 0, 0]);
    const { waiting, delayed } = await queue.counts();
    const told = producers.flatMap(({ messages }) => messages as readonly Stored[]);
    const stored = told.reduce((sum, { stored: each }) => sum + each, 0);
    expect(Math.max(...seen)).toBeLessThanOrEqual(500);
    expect([waiting + delayed, stored]).toEqual([500, 500]);
    for (const key of ["a", "b"]) {
      const ofKey = told.filter((each) => each.key === key);
      expect(ofKey.reduce((sum, each) => sum + each.stored, 0)).toBeLessThanOrEqual(300);
    }
    expect(told.every(({ others }) => others === 0)).toBe(true);
  });

  it.each([0, -1, 1.5, "10", {}, { all: 0 }, { perkey: 5 }, { perKey: Infinity }, null])(
    "is refused by name if it is %j",
    (maxBacklog) => {
      const refused = (): unknown => open(maxBacklog as number);

      expect(refused).toThrow(InvalidOptionError);
      expect(refused).toThrow(/option "maxBacklog/);
    },
  );
});

interface Stored {
  readonly key: string;
  readonly stored: number;
  /** How many calls rejected with anything else. */
  readonly others: number;
}
