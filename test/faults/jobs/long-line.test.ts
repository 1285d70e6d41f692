import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startFakeDownstream, type FakeDownstream } from "sluice/testing";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children, type Child } from "../../support/children/child.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { jobCalls, startLaneWorkers } from "../../support/jobs/lane-workers.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";

const RATE = 100;
const KEY = "large";
const CLOSES = 4;
const KILLS = 2;
const RESTARTS = 2;
const processes = children();
const servers = ownRedisServers();
let downstream: FakeDownstream;

beforeEach(async () => {
  downstream = await startFakeDownstream();
});
afterEach(async () => {
  await downstream.close();
});

/** A Redis that keeps a log of all it writes, and whose queue has so many jobs of one key. */
async function fill(jobs: number): Promise<OwnRedis> {
  const redis = await servers.start(["--appendonly", "yes"]);
  const sluice = redis.open();
  const bucket = sluice.bucket("downstream", { rate: `${RATE}/s` });
  const numbers = Array.from({ length: jobs }, (_, number) => String(number));
  await sluice.queue<string>("jobs", { bucket }).enqueueMany(numbers, { key: KEY });
  await sluice.close();
  await redis.operator.config("SET", "appendfsync", "always");
  return redis;
}

function start({ url }: OwnRedis): Child {
  const settings = { redis: url, prefix: "sluice", url: downstream.url };
  return startLaneWorkers(processes, 1, { ...settings, policy: { rate: `${RATE}/s` } })[0]!;
}

/** Resolves with how long after a moment its first job started; the moment is that at which it is ready by default. */
async function firstStart(worker: Child, sinceMs?: number): Promise<number> {
  await waitUntil(() => worker.messages.includes("ready"), "the worker is ready");
  const fromMs = sinceMs ?? performance.now();
  const first = (): number | undefined =>
    jobCalls(downstream.arrivals).find(({ pid, atMs }) => pid === worker.pid && atMs > fromMs)
      ?.atMs;
  await waitUntil(() => first() !== undefined, "its first job has started");
  return first()! - fromMs;
}

/** Ends a worker so many times, and starts another each time; returns the longest time until it started a job. */
async function endAndStart(
  redis: OwnRedis,
  times: number,
  end: (worker: Child) => Promise<unknown>,
): Promise<number> {
  const took: number[] = [];
  let worker = start(redis);
  await firstStart(worker);
  for (let time = 0; time < times; time++) {
    await end(worker);
    worker = start(redis);
    took.push(await firstStart(worker));
  }
  await end(worker);
  return Math.max(...took);
}

describe.each([100_000])("%i pending jobs of a key", (jobs) => {
  it("continue after closes, kills and restarts of Redis", async () => {
    const redis = await fill(jobs);
    const report = (fault: string, recoveryMs: number): void =>
      reportFigures(`${jobs} jobs of a key in line: ${fault}`, { recoveryMs });

    const codes: (number | null)[] = [];
    const closedMs = await endAndStart(redis, CLOSES, async (worker) => {
      worker.send("close");
      codes.push(await worker.ended);
    });
    report(`${CLOSES} orderly closes, until a new worker starts a job`, closedMs);
    const killedMs = await endAndStart(redis, KILLS, async (worker) => {
      worker.signal("SIGKILL");
      await worker.ended;
    });
    report("kill -9, until a new worker starts a job", killedMs);
    const worker = start(redis);
    await firstStart(worker);
    const took: number[] = [];
    for (let restart = 0; restart < RESTARTS; restart++) {
      await redis.crash();
      await waitUntil(async () => (await redis.operator.ping()) === "PONG", "Redis answers");
      took.push(await firstStart(worker, performance.now()));
    }
    report("Redis is killed, from its first answer on", Math.max(...took));

    expect(codes).toEqual(codes.map(() => 0));
    expect(codes).toHaveLength(CLOSES + 1);
  }, 600_000);
});
