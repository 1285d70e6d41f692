import { describe, expect, it } from "vitest";
import { Redis } from "ioredis";
import { StoreUnavailableError } from "sluice";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { produceSteadily, workOn } from "../../support/jobs/paced-jobs.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, extraSlots, timesOf } from "../../support/draws/steady-draws.ts";
import { longestGapMs } from "../../support/draws/steadily.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const TIMEOUT_MS = 300;
const FILLERS = 5_000;
/** No probe finds that the server is back: its connection does. */
const BREAKER = { probeMs: 600_000 };
const servers = ownRedisServers();

/** A server that loses nothing, and takes its time over each key that it loads; it answers meanwhile. */
const SLOW =
  "--appendonly yes --appendfsync always --enable-debug-command yes --key-load-delay 300 --loading-process-events-interval-bytes 1024".split(
    " ",
  );

async function startSlow(): Promise<OwnRedis> {
  const redis = await servers.start(SLOW);
  const fill = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'filler:' .. i, i) end";
  await redis.operator.eval(fill, 0, FILLERS);
  return redis;
}

/** Counts how often a client is told that the server loads its data, until it is stopped. */
function countLoading(url: string): { readonly stop: () => Promise<number> } {
  const client = new Redis(url, { enableReadyCheck: false, retryStrategy: () => 10 });
  client.on("error", () => undefined);
  let isStopped = false;
  const counting = (async (): Promise<number> => {
    let count = 0;
    while (!isStopped) {
      await client.get("none").catch(({ message }: Error) => {
        if (message.startsWith("LOADING")) count += 1;
      });
    }
    return count;
  })();
  return {
    async stop() {
      isStopped = true;
      const count = await counting;
      client.disconnect();
      return count;
    },
  };
}

/** As after a crash, when its clients have to come again; and as a replica does that gets all data anew. */
const LOADS: [string, (redis: OwnRedis) => Promise<unknown>][] = [
  ["that was killed and starts again", (redis) => redis.crash()],
  ["that keeps its clients", ({ operator }) => operator.debug("RELOAD")],
];

describe.each(LOADS)("a Redis that loads its data, %s", (load, strike) => {
  it("makes calls wait, fail or continue locally, by the mode of their bucket", async () => {
    const redis = await startSlow();
    const sluice = redis.open({ storeTimeoutMs: TIMEOUT_MS, breaker: BREAKER });
    const drawOn = (name: string, onStoreDown: "wait" | "refuse" | { local: number }) =>
      drawSteadily([sluice.bucket(name, { rate: `${RATE}/s`, onStoreDown })], { callers: 20 });
    const waits = drawOn("waits", "wait");
    const refuses = drawOn("refuses", "refuse");
    const local = drawOn("local", { local: 0.5 });
    const all = [waits, refuses, local];
    await waitUntil(() => all.every(({ slots }) => slots.length > 50), "calls leave");

    const loading = countLoading(redis.url);
    const before = local.slots.length;
    await strike(redis);
    const meanwhile = local.slots.length - before;
    const told = await loading.stop();
    const reached = all.map(({ slots }) => slots.length);
    await waitUntil(
      () => all.every(({ slots }, index) => slots.length > reached[index]! + RATE / 2),
      "calls leave again",
    );
    await Promise.all(all.map((draws) => draws.stop()));

    const extra = all.map(({ slots }) => extraSlots(timesOf(slots), { perSecond: RATE }));
    const gapMs = all.map(({ slots }) => longestGapMs(timesOf(slots)));
    for (const [index, mode] of ["wait", "refuse", "local: 0.5"].entries()) {
      reportFigures(`Redis loads its data, ${load}, calls with "${mode}"`, {
        recoveryMs: gapMs[index]!,
        extra: extra[index]!,
      });
    }
    expect(told).toBeGreaterThan(0);
    expect(waits.errors).toEqual([]);
    expect(refuses.errors.length).toBeGreaterThan(0);
    for (const error of refuses.errors) expect(error).toBeInstanceOf(StoreUnavailableError);
    expect(local.errors).toEqual([]);
    expect(meanwhile).toBeGreaterThan(0);
    expect(extra).toEqual([0, 0, 0]);
  });

  it("loses no job, and its workers continue by themselves", async () => {
    const redis = await startSlow();
    const jobs = workOn([redis.open(), redis.open()], { rate: `${RATE}/s`, lockMs: 10_000 });
    const producer = produceSteadily(jobs.queue);
    await waitUntil(() => jobs.attempts.length > 50, "jobs are done");

    const loading = countLoading(redis.url);
    await strike(redis);
    const told = await loading.stop();
    const reached = jobs.attempts.length;
    await waitUntil(() => jobs.attempts.length > reached + 50, "jobs are done again");
    await producer.stop();
    await jobs.untilEmpty();

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const lost = producer.stored.filter((number) => !jobs.reached().has(number));
    const figures = {
      recoveryMs: longestGapMs(atMs),
      extra: extraSlots(atMs, { perSecond: RATE }),
      lost: lost.length,
      again: jobs.attempts.length - jobs.reached().size,
      "jobs confirmed": producer.stored.length,
    };
    reportFigures(`Redis loads its data, ${load}, jobs`, figures);
    expect(told).toBeGreaterThan(0);
    expect(lost).toEqual([]);
    for (const error of producer.errors) expect(error).toBeInstanceOf(StoreUnavailableError);
    expect((await jobs.queue.counts()).failed).toBe(0);
    expect(figures.extra).toBe(0);
  });
});
