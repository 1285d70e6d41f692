import { Redis } from "ioredis";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import * as z from "zod";
import {
  InvalidOptionError,
  type BucketOptions,
  type Key,
  type Ordered,
  type Queue,
  type Sluice,
} from "sluice";
import { deferred } from "../../../support/async/deferred.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";
import { areAllDone, upTo, whileOthersWork } from "../../../support/jobs/open-lanes.ts";
import { realSluices } from "../../../support/setup/real-sluice.ts";

const sluices = realSluices();
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

interface Opened {
  readonly sluice: Sluice;
  readonly queue: Queue<number>;
}

function open(ordered: Ordered, policy: BucketOptions = { rate: "1000/s" }): Opened {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", policy);
  return { sluice, queue: sluice.queue<number>("jobs", { bucket, ordered }) };
}

interface Work {
  readonly policy?: BucketOptions;
  readonly workers?: number;
  readonly handle?: (job: number, attempt: number) => Promise<unknown>;
}

/** Workers, and the numbers of the jobs in the order in which they began; how many ran at most at once, of each key. */
function work(
  ordered: Ordered,
  { policy, workers: count = 2, handle = async () => {} }: Work = {},
) {
  const begun: number[] = [];
  const running = new Map<Key | undefined, number>();
  const most = new Map<Key | undefined, number>();
  const workers = Array.from({ length: count }, () => {
    const { sluice, queue } = open(ordered, policy);
    return sluice.worker(queue, async ({ key, data }, { attempt }) => {
      const now = (running.get(key) ?? 0) + 1;
      running.set(key, now);
      most.set(key, Math.max(most.get(key) ?? 0, now));
      begun.push(data);
      try {
        await handle(data, attempt);
      } finally {
        running.set(key, running.get(key)! - 1);
      }
    });
  });
  return { begun, most, workers };
}

/** The keys of the lanes in Redis that are to be gone when all jobs are done. */
async function lanesLeft(): Promise<string[]> {
  const own = `${sluices.prefix()}:{jobs}:lanes:`;
  const names = (await redis.keys(`${own}*`)).map((key) => key.slice(own.length));
  return names.filter((name) => !["state", "workers"].includes(name));
}

describe("an ordered queue", () => {
  it("runs many jobs of a key without a pause between them, and keeps no state of the key afterwards", async () => {
    const opened = open(true);
    const { queue } = opened;
    await queue.enqueueMany(upTo(300), { key: "acme" });
    const startedAtMs = performance.now();

    const { begun, most } = work(true);
    await waitUntil(() => areAllDone(opened), "all are done");
    await waitUntil(async () => (await lanesLeft()).length === 0, "nothing is left");

    console.log(
      `${Math.round(300_000 / (performance.now() - startedAtMs))} jobs of a key a second`,
    );
    expect(begun).toEqual(upTo(300));
    expect(most.get("acme")).toBe(1);
  });

  it("keeps the order of a key that has no room at times", async () => {
    const policy: BucketOptions = { rate: "1000/s", perKey: { rate: "4/s" } };
    const opened = open(true, policy);
    const { queue } = opened;
    await queue.enqueueMany(upTo(12), { key: "slow" });

    const { begun, most } = work(true, { policy });
    await waitUntil(() => areAllDone(opened), "all are done");

    expect(begun).toEqual(upTo(12));
    expect(most.get("slow")).toBe(1);
  });

  it("runs the jobs of a key in the order of the calls that were not awaited", async () => {
    const isRead = deferred();
    const schema = z.number().refine(async (data) => {
      if (data === 0) await isRead.promise;
      return data !== 2;
    }, "no");
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "1000/s" });
    const queue = sluice.queue("jobs", { bucket, ordered: true, schema });
    const key = "acme";

    const calls = [
      queue.enqueue(0, { key }),
      queue.enqueue(1, { key, id: "known" }),
      queue.enqueue(2, { key }),
      queue.enqueueMany([3, 4], { key }),
      queue.enqueue(5, { key, delayMs: 1 }),
      queue.enqueueMany([6], () => ({ key, id: "also known" })),
    ];
    const ended = Promise.allSettled(calls);
    // A slow call delays only the calls for its key.
    await queue.enqueue(7, { key: "other" });
    isRead.resolve();
    const results = await ended;

    expect(results.flatMap(({ status }, index) => (status === "rejected" ? [index] : []))).toEqual([
      2,
    ]);
    const { begun } = work(true);
    await waitUntil(() => begun.length === 7, "all have run");
    expect(begun.filter((data) => data < 5 || data === 6)).toEqual([0, 1, 3, 4, 6]);
  });

  it("orders the keys that a function selects, and needs no key for other jobs", async () => {
    const ordered: Ordered = (key) => key === "acme";
    const opened = open(ordered);
    const { queue } = opened;
    await queue.enqueueMany(upTo(30), { key: "acme" });
    await queue.enqueueMany(upTo(30), { key: "other" });
    await queue.enqueueMany(upTo(5));

    const { most } = work(ordered, { handle: () => pause(20) });
    await waitUntil(() => areAllDone(opened), "all are done");

    expect(most.get("acme")).toBe(1);
    expect(most.get("other")).toBeGreaterThan(1);
  });

  it("keeps a key in order whose job got new data without the key", async () => {
    const ordered: Ordered = (key) => key === "acme";
    const opened = open(ordered);
    const { queue } = opened;
    await queue.enqueueMany(upTo(20), { key: "acme" });
    const job = await queue.enqueue(100, { key: "acme", dedupeId: "one", delayMs: 3_600_000 });

    await queue.enqueue(20, { dedupeId: "one", dedupe: "last" });
    await job.runNow();
    const { most } = work(ordered, { handle: () => pause(20) });
    await waitUntil(() => areAllDone(opened), "all are done");

    expect(most.get("acme")).toBe(1);
  });

  it("frees a key immediately when its dead letter was removed among others", async () => {
    const held = { stuck: "hold" } as const;
    const { queue } = open(held);
    await queue.enqueueMany([1, 2], { key: "acme", attempts: 1 });
    const { workers } = work(held, { workers: 1, handle: () => Promise.reject(new Error("no")) });
    await waitUntil(async () => (await queue.counts()).failed === 1, "one has failed");
    await workers[0]!.close();
    const heads = `${sluices.prefix()}:{jobs}:lanes:heads`;
    // As after a look at it by a worker.
    await redis.zadd(heads, Date.now() + 3_600_000, "acme");

    await queue.removeJobs({ state: "failed" });

    expect(Number(await redis.zscore(heads, "acme"))).toBeLessThanOrEqual(Date.now() + 1);
  });

  it("continues immediately in another process when a worker ends its last job as it closes", async () => {
    const opened = open(true);
    const { queue } = opened;
    const first = deferred();
    const last = work(true, { workers: 1, handle: () => first.promise });
    await queue.enqueueMany([0, 1], { key: "acme" });
    await waitUntil(() => last.begun.length === 1, "the first runs");
    const other = work(true, { workers: 1 });
    await queue.enqueue(2, { key: "other" });
    await waitUntil(() => last.begun.length + other.begun.length === 2, "all are at work");

    const closing = last.workers[0]!.close();
    await whileOthersWork(opened, 5);
    first.resolve();
    await closing;
    await whileOthersWork(opened, 40);

    // By itself, a worker looks again after five seconds.
    expect(other.begun).toContain(1);
  });

  it("runs the jobs of a schedule in their turn", async () => {
    const opened = open(true);
    const { queue } = opened;
    const first = deferred();
    const { begun, most } = work(true, { handle: (job) => (job === 0 ? first.promise : pause(1)) });
    await queue.enqueue(0, { key: "acme" });
    await waitUntil(() => begun.length === 1, "the first runs");
    await queue.enqueue(1, { key: "acme", every: 100, dedupeId: "often" });
    await queue.enqueue(2, { key: "other" });
    await waitUntil(() => begun.includes(2), "another key goes on");
    first.resolve();
    await waitUntil(() => begun.filter((job) => job === 1).length > 2, "runs have begun");
    await queue.unschedule("often");

    expect(most.get("acme")).toBe(1);
    expect(begun.slice(0, 2)).toEqual([0, 2]);
  });

  it("computes counts, eta and forecast while a key waits for its first job", async () => {
    const opened = open(true);
    const { queue } = opened;
    const first = deferred();
    const { begun } = work(true, { handle: () => first.promise });
    await queue.enqueue(0, { key: "acme" });
    await queue.enqueue(0, { key: "lone" });
    await waitUntil(() => begun.length === 2, "they run");
    const next = await queue.enqueue(1, { key: "acme" });

    expect(await queue.counts()).toMatchObject({ waiting: 1, active: 2 });
    expect(await next.state()).toBe("waiting");
    expect((await queue.forecast()).waiting).toBe(1);
    expect(await next.eta()).toBeDefined();
    first.resolve();
    await waitUntil(() => areAllDone(opened), "all are done");
  });

  it("blocks no key for a cancelled job, nor for an expired job in its turn", async () => {
    const ordered: Ordered = { stuck: "hold" };
    const opened = open(ordered);
    const { queue } = opened;
    const first = deferred();
    const { begun } = work(ordered, { handle: (job) => (job === 0 ? first.promise : pause(1)) });
    const running = await queue.enqueue(0, { key: "acme" });
    await waitUntil(() => begun.length === 1, "it runs");
    await queue.enqueue(1, { key: "acme" });
    const late = await queue.enqueue(2, { key: "acme", maxWaitMs: 1 });
    await queue.enqueue(3, { key: "acme" });

    await running.cancel();
    first.resolve();
    await waitUntil(async () => (await late.state()) === "failed", "it has expired");
    await queue.enqueue(4, { key: "other" });
    await waitUntil(() => begun.includes(4), "another key goes on");
    expect(begun).toEqual([0, 1, 4]);

    await queue.purge(late.id);
    await waitUntil(() => begun.includes(3), "the next begins");
  });

  it("refuses impossible options", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("downstream", { rate: "1000/s" });
    const opened = open(true);
    const { queue } = opened;
    const refused = (ordered: unknown) => () =>
      sluice.queue(`bad-${Math.random()}`, { bucket, ordered: ordered as Ordered });

    expect(await rejectionOf(queue.enqueue(0))).toBeInstanceOf(InvalidOptionError);
    expect(refused("yes")).toThrow(/ordered.*give true, a function of the key, or/);
    expect(refused({ stuk: "hold" })).toThrow(/did you mean stuck/);
    expect(refused({ stuck: "stop" })).toThrow(/give "skip" or "hold"/);
    expect(refused({ keys: ["acme"] })).toThrow(/give a function of the key/);
    const odd = sluice.queue<number>("odd", { bucket, ordered: (() => "yes") as never });
    expect(String(await rejectionOf(odd.enqueue(0, { key: "a" })))).toMatch(/it returned "yes"/);
    expect((await queue.counts()).waiting).toBe(0);
  });
});
