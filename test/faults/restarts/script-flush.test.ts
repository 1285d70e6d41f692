import { describe, expect, it } from "vitest";
import type { Redis } from "ioredis";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { produceSteadily, workOn } from "../../support/jobs/paced-jobs.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import {
  drawSteadily,
  extraSlots,
  figuresOf,
  timesOf,
  usedShare,
} from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startProxy } from "../../support/redis/for-one-test.ts";
import { openHooks } from "../../support/webhooks/open-hooks.ts";

const RATE = 200;
const servers = ownRedisServers();

/** Strikes again as soon as it has struck, until it is stopped. */
function keepStriking(strike: () => Promise<unknown>): { stop: () => Promise<number> } {
  let isStopped = false;
  const running = (async (): Promise<number> => {
    let strikes = 0;
    for (; !isStopped; strikes++) await strike();
    return strikes;
  })();
  return {
    stop() {
      isStopped = true;
      return running;
    },
  };
}

/** Each takes away what the other may have left. */
const flush = (operator: Redis) =>
  keepStriking(async () => {
    await operator.script("FLUSH");
    await operator.function("FLUSH");
  });

describe("scripts that Redis loses repeatedly", () => {
  it("make no call fail, and the cap holds", async () => {
    const redis = await servers.start();
    const replicas = Array.from({ length: 3 }, () => redis.open());
    const buckets = replicas.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s` }));
    const flushing = flush(redis.operator);
    const draws = drawSteadily(buckets, { callers: 20 });
    await waitUntil(() => draws.slots.length >= 3 * RATE, "calls leave");
    await draws.stop();
    const strikes = await flushing.stop();

    const atMs = timesOf(draws.slots);
    const figures = figuresOf(atMs, RATE);
    reportFigures("scripts are forgotten in a loop, calls", {
      ...figures,
      "times forgotten": strikes,
    });
    expect(draws.errors).toEqual([]);
    expect(figures.extra).toBe(0);
  });

  it("make no enqueue fail, and use no extra attempt of a job", async () => {
    const redis = await servers.start();
    const replicas = Array.from({ length: 3 }, () => redis.open());
    const jobs = workOn(replicas, { rate: `${RATE}/s`, lockMs: 30_000 });
    const flushing = flush(redis.operator);
    const producer = produceSteadily(jobs.queue);
    await waitUntil(() => producer.stored.length >= 2 * RATE, "jobs are stored");
    await producer.stop();
    await jobs.untilEmpty();
    const strikes = await flushing.stop();

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const extra = extraSlots(atMs, { perSecond: RATE });
    reportFigures("scripts are forgotten in a loop, jobs", {
      extra,
      used: usedShare(atMs, RATE),
      lost: producer.stored.length - jobs.reached().size,
      again: jobs.attempts.length - jobs.reached().size,
      "times forgotten": strikes,
    });
    expect(producer.errors).toEqual([]);
    expect(jobs.attempts).toHaveLength(producer.stored.length);
    expect(jobs.reached().size).toBe(producer.stored.length);
    expect((await jobs.queue.counts()).failed).toBe(0);
    expect(extra).toBe(0);
  });

  it("leave the messages of an ordered endpoint in the order in which they were sent", async () => {
    const redis = await servers.start();
    const proxy = await startProxy(redis);
    proxy.set("delay", 30);
    const url = `redis://127.0.0.1:${proxy.port}`;
    const hooks = openHooks({ open: (options) => redis.open({ ...options, redis: url }) });
    const target = { tenant: "acme", id: "a" };

    for (let restarts = 0; restarts < 2; restarts++) {
      if (restarts > 0) await redis.crash();
      await hooks.endpoints.put({ ...target, url: "http://127.0.0.1:1/", ordered: true });
      const sends: Promise<{ readonly id: string }>[] = [];
      let isStored = false;
      // Sends messages while the replies to earlier ones are on their way.
      while (!isStored && sends.length < 900) {
        sends.push(hooks.send({ tenant: "acme", type: "note.made", data: 1 }));
        void sends[0]!.then(() => (isStored = true));
        await redis.operator.ping();
      }
      const sent = await Promise.all(sends);
      const { entries } = await hooks.messages.list({ tenant: "acme", limit: 1_000 });
      expect(entries.map(({ id }) => id).toReversed()).toEqual(sent.map(({ id }) => id));
    }
  });
});
