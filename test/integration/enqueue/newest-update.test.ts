import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { EnqueueOptions, QueuedJob } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { openTokenQueue, type OpenedQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const dedupeId = "document 1";
const keyOf = (name: string): string => `${sluices.prefix()}:{jobs}:${name}`;
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

/** A queue whose worker runs "old", and holds it until the test says how it ends. */
async function whileOneRuns(options: EnqueueOptions) {
  const opened: OpenedQueue<string> = openTokenQueue<string>(sluices);
  const { sluice, queue } = opened;
  const runs: string[] = [];
  const [begun, goOn] = [deferred(), deferred()];
  let error: Error | undefined;
  sluice.worker(queue, async ({ data }) => {
    runs.push(data);
    begun.resolve();
    if (data !== "old") return;
    await goOn.promise;
    if (error !== undefined) throw error;
  });
  const first = await queue.enqueue("old", { attempts: 1, ...options, dedupeId });
  await begun.promise;
  const end = (how?: Error): void => {
    error = how;
    goOn.resolve();
  };
  return { ...opened, runs, first, end };
}

const KEYS = [["without a key", {}] as const, ["in a lane", { key: "acme" }] as const];

describe.each(KEYS)('an update with dedupe "again" while the one before runs, %s', (_what, key) => {
  const dedupe = "again";

  it.each([
    ["is done", undefined],
    ["has failed", new Error("no")],
  ])("is kept, only the newest, and runs once the running one %s", async (_how, error) => {
    const { queue, runs, first, end } = await whileOneRuns(key);

    const updates: QueuedJob<string>[] = [];
    for (const data of ["1", "2", "3"]) {
      updates.push(await queue.enqueue(data, { ...key, dedupeId, dedupe }));
    }
    const whileRunning = { runs: [...runs], counts: await queue.counts() };
    const found = await queue.jobOf(dedupeId);
    end(error);
    await updates[0]!.finished();

    expect(updates.map(({ data, isNew }) => [data, isNew])).toEqual([
      ["1", true],
      ["2", false],
      ["3", false],
    ]);
    const { id } = updates[0]!;
    expect(id).not.toBe(first.id);
    for (const job of [...updates, found]) expect(job).toMatchObject({ id, ...key });
    expect(whileRunning).toMatchObject({ runs: ["old"], counts: { active: 1, delayed: 1 } });
    expect(runs).toEqual(["old", "3"]);
    expect(await queue.jobOf(dedupeId)).toBeUndefined();
  });

  it("is not kept for a job that keeps the first, and can be removed", async () => {
    const { queue, runs, first, end } = await whileOneRuns(key);

    const update = await queue.enqueue("1", { ...key, dedupeId, dedupe });
    const kept = await queue.enqueue("2", { ...key, dedupeId });
    expect(await update.remove()).toBe(true);
    const second = await queue.enqueue("3", { ...key, dedupeId });
    const anew = await queue.enqueue("4", { ...key, dedupeId, dedupe });
    const { active } = await queue.counts();
    end();
    await anew.finished();

    expect(kept).toMatchObject({ id: update.id, data: "1", isNew: false });
    expect(second).toMatchObject({ id: first.id, data: "old", isNew: false });
    expect(anew).toMatchObject({ isNew: true });
    expect([active, runs]).toEqual([1, ["old", "4"]]);
  });

  it("is held back until that one has ended, and comes by itself if the end is not noticed", async () => {
    const { queue, runs, first, end } = await whileOneRuns(key);
    const update = await queue.enqueue("1", { ...key, dedupeId, dedupe });
    const { id } = update;
    const comeDue = () => redis.zadd(keyOf("delayed"), 1, id);
    const isDue = async () => Number(await redis.zscore(keyOf("delayed"), id)) <= 1;

    await comeDue();
    await redis.zadd(keyOf("marker"), 0, "0");
    await waitUntil(async () => !(await isDue()), "a worker has looked at it");
    const whileRunning = [...runs];
    await redis.del(keyOf(`again:${dedupeId}`));
    end();
    await first.finished();
    await comeDue();
    await redis.zadd(keyOf("marker"), 0, "0");
    await update.finished();

    expect(whileRunning).toEqual(["old"]);
    expect(runs).toEqual(["old", "1"]);
  });

  it("also waits for its own delay", async () => {
    const { queue, first, end } = await whileOneRuns(key);

    const update = await queue.enqueue("1", { ...key, dedupeId, dedupe, delayMs: 3_600_000 });
    end();
    await first.finished();

    expect(update.dueAtMs).toBe(update.enqueuedAtMs + 3_600_000);
    await waitUntil(async () => (await queue.counts()).active === 0, "nothing runs");
    expect(await queue.counts()).toMatchObject({ active: 0, delayed: 1, waiting: 0 });
  });
});

describe("an update that waits for another, and is rescheduled", () => {
  it("is due then, and not before", async () => {
    const { queue, first, end } = await whileOneRuns({});
    const update = await queue.enqueue("1", { dedupeId, dedupe: "again" });
    const at = Date.now() + 3_600_000;
    await waitUntil(() => Date.now() > update.enqueuedAtMs + 50, "some time has passed");

    await update.reschedule({ at });
    end();
    await first.finished();
    const pair = keyOf(`again:${dedupeId}`);
    await waitUntil(async () => (await redis.exists(pair)) === 0, "it follows the other no more");

    const due = Number(await redis.zscore(keyOf("delayed"), update.id));
    expect(Math.floor(due / 4096)).toBe(at);
  });
});

describe('an update with dedupe "last"', () => {
  it.each(KEYS)(
    "is not lost while the one before runs: it is stored beside it, %s",
    async (_, key) => {
      const { queue, runs, first, end } = await whileOneRuns(key);

      const update = await queue.enqueue("1", { ...key, dedupeId, dedupe: "last" });
      await update.finished();
      const found = await queue.jobOf(dedupeId);
      end();
      await first.finished();

      expect(update).toMatchObject({ data: "1", isNew: true });
      expect(found).toBeUndefined();
      expect(runs).toEqual(["old", "1"]);
    },
  );
});

describe("updates of one document by two processes, while two others work", () => {
  it.each([
    ["without a key", {}, 0],
    ["in a lane", { key: "acme" }, 0],
    ["whose first attempts fail", { key: "acme", backoff: { baseMs: 5, maxMs: 5 } }, 1],
  ])("never run at once, and the last one is never lost: %s", async (_which, options, fails) => {
    const { queue } = openTokenQueue<number>(sluices);
    const at = [inject("redisUrl"), sluices.prefix()];
    const given = JSON.stringify({ ...options, dedupeId, dedupe: "again" });
    const workers = [1, 2].map(() =>
      processes.start("workers/update-worker.ts", [...at, String(fails)]),
    );
    const producers = [1, 2].map(() =>
      processes.start("workers/update-producer.ts", [...at, "150", given]),
    );

    expect(await Promise.all(producers.map(({ ended }) => ended))).toEqual([0, 0]);
    await waitUntil(async () => {
      const { waiting, active, delayed } = await queue.counts();
      return waiting + active + delayed === 0;
    }, "all updates have run");
    for (const worker of workers) worker.send("close");
    await Promise.all(workers.map(({ ended }) => ended));

    const runs = workers.flatMap(({ messages }) => messages.filter(isRun));
    const told = producers.flatMap(({ messages }) => messages as readonly Stored[]);
    expect(told).toHaveLength(300);
    expect(runs.every(({ running }) => running === 1)).toBe(true);
    expect(Math.max(...runs.map(({ version }) => version))).toBe(300);
    const stored = new Set(told.filter(({ isNew }) => isNew).map(({ id }) => id));
    expect(new Set(runs.map(({ id }) => id))).toEqual(stored);
    // What is stored last is what runs last.
    const lastOfEach = producers.map(({ messages }) => (messages.at(-1) as Stored).version);
    expect(runs.map(({ data }) => data)).toEqual(expect.arrayContaining([Math.max(...lastOfEach)]));
  });
});

describe("a worker that is killed while it runs an update", () => {
  it("has its update run again, and then the newest one, never both at once", async () => {
    const { queue } = openTokenQueue<string>(sluices);
    const at = [inject("redisUrl"), sluices.prefix()];
    const options = { dedupeId, dedupe: "again", key: "acme" } as const;
    const doomed = processes.start("workers/holding-worker.ts", [...at, "forever"]);
    const first = await queue.enqueue("old", options);
    await waitUntil(() => doomed.messages.includes("began old"), "it runs");

    const update = await queue.enqueue("1", options);
    doomed.signal("SIGKILL");
    await doomed.ended;
    const newest = await queue.enqueue("2", options);
    const other = processes.start("workers/holding-worker.ts", [...at, "0"]);
    await update.finished();

    expect([update.isNew, newest.isNew, newest.id]).toEqual([true, false, update.id]);
    expect(await first.state()).toBe("done");
    const told = other.messages.filter((message) => /^(began|ended)/.test(String(message)));
    expect(told).toEqual(["began old", "ended old", "began 2", "ended 2"]);
  });
});

interface Run {
  readonly id: string;
  readonly data: number;
  readonly running: number;
  readonly version: number;
}

interface Stored {
  readonly id: string;
  readonly isNew: boolean;
  readonly version: number;
}

function isRun(message: unknown): message is Run {
  return typeof message === "object";
}

describe("an update whose options cannot work", () => {
  it.each([
    [{ dedupe: "latest", dedupeId }, "dedupe"],
    [{ dedupe: "last" }, "dedupe"],
    [{ dedupe: "last", dedupeId, dedupeMs: 5 }, "dedupeMs"],
    [{ dedupe: "again", dedupeId, dedupeMs: 5 }, "dedupeMs"],
    [{ dedupe: "first", dedupeId, every: 1_000 }, "dedupe"],
  ])("is refused by the option's name: %j", async (options, option) => {
    const { queue } = openTokenQueue<string>(sluices);

    const reason = await rejectionOf(queue.enqueue("a", options as object));

    expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });
});
