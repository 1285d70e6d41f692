import { describe, expect, it } from "vitest";
import type { JobsOptions, Queue, QueuedJob } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** All that a listing finds, page by page; `between` is done after each page. */
async function list(
  queue: Queue<string>,
  options: JobsOptions = {},
  between?: (jobs: readonly QueuedJob<string>[]) => Promise<unknown>,
): Promise<string[]> {
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await queue.jobs({ ...options, cursor });
    found.push(...page.jobs.map(({ data }) => data));
    await between?.(page.jobs);
    cursor = page.cursor;
  } while (cursor !== undefined);
  return found;
}

function named(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix} ${index}`);
}

/** A queue with jobs in each state, of two keys and of none. */
async function openFull(): Promise<{ queue: Queue<string>; end: () => void }> {
  const { sluice, queue } = openQueue<string>(sluices);
  const { promise: mayEnd, resolve: end } = deferred();
  const ended = [
    await queue.enqueue("done", { key: "acme", name: "mail" }),
    await queue.enqueue("failed", { key: "acme", attempts: 1 }),
  ];
  const worker = sluice.worker(
    queue,
    async ({ data }) => {
      if (data === "failed") throw new Error("no");
      if (data.startsWith("running")) await mayEnd;
    },
    { concurrency: 2 },
  );
  await Promise.allSettled(ended.map((job) => job.finished()));
  await queue.enqueueMany(["running 0", "running 1"], { key: "beta" });
  await waitUntil(async () => (await queue.counts()).active === 2, "two jobs run");
  void worker;
  await queue.enqueueMany(named("acme", 30), { key: "acme" });
  await queue.enqueueMany(named("beta", 20), { key: "beta", name: "mail" });
  await queue.enqueueMany(named("free", 10));
  await queue.enqueueMany(named("later", 15), { key: "acme", delayMs: 100_000 });
  await queue.enqueueMany(named("free later", 5), { delayMs: 200_000, name: "mail" });
  return { queue, end };
}

describe("the jobs of a queue", () => {
  it("are listed by state, key and name, in pages", async () => {
    const { queue, end } = await openFull();

    const lists = {
      waiting: await list(queue, { state: "waiting", limit: 7 }),
      waitingOfAcme: await list(queue, { state: "waiting", key: "acme", limit: 7 }),
      delayed: await list(queue, { state: "delayed", limit: 4 }),
      delayedOfAcme: await list(queue, { state: "delayed", key: "acme" }),
      active: await list(queue, { state: "active", limit: 1 }),
      done: await list(queue, { state: "done" }),
      failed: await list(queue, { state: "failed", key: "acme" }),
      failedOfBeta: await list(queue, { state: "failed", key: "beta" }),
      named: await list(queue, { name: "mail", limit: 3 }),
      all: await list(queue, { limit: 1_000 }),
    };
    const counts = [await queue.counts({ key: "acme" }), await queue.counts({ key: "beta" })];
    const none = await queue.counts({ key: "nobody" });
    end();

    const beta = named("beta", 20);
    expect(lists.waiting.toSorted()).toEqual(
      [...named("acme", 30), ...beta, ...named("free", 10)].toSorted(),
    );
    expect(lists.waitingOfAcme).toEqual(named("acme", 30));
    expect(lists.delayed).toEqual([...named("later", 15), ...named("free later", 5)]);
    expect(lists.delayedOfAcme).toEqual(named("later", 15));
    expect(lists.active).toEqual(["running 0", "running 1"]);
    expect([lists.done, lists.failed, lists.failedOfBeta]).toEqual([["done"], ["failed"], []]);
    expect(lists.named.toSorted()).toEqual([...beta, ...named("free later", 5), "done"].toSorted());
    expect(lists.all).toHaveLength(84);
    expect(counts).toEqual([
      { waiting: 30, active: 0, delayed: 15, done: 1, failed: 1 },
      { waiting: 20, active: 2, delayed: 0, done: 0, failed: 0 },
    ]);
    expect(none).toEqual({ waiting: 0, active: 0, delayed: 0, done: 0, failed: 0 });
  });

  it("are not missed while others are removed, added and done between two pages", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const staying = named("stays", 300);
    await queue.enqueueMany(staying.slice(0, 150), { key: "quiet", priority: "low" });
    await queue.enqueueMany(named("goes", 300), { key: "busy" });
    await queue.enqueueMany(staying.slice(150), { priority: "low" });
    await queue.enqueueMany(named("free goes", 100));
    await queue.pause({ key: "quiet" });
    let round = 0;
    const found = await list(queue, { state: "waiting", limit: 10 }, async (jobs) => {
      round += 1;
      // The last of a page is where the next one begins.
      for (const job of jobs.slice(-3)) if (job.data.includes("goes")) await job.remove();
      if (round % 10 === 0) await queue.enqueueMany(named("new", 5), { key: `k${round}` });
      if (round === 20) {
        const worker = sluice.worker(queue, async () => {}, { concurrency: 5 });
        await waitUntil(async () => (await queue.counts()).done > 50, "some are done");
        await worker.close();
      }
    });

    const stayed = new Set(await list(queue, { state: "waiting", limit: 1_000 }));
    const missed = staying.filter((name) => stayed.has(name) && !found.includes(name));
    expect(missed).toEqual([]);
    expect(stayed.size).toBeGreaterThan(140);
  });

  it.each([
    ["state", { state: "running" }],
    ["limit", { limit: 0 }],
    ["cursor", { cursor: "9 5" }],
    ["cursor", { state: "delayed", cursor: "0 not a score" }],
    ["cursor", { cursor: 5 }],
    ["status", { status: "failed" }],
  ])("are refused for a bad %s: %j", async (option, options) => {
    const { queue } = openQueue<string>(sluices);

    const reason = await rejectionOf(queue.jobs(options as never));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});

describe("jobs that were replayed", () => {
  async function openReplayed(count: number): Promise<Queue<string>> {
    const { sluice, queue } = openQueue<string>(sluices);
    await queue.enqueueMany(named("job", count), (_data, index) => ({
      // In no order of their ids.
      id: `order-${(index * 7) % count}`,
      attempts: 1,
    }));
    const worker = sluice.worker(queue, async () => {
      throw new Error("no");
    });
    await waitUntil(async () => (await queue.counts()).failed === count, "all have failed");
    await worker.close();
    for (let index = 0; index < count; index++) await queue.replay(`order-${(index * 7) % count}`);
    return queue;
  }

  it("are listed as they will go, page by page", async () => {
    const queue = await openReplayed(50);

    for (const limit of [1, 7, 50, 100]) {
      expect(await list(queue, { state: "waiting", limit })).toEqual(named("job", 50));
    }
  });

  it("are all listed while others of them go, and come", async () => {
    const queue = await openReplayed(50);
    const removed = new Set<string>();
    let pages = 0;

    const found = await list(queue, { state: "waiting", limit: 6 }, async (jobs) => {
      pages += 1;
      // The last of a page, from which the next one would go on, or one in the middle.
      const gone = jobs.at(pages % 3 === 0 ? -1 : 2);
      if (gone === undefined) return;
      removed.add(gone.data);
      await gone.remove();
    });

    const stayed = named("job", 50).filter((data) => !removed.has(data));
    expect(new Set([...found, ...removed])).toEqual(new Set(named("job", 50)));
    expect(stayed.every((data) => found.includes(data))).toBe(true);
    expect(await list(queue, { state: "waiting" })).toEqual(stayed);
  });
});
