import { describe, expect, it } from "vitest";
import { RetryAfter } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openTokenQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const dedupeId = "order:1";

/** Where a job may wait. */
const PLACES: readonly [string, object][] = [
  ["without a key", {}],
  ["in a lane", { key: "acme" }],
  ["that is delayed", { delayMs: 3_600_000 }],
  ["with a key that is delayed", { key: "acme", delayMs: 3_600_000 }],
];

describe("a job whose dedupeId another has", () => {
  it.each(PLACES)("is reported as not new, with the stored job: %s", async (_where, where) => {
    const { queue } = openTokenQueue<string>(sluices);

    const first = await queue.enqueue("first", {
      dedupeId,
      name: "a",
      cost: { tokens: 2 },
      ...where,
    });
    const second = await queue.enqueue("second", { dedupeId, key: "other", name: "b" });

    expect(first.isNew).toBe(true);
    expect(second.isNew).toBe(false);
    const { id, data, key, name, cost, dueAtMs } = first;
    expect(second).toMatchObject({ id, data, key, name, cost, dueAtMs });
    expect(await queue.jobOf(dedupeId)).toMatchObject({ id, data, key, isNew: false });
  });

  it("gets the stored data also within one call of enqueueMany, and the others are new", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const jobs = await queue.enqueueMany(["a1", "b1", "a2", "c", "b2"], (data) => ({
      dedupeId: data === "c" ? undefined : data[0],
      key: data === "a1" ? "acme" : undefined,
    }));

    expect(jobs.map(({ data, isNew }) => [data, isNew])).toEqual([
      ["a1", true],
      ["b1", true],
      ["a1", false],
      ["c", true],
      ["b1", false],
    ]);
    expect(jobs[2]).toMatchObject({ id: jobs[0]!.id, key: "acme" });
    expect(await queue.counts()).toMatchObject({ waiting: 3, delayed: 0 });
  });

  it("is reported with the stored done job, while its dedupeMs lasts", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    sluice.worker(queue, async () => {});
    const first = await queue.enqueue("first", { dedupeId, dedupeMs: 3_600_000 });
    await first.finished();

    const second = await queue.enqueue("second", { dedupeId, dedupeMs: 3_600_000 });

    expect(second).toMatchObject({ id: first.id, data: "first", isNew: false, attemptsMade: 1 });
    expect(await queue.jobOf(dedupeId)).toMatchObject({ id: first.id });
  });

  it("is new again once the other job is done, has failed or was removed", async () => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const removed = await queue.enqueue("removed", { dedupeId });
    await removed.remove();
    expect(await queue.jobOf(dedupeId)).toBeUndefined();
    sluice.worker(queue, async ({ data }) => {
      if (data === "failing") throw new Error("no");
    });

    const failing = await queue.enqueue("failing", { dedupeId, attempts: 1 });
    await rejectionOf(failing.finished());
    const done = await queue.enqueue("done", { dedupeId });
    await done.finished();
    const last = await queue.enqueue("last", { dedupeId });
    await last.finished();

    expect([failing, done, last].map(({ isNew }) => isNew)).toEqual([true, true, true]);
  });
});

describe("the dedupeId of a recurring job", () => {
  it("finds its next run, and shows whether the schedule is new", async () => {
    const { queue } = openTokenQueue<string>(sluices);

    const first = await queue.enqueue("a", { cron: "0 9 * * *", dedupeId: "daily" });
    const again = await queue.enqueue("b", { cron: "0 9 * * *", dedupeId: "daily" });

    expect([first.isNew, again.isNew]).toEqual([true, false]);
    expect(await queue.jobOf("daily")).toMatchObject({ id: again.id, data: "b" });
    expect(await queue.jobOf("weekly")).toBeUndefined();
  });

  it("is reported as new to only one of many callers that declare the schedule at once", async () => {
    const opened = [1, 2, 3, 4].map(() => openTokenQueue<string>(sluices).queue);
    await Promise.all(opened.map((queue) => queue.counts()));

    const jobs = await Promise.all(
      opened.map((queue) => queue.enqueue("a", { every: 3_600_000, dedupeId: "hourly" })),
    );

    expect(jobs.filter(({ isNew }) => isNew)).toHaveLength(1);
  });
});

describe.each(["last", "again"] as const)("with dedupe %j", (dedupe) => {
  it.each(PLACES)("the newest data of waiting jobs runs once: %s", async (_which, where) => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const done: unknown[] = [];
    const isLater = "delayMs" in where;

    const deadline = { maxWaitMs: 3_600_000 };
    const first = await queue.enqueue("1", { dedupeId, dedupe, ...deadline, ...where });
    await queue.enqueue("2", { dedupeId, dedupe });
    const changed = { name: "b", cost: { tokens: 3 }, attempts: 7, timeoutMs: 9_000 };
    const last = await queue.enqueue("3", { dedupeId, dedupe, key: "other", ...changed });

    const { id, key, dueAtMs, enqueuedAtMs, startByMs, priority } = first;
    const times = { dueAtMs, enqueuedAtMs, startByMs };
    const stored = { id, key, ...times, priority, data: "3", isNew: false };
    expect(last).toMatchObject({ ...stored, name: "b", cost: { tokens: 3 }, timeoutMs: 9_000 });
    expect(await queue.job(id)).toMatchObject({ ...stored, name: "b", cost: { tokens: 3 } });
    if (isLater) return;
    sluice.worker(queue, async (job) => void done.push([job.data, job.name]));
    await last.finished();
    expect(done).toEqual([["3", "b"]]);
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0, active: 0 });
  });

  it.each([
    ["without a key", {}],
    ["with a key", { key: "acme" }],
  ])("the next attempt of a waiting retry has the newest data: %s", async (_which, where) => {
    const { sluice, queue } = openTokenQueue<string>(sluices);
    const seen: unknown[] = [];
    sluice.worker(queue, async ({ data }, { attempt }) => {
      seen.push([data, attempt]);
      if (attempt > 1) return;
      await queue.pause();
      throw new RetryAfter(1);
    });

    const first = await queue.enqueue("old", { dedupeId, dedupe, ...where });
    await waitUntil(async () => {
      const { active } = await queue.counts();
      return active === 0 && (await queue.job(first.id))?.attemptsMade === 1;
    }, "it waits for its next attempt");
    const second = await queue.enqueue("new", { dedupeId, dedupe });
    await queue.resume();
    await second.finished();

    expect(second).toMatchObject({ id: first.id, isNew: false, data: "new", attemptsMade: 1 });
    expect(seen).toEqual([
      ["old", 1],
      ["new", 2],
    ]);
  });
});
