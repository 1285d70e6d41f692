import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { InvalidOptionError, RetryAfter, type EnqueueOptions } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = ownRedisServers();
const processes = scriptProcesses();
const SILENT = { warn: () => {}, error: () => {} };
const LONG_MS = 3_600_000;

function debounced(waitMs: number, more: Partial<EnqueueOptions> = {}, maxDelayMs?: number) {
  const dedupe = { mode: "debounce", waitMs, maxDelayMs } as const;
  return { dedupeId: "document 1", dedupe, ...more } as EnqueueOptions;
}

const KEYS = [["without a key", {}] as const, ["with a key", { key: ["acme", "a"] }] as const];

describe.each(KEYS)("a debounced job, %s,", (_what, key) => {
  it("runs once after the last job of a burst by several producers, with the newest data", async () => {
    const producers = [1, 2, 3].map(() => openQueue<number>(sluices).queue);
    const { sluice, queue } = openQueue<number>(sluices);
    const runs: { data: number; atMs: number }[] = [];
    sluice.worker(queue, ({ data }) => void runs.push({ data, atMs: Date.now() }));
    const ids = new Set<string>();
    let lastAtMs = 0;
    for (let data = 1; data <= 30; data++) {
      lastAtMs = Date.now();
      ids.add((await producers[data % 3]!.enqueue(data, debounced(400, key))).id);
    }
    await waitUntil(() => runs.length > 0, "it has run");
    await waitUntil(async () => (await queue.counts()).done === ids.size, "all are done");

    expect(ids.size).toBe(1);
    expect(runs).toHaveLength(1);
    expect(runs[0]!.data).toBe(30);
    expect(runs[0]!.atMs - lastAtMs).toBeGreaterThanOrEqual(400 - 1);
  });

  it("is due at the latest maxDelayMs after the first job, however long the burst is", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const options = debounced(1_500, key, 1_800);
    const first = await queue.enqueue(0, options);
    const runs: number[] = [];
    sluice.worker(queue, ({ data }) => void runs.push(data));
    const dueAtMs: number[] = [];
    const ids = new Set([first.id]);
    let data = 0;
    // A producer that never stops, until the job runs.
    while (runs.length === 0) {
      const job = await queue.enqueue((data += 1), options);
      if (job.id === first.id) dueAtMs.push(job.dueAtMs);
      ids.add(job.id);
    }

    // The clock of Redis is known to a few ms.
    expect(dueAtMs.at(-1)! - first.enqueuedAtMs).toBeGreaterThan(1_800 - 50);
    expect(Math.max(...dueAtMs) - first.enqueuedAtMs).toBeLessThan(1_800 + 50);
    expect(runs[0]).toBeGreaterThan(0);
    // The last jobs may belong to the next burst.
    expect(ids.size).toBeLessThanOrEqual(2);
  });

  it("runs at once if the burst lasts longer than a shorter maxDelayMs", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    await queue.enqueue(0, debounced(LONG_MS, key));
    await queue.enqueue(1, debounced(1, key, 1));
    const ran = new Promise((resolve) => {
      sluice.worker(queue, ({ data }) => resolve(data));
    });

    expect(await ran).toBe(1);
  });

  it("keeps its turn once it is due, and gets the newest data", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    await queue.pause();
    const runs: number[] = [];
    sluice.worker(queue, ({ data }) => void runs.push(data));
    const first = await queue.enqueue(1, debounced(50, key));
    await waitUntil(async () => (await first.state()) === "waiting", "it is due");

    const second = await queue.enqueue(2, debounced(LONG_MS, key));
    expect(await second.state()).toBe("waiting");
    await queue.resume();
    await waitUntil(() => runs.length > 0, "it has run");

    expect(second.id).toBe(first.id);
    expect(runs).toEqual([2]);
  });

  it("runs once more, after the running one and its own burst", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const held = deferred();
    const runs: string[] = [];
    sluice.worker(queue, async ({ data }) => {
      runs.push(data);
      if (data === "old") await held.promise;
    });
    await queue.enqueue("old", debounced(1, key));
    await waitUntil(() => runs.length === 1, "the first one runs");

    const next = await queue.enqueue("1", debounced(100, key));
    const again = await queue.enqueue("2", debounced(100, key));
    await waitUntil(async () => (await next.explain()) !== undefined, "it waits");
    held.resolve();
    await again.finished();

    expect(again.id).toBe(next.id);
    expect(runs).toEqual(["old", "2"]);
  });

  it("keeps the time of its next attempt, and gets the newest data", async () => {
    const { sluice, queue } = openQueue<string>(sluices, { logger: SILENT });
    const runs: string[] = [];
    sluice.worker(queue, ({ data }, { attempt }) => {
      runs.push(data);
      if (attempt === 1) throw new RetryAfter(700);
    });
    const job = await queue.enqueue("old", debounced(1, key));
    await waitUntil(async () => runs.length === 1 && (await job.state()) === "delayed", "it waits");

    await queue.enqueue("new", debounced(LONG_MS, key));
    await job.finished();

    expect(runs).toEqual(["old", "new"]);
  });

  it("gets its whole maxWaitMs after its burst", async () => {
    const { queue } = openQueue<string>(sluices);
    await queue.enqueue("a", debounced(1_000, { ...key, maxWaitMs: 200 }));

    const job = await queue.enqueue("b", debounced(60_000, { ...key, maxWaitMs: 300 }));

    expect(job.startByMs).toBe(job.dueAtMs + 300);
    expect(job.dueAtMs - job.enqueuedAtMs).toBeGreaterThan(59_000);
    expect(await (await queue.job(job.id))?.state()).toBe("delayed");
  });
});

it("a burst counts as one job of its key for maxBacklog", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("b", { rate: "100/s" });
  const queue = sluice.queue<string>("jobs", { bucket, maxBacklog: { perKey: 1 } });
  for (const data of ["1", "2", "3"])
    await queue.enqueue(data, debounced(LONG_MS, { key: "acme" }));

  const error = await rejectionOf(queue.enqueue("other", { key: "acme" }));

  expect(error).toMatchObject({ code: "ERR_QUEUE_FULL", waiting: 1, limit: 1 });
});

it("a debounced job of a large tenant takes its turn with the jobs of a small one", async () => {
  const { sluice, queue } = openQueue<string>(sluices, { rate: "50/s" });
  await queue.enqueueMany([...Array(40).keys()].map(String), { key: "large" });
  const last = await queue.enqueue("burst", debounced(1, { key: "small" }));
  const runs: string[] = [];
  sluice.worker(queue, ({ data }) => void runs.push(data), { concurrency: 1 });

  await last.finished();

  expect(runs.indexOf("burst")).toBeLessThan(10);
});

describe("cancelRunning", () => {
  it.each([
    ["again", { dedupe: "again" }],
    ["debounce", { dedupe: { mode: "debounce", waitMs: 50 } }],
  ] as const)(
    "aborts the running job, and runs the newest one after it, with %s",
    async (_how, how) => {
      const { sluice, queue } = openQueue<string>(sluices, { logger: SILENT });
      const notes: string[] = [];
      sluice.worker(queue, async ({ data }, { signal }) => {
        notes.push(`begin ${data}`);
        if (data === "old") {
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          notes.push(`aborted: ${(signal.reason as Error).name}`);
        }
      });
      const options = { dedupeId: "report", cancelRunning: true, ...how };
      const old = await queue.enqueue("old", options);
      await waitUntil(() => notes.length === 1, "it runs");

      await queue.enqueue("newer", { ...options, cancelRunning: false });
      const newest = await queue.enqueue("newest", options);
      await newest.finished();

      expect(notes).toEqual(["begin old", "aborted: JobCancelledError", "begin newest"]);
      expect(await rejectionOf(old.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
      expect(await queue.counts()).toMatchObject({ done: 1, failed: 1, waiting: 0, delayed: 0 });
    },
  );

  it.each([{}, { key: "acme" }])(
    "starts the newest data at once if the job waits for its retry, with %j",
    async (own) => {
      const { sluice, queue } = openQueue<string>(sluices, { logger: SILENT });
      const attempts: unknown[] = [];
      sluice.worker(queue, ({ data }, { attempt }) => {
        attempts.push([data, attempt]);
        if (data !== "newest") throw new RetryAfter(600_000);
      });
      const again = { ...own, dedupeId: "report", dedupe: "again" } as const;
      const old = await queue.enqueue("old", again);
      await waitUntil(async () => (await queue.counts()).delayed === 1, "it waits for its retry");

      await queue.enqueue("newer", again);
      const stillWaits = (await queue.counts()).delayed;
      const newest = await queue.enqueue("newest", { ...again, cancelRunning: true });
      await newest.finished();

      expect(stillWaits).toBe(1);
      expect(newest).toMatchObject({ id: old.id, isNew: false });
      expect(attempts).toEqual([
        ["old", 1],
        ["newest", 2],
      ]);
    },
  );

  it("keeps a pending job, which gets the newest data", async () => {
    const { sluice, queue } = openQueue<string>(sluices);
    const options = { dedupeId: "report", dedupe: "again", cancelRunning: true } as const;
    await queue.enqueue("old", options);
    const job = await queue.enqueue("new", options);
    const runs: string[] = [];
    sluice.worker(queue, ({ data }) => void runs.push(data));

    await job.finished();

    expect(runs).toEqual(["new"]);
    expect((await queue.counts()).failed).toBe(0);
  });
});

describe("debounced jobs, with faults,", () => {
  const MODULE = `
export default (sluice) => {
  const queue = sluice.queue("jobs", { bucket: sluice.bucket("downstream", { rate: "1000/s" }) });
  sluice.worker(queue, async ({ data }) => {
    console.log("ran " + data);
    if (data === "held") await new Promise(() => {});
  }, { lockMs: 1000 });
};`;

  it("run once more after a killed worker, with the newest data", async () => {
    const folder = await mkdtemp(join(tmpdir(), "sluice-debounced-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const module = join(folder, "w.mjs");
    await writeFile(module, MODULE);
    const { queue } = openQueue<string>(sluices);
    const start = () =>
      processes.start("src/cli/main.ts", {
        args: ["--prefix", sluices.prefix(), "worker", module],
        env: { REDIS_URL: inject("redisUrl") },
      });
    const killed = start();
    const old = await queue.enqueue("held", debounced(1));
    await waitUntil(() => killed.stdout.includes("ran held"), "it runs");
    for (const data of ["1", "2", "3"]) await queue.enqueue(data, debounced(200));
    killed.signal("SIGKILL");
    await killed.ended;

    const worker = start();
    await waitUntil(() => worker.stdout.includes("ran held"), "the first one runs again");
    await queue.cancel(old.id);
    worker.signal("SIGKILL");
    await worker.ended;
    const last = start();
    const next = (await queue.jobOf("document 1"))!;
    await next.finished();

    expect(next.data).toBe("3");
    expect(`${worker.stdout}${last.stdout}`.match(/ran \d/g)).toEqual(["ran 3"]);
  });

  it("survive a restart of Redis in the middle of their burst", async () => {
    const redis = await servers.start(["--appendonly", "yes", "--appendfsync", "always"]);
    const sluice = redis.open();
    const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const first = await queue.enqueue("1", debounced(2_000));
    await redis.crash();

    const second = await queue.enqueue("2", debounced(200));
    const runs: string[] = [];
    sluice.worker(queue, ({ data }) => void runs.push(data));
    await second.finished();

    expect(second).toMatchObject({ id: first.id, isNew: false });
    expect(runs).toEqual(["2"]);
  });
});

describe("bad options of a debounced job", () => {
  it.each<[object, string, string]>([
    [{ dedupe: { mode: "debounce", waitMs: 5 } }, "dedupe", "set dedupeId, too"],
    [{ dedupeId: "x", dedupe: { mode: "debounce" } }, "dedupe.waitMs", "give a whole number"],
    [{ dedupeId: "x", dedupe: { waitMs: 5 } }, "dedupe.mode", 'give "debounce"'],
    [{ dedupeId: "x", dedupe: { mode: "last", waitMs: 5 } }, "dedupe.mode", 'give "debounce"'],
    [{ dedupeId: "x", dedupe: "debounce" }, "dedupe", 'or { mode: "debounce", waitMs: 1_000 }'],
    [{ dedupeId: "x", dedupe: { mode: "debounce", waitMs: 0 } }, "dedupe.waitMs", "whole number"],
    [
      { dedupeId: "x", dedupe: { mode: "debounce", waitMs: 5, maxMs: 9 } },
      "dedupe.maxMs",
      "give mode, waitMs or maxDelayMs",
    ],
    [
      { dedupeId: "x", dedupe: { mode: "debounce", waitMs: 5, maxDelayMs: 4 } },
      "dedupe.maxDelayMs",
      "give at least waitMs",
    ],
    [{ ...debounced(5), delayMs: 5 }, "delayMs", "due after waitMs"],
    [{ ...debounced(5), at: new Date() }, "at", "due after waitMs"],
    [{ ...debounced(5), dedupeMs: 5 }, "dedupeMs", "remove dedupeMs"],
    [{ ...debounced(5), every: 500 }, "dedupe", "leave it out"],
    [{ dedupeId: "x", cancelRunning: true }, "cancelRunning", 'set dedupe: "again"'],
    [{ dedupeId: "x", dedupe: "last", cancelRunning: true }, "cancelRunning", 'dedupe: "again"'],
    [{ ...debounced(5), cancelRunning: 1 }, "cancelRunning", "give true or false"],
  ])("are refused by name: %j", async (options, option, remedy) => {
    const { queue } = openQueue<string>(sluices);

    const error = await rejectionOf(queue.enqueue("a", options as EnqueueOptions));

    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option, message: expect.stringContaining(remedy) });
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });
});
