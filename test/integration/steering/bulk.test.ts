import { describe, expect, inject, it } from "vitest";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const HOUR_MS = 3_600_000;

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

describe("drain of a key", () => {
  it("removes its queued and delayed jobs, and no others", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    const { promise: mayEnd, resolve: end } = deferred();
    const running = await queue.enqueue(0, { key: "acme" });
    const worker = sluice.worker(queue, () => mayEnd, { concurrency: 1 });
    await waitUntil(async () => (await running.state()) === "active", "a job of it runs");
    await queue.enqueueMany(numbers(1_500), { key: "acme" });
    await queue.enqueueMany(numbers(50), { key: "acme", delayMs: HOUR_MS });
    await queue.enqueueMany(numbers(40), { key: "beta" });
    await queue.enqueueMany(numbers(30));
    await queue.enqueueMany(numbers(20), { key: "beta", delayMs: HOUR_MS });
    await queue.enqueue(6, { key: "acme", every: HOUR_MS, dedupeId: "hourly" });
    const waited = await queue.enqueue(5, { key: "acme" });
    const waiting = rejectionOf(waited.finished());

    const drained = await queue.drain({ key: "acme" });
    const again = await queue.drain({ key: "acme" });
    const counts = await queue.counts();
    const ofKey = await queue.counts({ key: "acme" });
    const { jobs: planned } = await queue.jobs({ key: "acme", state: "waiting" });
    end();
    await worker.close();

    expect([drained, again]).toEqual([1_551, 0]);
    // Without its planned run, a schedule would have no other.
    expect(planned.map(({ data }) => data)).toEqual([6]);
    expect(counts).toEqual({ waiting: 71, active: 1, delayed: 20, done: 0, failed: 0 });
    expect(ofKey).toMatchObject({ waiting: 1, active: 1, delayed: 0 });
    expect(await waiting).toMatchObject({ code: "ERR_JOB_MISSING" });
  });
});

describe("a job that several remove at once", () => {
  it.each([
    ["waits", {}],
    ["has a key", { key: ["acme", "e1"] }],
    ["is delayed", { delayMs: HOUR_MS }],
  ])("is removed by one of them alone when it %s", async (_what, options) => {
    const { queue } = openQueue<number>(sluices);
    const { queue: other } = openQueue<number>(sluices);
    const jobs = await queue.enqueueMany(numbers(100), options);

    const removed: boolean[] = [];
    for (const [at, { id }] of jobs.entries()) {
      const first = queue.remove(id);
      // The other begins a few round trips later.
      for (let trip = 0; trip < at % 4; trip++) await other.job("none");
      removed.push(...(await Promise.all([first, other.remove(id)])));
    }

    expect(removed.filter(Boolean)).toHaveLength(100);
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });
});

describe("a dead letter whose purge got no answer", () => {
  it("is gone as a whole: its id is free, and not held by a job that is nowhere", async () => {
    const proxy = await startTcpProxy(Number(new URL(inject("redisUrl")).port));
    const { sluice, queue } = openQueue<number>(sluices);
    const far = openQueue<number>(sluices, {
      redis: `redis://127.0.0.1:${proxy.port}`,
      storeTimeoutMs: 500,
    });
    sluice.worker(queue, async ({ data }) => {
      if (data < 0) throw new Error("no");
    });
    // Redis knows the scripts from then on, so that one request removes the job.
    for (const id of ["other", "order-17"]) {
      await rejectionOf((await queue.enqueue(-1, { id, attempts: 1 })).finished());
      if (id === "other") await far.queue.purge(id);
    }

    proxy.set("lose replies");
    const reason = await rejectionOf(far.queue.purge("order-17"));
    proxy.set("pass");
    proxy.cut();
    await waitUntil(async () => (await queue.counts()).failed === 0, "Redis has removed it");
    const anew = await queue.enqueue(1, { id: "order-17" });
    await anew.finished();
    await proxy.close();

    expect(reason).toMatchObject({ code: "ERR_STORE_UNAVAILABLE" });
    expect(anew).toMatchObject({ isNew: true, data: 1 });
  });
});

describe("many jobs", () => {
  it("are removed by state, key and name", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    await queue.enqueueMany(numbers(20), { key: "acme", name: "mail" });
    await queue.enqueueMany(numbers(20), { key: "acme", name: "bill" });
    await queue.enqueueMany(numbers(20), { name: "mail", delayMs: HOUR_MS });
    await queue.enqueue(1, { every: HOUR_MS, dedupeId: "hourly" });

    const removed = [
      await queue.removeJobs({ name: "mail", key: "acme", limit: 5 }),
      await queue.removeJobs({ name: "mail", key: "acme" }),
      await queue.removeJobs({ state: "waiting", name: "mail" }),
      await queue.removeJobs({ state: "delayed", name: "mail" }),
    ];
    const left = await queue.counts();
    sluice.worker(queue, async ({ data }) => {
      if (data % 2 === 0) throw new Error("no");
    });
    await queue.enqueue(2, { key: "beta", attempts: 1, name: "mail" });
    await waitUntil(async () => {
      const { done, failed } = await queue.counts();
      return failed === 1 && done === 11;
    }, "the odd ones are done, and one has failed");
    const ended = [
      await queue.removeJobs({ state: "failed", name: "bill" }),
      await queue.removeJobs({ state: "failed", name: "mail" }),
      await queue.removeJobs({ state: "done" }),
    ];

    expect(removed).toEqual([5, 15, 0, 20]);
    expect(left.waiting + left.delayed).toBe(21);
    expect(ended).toEqual([0, 1, 11]);
    expect(await queue.counts()).toMatchObject({ done: 0, failed: 0 });
    expect(await queue.schedules()).toHaveLength(1);
  });

  it.each([{ dedupeId: "once" }, { dedupeId: "once", dedupeMs: HOUR_MS }])(
    "free their dedupeId when they are removed: %j",
    async (once) => {
      const { queue } = openQueue<number>(sluices);
      const first = await queue.enqueue(1, { key: "acme", ...once });

      await queue.removeJobs({ key: "acme" });
      const second = await queue.enqueue(2, { key: "acme", ...once });

      expect(second.id).not.toBe(first.id);
      expect(await queue.counts()).toMatchObject({ waiting: 1 });
    },
  );

  it("get another time, and the same call does nothing more", async () => {
    const { sluice, queue } = openQueue<number>(sluices);
    await queue.enqueueMany(numbers(250), { key: "acme" });
    await queue.enqueueMany(numbers(150), { delayMs: 2 * HOUR_MS });
    await queue.enqueueMany(numbers(30), { key: "beta" });
    const at = Date.now() + HOUR_MS;

    const moved = [
      await queue.rescheduleJobs({ key: "acme" }, { at }),
      await queue.rescheduleJobs({ key: "acme" }, { at }),
      await queue.rescheduleJobs({ state: "delayed" }, { at }),
    ];
    const put = await queue.counts();
    const forward = await queue.rescheduleJobs({ state: "delayed", limit: 100 }, { delayMs: 0 });
    const rest = await queue.rescheduleJobs({}, { delayMs: 0 });
    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await queue.counts()).done === 430, "all are done");

    expect(moved).toEqual([250, 0, 150]);
    expect(put).toMatchObject({ waiting: 30, delayed: 400 });
    expect(forward).toBe(100);
    expect(rest).toBeGreaterThanOrEqual(300);
  });

  it("are each removed, or done, while workers take them", async () => {
    const { sluice, queue } = openQueue<number>(sluices, {
      rate: "5000/s",
      keepDone: { count: 5_000 },
    });
    const started = new Set<number>();
    await queue.enqueueMany(numbers(2_000), { key: "acme" });
    sluice.worker(queue, async ({ data }) => void started.add(data));
    await waitUntil(() => started.size > 10, "workers are at work");

    const removed = await queue.removeJobs({ key: "acme" });
    await waitUntil(async () => {
      const { waiting, active } = await queue.counts();
      return waiting + active === 0;
    }, "no job is left");

    expect(removed + started.size).toBe(2_000);
    expect(removed).toBeGreaterThan(0);
    expect(await queue.counts()).toMatchObject({ done: started.size, delayed: 0, failed: 0 });
  });

  it.each([
    ["state", { state: "active" }],
    ["limit", { limit: 0 }],
    ["keys", { keys: "acme" }],
    ["options", undefined],
  ])("are refused for a bad %s: %j", async (option, filter) => {
    const { queue } = openQueue<number>(sluices);
    await queue.enqueue(1);

    const reasons = [
      await rejectionOf(queue.removeJobs(filter as never)),
      await rejectionOf(queue.rescheduleJobs(filter as never, { delayMs: 5 })),
    ];

    for (const reason of reasons)
      expect(reason).toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect(await queue.counts()).toMatchObject({ waiting: 1 });
  });
});
