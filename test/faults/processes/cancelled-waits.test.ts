import { describe, expect, it } from "vitest";
import type { Slot } from "sluice";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { workOn } from "../../support/jobs/paced-jobs.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { extraSlots, timesOf, usedShare } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** A slot may be used late by half an interval, 50 ms: few stalls of a busy machine take longer. */
const RATE = 10;
const CALLS = 120;
const servers = ownRedisServers();

/** Were the slots of those that left lost, it would be two thirds at most. */
const LEAST_USED = 0.75;

const isDoomed = (number: number): boolean => number % 2 === 0;

describe("cancelled calls, half of the pending ones,", () => {
  it("free their slots for the others", async () => {
    const redis = await servers.start();
    const replicas = Array.from({ length: 3 }, () => redis.open());
    const slots: Slot[] = [];
    const cancels: AbortController[] = [];
    let cancelled = 0;
    const calls = replicas.flatMap((sluice) => {
      const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
      return Array.from({ length: CALLS / 3 }, async (_, number) => {
        const cancel = new AbortController();
        if (isDoomed(number)) cancels.push(cancel);
        await bucket.draw({ signal: cancel.signal }).then(
          (slot) => slots.push(slot),
          () => (cancelled += 1),
        );
      });
    });

    // A few after each slot, all along the way.
    for (let reached = 5; cancels.length > 0; reached += 5) {
      await waitUntil(() => slots.length >= reached, "calls leave");
      for (const cancel of cancels.splice(0, 4)) cancel.abort();
    }
    await Promise.all(calls);

    const atMs = timesOf(slots);
    const extra = extraSlots(atMs, { perSecond: RATE });
    const used = usedShare(atMs, RATE);
    reportFigures("half of the waiting calls are cancelled", { extra, used, cancelled });
    expect(cancelled).toBeGreaterThan(CALLS / 4);
    expect(slots.length + cancelled).toBe(CALLS);
    expect(extra).toBe(0);
    expect(used).toBeGreaterThanOrEqual(LEAST_USED);
  });
});

describe("removed jobs, half of the pending ones,", () => {
  it("free their slots for the others", async () => {
    const redis = await servers.start();
    const jobs = workOn([redis.open(), redis.open()], { rate: `${RATE}/s`, lockMs: 30_000 });
    const numbers = Array.from({ length: CALLS }, (_, index) => index);
    const all = await jobs.queue.enqueueMany(numbers, (number) => ({ key: `k${number % 7}` }));
    await waitUntil(() => jobs.attempts.length >= 10, "jobs are done");

    let removed = 0;
    for (const { id, data } of all.slice(CALLS / 6)) {
      if (!isDoomed(data)) continue;
      const job = await jobs.queue.job(id);
      // One that a worker has already is done like the others, and one that is done can be removed too.
      const wasRemoved = await job!.remove();
      if (wasRemoved && !jobs.attempts.some(({ number }) => number === data)) removed += 1;
    }
    await jobs.untilEmpty();

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const extra = extraSlots(atMs, { perSecond: RATE });
    const used = usedShare(atMs, RATE);
    reportFigures("half of the waiting jobs are removed", { extra, used, removed });
    expect(jobs.attempts).toHaveLength(CALLS - removed);
    expect(extra).toBe(0);
    expect(used).toBeGreaterThanOrEqual(LEAST_USED);
  });
});
