import { describe, expect, it } from "vitest";
import { StoreUnavailableError } from "sluice";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { produceSteadily, workOn } from "../../support/jobs/paced-jobs.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { longestGapMs } from "../../support/draws/steadily.ts";
import { drawSteadily, extraSlots, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const HORIZON_CALLS = RATE / 10;
const CRASHES = 2;
const servers = ownRedisServers();

describe("after Redis is killed and restarts with its append-only file", () => {
  const args = ["--appendonly", "yes", "--appendfsync", "always"];

  it("no confirmed job is lost, and the bucket keeps its state", async () => {
    const redis = await servers.start(args);
    const replicas = Array.from({ length: 3 }, () => redis.open());
    const jobs = workOn(replicas, { rate: `${RATE}/s`, concurrency: 20 });
    const producer = produceSteadily(jobs.queue);

    for (let crash = 1; crash <= CRASHES; crash++) {
      const before = jobs.attempts.length;
      await waitUntil(() => jobs.attempts.length > before + 150, "jobs are done");
      await redis.crash();
    }
    const before = jobs.attempts.length;
    await waitUntil(() => jobs.attempts.length > before + 150, "jobs are done again");
    await producer.stop();
    // A job whose way into its lane was cut off waits for ten seconds, while there may be no other left.
    const gapMs = longestGapMs(jobs.attempts.map((attempt) => attempt.atMs));
    await jobs.untilEmpty();

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const lost = producer.stored.filter((number) => !jobs.reached().has(number));
    const figures = {
      recoveryMs: gapMs,
      extra: extraSlots(atMs, { perSecond: RATE }),
      lost: lost.length,
      again: jobs.attempts.length - jobs.reached().size,
      "jobs confirmed": producer.stored.length,
    };
    reportFigures("Redis is killed, its log written always, jobs", figures);
    expect(lost).toEqual([]);
    expect(producer.errors.filter((error) => !(error instanceof StoreUnavailableError))).toEqual(
      [],
    );
    expect(figures.extra).toBe(0);
    expect((await jobs.queue.counts()).failed).toBe(0);
  });
});

describe("after Redis is killed and restarts empty", () => {
  it.each([1, 20])(
    "a bucket with a burst of %i allows at most a horizon of extra calls",
    async (burst) => {
      const redis = await servers.start();
      const replicas = Array.from({ length: 3 }, () => redis.open());
      const buckets = replicas.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s`, burst }));
      const draws = drawSteadily(buckets, { callers: 20 });

      for (let crash = 1; crash <= CRASHES; crash++) {
        const before = draws.slots.length;
        await waitUntil(() => draws.slots.length > before + 150, "calls leave");
        await redis.crash();
      }
      const before = draws.slots.length;
      await waitUntil(() => draws.slots.length > before + 150, "calls leave again");
      await draws.stop();

      const atMs = timesOf(draws.slots);
      const figures = figuresOf(atMs, RATE, burst);
      reportFigures(`Redis is killed and has no log, a burst of ${burst}`, figures);
      expect(draws.errors).toEqual([]);
      expect(figures.extra).toBeLessThanOrEqual(HORIZON_CALLS);
    },
  );
});
