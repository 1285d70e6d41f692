import { describe, expect, inject, it } from "vitest";
import { RetryAfter, tokenBucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children, type Child } from "../../support/children/child.ts";
import { EVERY_MS, openSchedule } from "../../support/jobs/open-schedule.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const processes = children();
const sluices = realSluices();

/** The runs that a process has begun: their ids, and the attempts. */
function begunBy(child: Child): string[] {
  return child.messages.map(String).filter((message) => message !== "ready");
}

async function startWorker(handlerMs: number): Promise<Child> {
  const args = [inject("redisUrl"), sluices.prefix(), String(handlerMs)];
  const child = processes.start("workers/schedule-worker.ts", args);
  await waitUntil(() => child.messages.includes("ready"), "the worker is ready");
  return child;
}

describe("a run of a schedule that fails", () => {
  it("stays pending until its next attempt begins, and the times that pass are missed", async () => {
    const { sluice, queue, declare, mostWaitingUntilMissed } = await openSchedule(sluices);
    const ran: string[] = [];
    sluice.worker(queue, async ({ id }, { attempt }) => {
      ran.push(`${id} ${attempt}`);
      throw new RetryAfter(3_000);
    });
    const { id } = await declare({ attempts: 2 });
    await waitUntil(async () => (await queue.job(id))?.attemptsMade === 1, "it is tried again");
    const isDelayed = async () => (await queue.schedules())[0]!.nextAtMs > Date.now() + 1_000;
    await waitUntil(isDelayed, "it waits");

    const most = await mostWaitingUntilMissed(5);
    await waitUntil(() => ran.length >= 3, "the next one runs");

    expect(most).toBe(1);
    expect(ran.slice(0, 2)).toEqual([`${id} 1`, `${id} 2`]);
    expect(ran[2]).toMatch(/ 1$/);
    expect((await queue.failed()).map((letter) => letter.id)).toContain(id);
  });

  it("is a dead letter that the schedule reports, and a second one after a replay", async () => {
    const { sluice, queue, declare, schedule } = await openSchedule(sluices);
    let fails = true;
    const ran: string[] = [];
    sluice.worker(queue, async ({ id }) => {
      ran.push(id);
      if (fails) throw new Error("downstream says no");
    });
    const { id } = await declare({ every: 3_600_000, attempts: 1 });
    await waitUntil(async () => (await schedule()).last?.outcome !== undefined, "it has failed");
    const failed = await schedule();

    fails = false;
    await queue.unschedule("sync");
    await queue.replay(id);
    await (await queue.job(id))!.finished();

    expect(failed.last).toMatchObject({ id, outcome: "failed" });
    expect(failed.last!.endedAtMs).toBeGreaterThanOrEqual(failed.last!.startedAtMs);
    expect(ran).toEqual([id, id]);
  });

  it("is not tried again once its schedule was ended: not one that waits for it", async () => {
    const { sluice, queue, declare, waiting } = await openSchedule(sluices);
    let attempts = 0;
    sluice.worker(queue, async () => {
      attempts += 1;
      throw new RetryAfter(400);
    });
    const run = await declare({ every: 3_600_000 });
    await waitUntil(async () => (await run.state()) === "delayed", "it waits for its retry");

    await queue.unschedule("sync");
    await (await queue.enqueue("other", { delayMs: 800, attempts: 1 })).finished().catch(() => {});

    expect(attempts).toBe(2);
    expect(await waiting()).toBe(0);
    expect(await run.state()).toBeUndefined();
  });

  it("is not retried once its schedule was ended, even if it ran at that time", async () => {
    const { sluice, queue, declare, waiting } = await openSchedule(sluices);
    let [attempts, isEnded] = [0, false];
    sluice.worker(queue, async () => {
      attempts += 1;
      await waitUntil(() => isEnded, "its schedule is ended");
      throw new Error("downstream says no");
    });
    const run = await declare({ every: 3_600_000, backoff: { baseMs: 1, maxMs: 1 } });
    await waitUntil(() => attempts === 1, "it runs");

    const failing = rejectionOf(run.finished());
    await queue.unschedule("sync");
    isEnded = true;

    expect(await failing).toMatchObject({ code: "ERR_JOB_FAILED" });
    expect(await waiting()).toBe(0);
    expect((await queue.failed())[0]).toMatchObject({ id: run.id, reason: "downstream says no" });
    expect(attempts).toBe(1);
  });

  it("without a beginning, each time, keeps its schedule going", async () => {
    const sluice = sluices.open();
    const burstOf = (capacity: number) => ({
      limits: [tokenBucket({ capacity, refill: "100/s" })],
    });
    const bucket = sluice.bucket("downstream", burstOf(100));
    const queue = sluice.queue<string>("jobs", { bucket });
    await queue.enqueue("sync", { every: EVERY_MS, dedupeId: "sync", cost: 50 });
    await bucket.configure(burstOf(10));

    sluice.worker(queue, async () => {});
    await waitUntil(async () => (await queue.counts()).failed >= 2, "two have failed");

    expect((await queue.failed())[0]!.reason).toMatch(/^Impossible/);
    expect(await queue.schedules()).toHaveLength(1);
  });
});

describe("a run of a schedule that is cancelled in the hands of a worker", () => {
  it("does not begin, and its schedule goes on", async () => {
    const { sluice, queue, declare } = await openSchedule(sluices);
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    await bucket.pause();
    const started: string[] = [];
    sluice.worker(queue, async ({ id }) => void started.push(id));
    const run = await declare();
    await waitUntil(async () => (await run.state()) === "active", "the worker holds it");

    const isCancelled = await run.cancel();
    await waitUntil(async () => (await run.state()) === undefined, "it is gone");
    await bucket.resume();
    await waitUntil(() => started.length >= 2, "the next ones run");

    expect(isCancelled).toBe(true);
    expect(started).not.toContain(run.id);
  });
});

describe("a run of a schedule whose worker process is killed", () => {
  it("is done again, and no other waits beside it", async () => {
    const { queue, declare, schedule, waiting } = await openSchedule(sluices);
    const dying = await startWorker(60_000);
    await declare({ every: 2_000, overlap: false });
    await waitUntil(() => begunBy(dying).length > 0, "it runs");
    const { id } = (await schedule()).last!;
    dying.signal("SIGKILL");
    await dying.ended;

    const next = await startWorker(0);
    let most = 0;
    await waitUntil(async () => {
      most = Math.max(most, await waiting());
      return begunBy(next).length >= 3;
    }, "it goes on");

    expect(begunBy(next)[0]).toBe(`${id} 1`);
    expect(new Set(begunBy(next)).size).toBe(begunBy(next).length);
    // The one that was lost, until that is found out, and the next one.
    expect(most).toBeLessThanOrEqual(2);
    expect((await queue.counts()).failed).toBe(0);
  });

  it("while it waited for a slot is kept, and the schedule goes on", async () => {
    const { sluice, declare, queue } = await openSchedule(sluices);
    const bucket = sluice.bucket("downstream", { rate: "500/s" });
    await bucket.pause();
    const run = await declare();
    const dying = await startWorker(0);
    await waitUntil(async () => (await run.state()) === "active", "the worker holds it");
    dying.signal("SIGKILL");
    await dying.ended;

    await bucket.resume();
    const next = await startWorker(0);
    await waitUntil(() => begunBy(next).length >= 3, "it goes on");

    expect(begunBy(dying)).toEqual([]);
    expect(begunBy(next)[0]).toBe(`${run.id} 1`);
    expect((await queue.counts()).failed).toBe(0);
  });

  it("is done by each of several processes once", async () => {
    const { declare, schedule, waiting } = await openSchedule(sluices);
    const workers = await Promise.all([startWorker(0), startWorker(0), startWorker(0)]);
    const all = (): string[] => workers.flatMap(begunBy);
    await declare();

    let most = 0;
    await waitUntil(async () => {
      most = Math.max(most, await waiting());
      return all().length >= 20;
    }, "it has run twenty times");

    expect(new Set(all()).size).toBe(all().length);
    // One whose end is on its way to Redis, and the next one; a slow machine may have one more at its end.
    expect(most).toBeLessThanOrEqual(3);
    expect((await schedule()).missed).toBeLessThan(20);
  });
});
