import { describe, expect, it } from "vitest";
import { StoreUnavailableError } from "sluice";
import { ownRedisServers, redisNowMs, type OwnRedis } from "../support/own-redis.ts";
import { workOn } from "../support/paced-jobs.ts";
import { rejectionOf } from "../support/rejection.ts";
import { drawSteadily, extraSlots, timesOf } from "../support/steady-draws.ts";
import { waitUntil } from "../support/wait-until.ts";

const RATE = 200;
const JOBS = 400;
const TIMEOUT_MS = 300;
const FULL_MS = 1_000;
const servers = ownRedisServers();

/** From now on the server has no room for anything; it evicts nothing. */
const fill = (redis: OwnRedis) => redis.operator.config("SET", "maxmemory", "1");
const makeRoom = (redis: OwnRedis) => redis.operator.config("SET", "maxmemory", "0");

describe("a Redis whose memory is full", () => {
  it("still lets calls draw", async () => {
    const redis = await servers.start();
    const bucket = redis.open({ storeTimeoutMs: TIMEOUT_MS }).bucket("b", { rate: `${RATE}/s` });
    await bucket.draw();
    await fill(redis);

    await expect(bucket.draw()).resolves.toMatchObject({ bucket: "b" });
  });

  it("lets calls under load go on, each on its slot", async () => {
    const redis = await servers.start();
    const replicas = [1, 2].map(() => redis.open({ storeTimeoutMs: 2_000 }));
    const buckets = replicas.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s` }));
    const draws = drawSteadily(buckets, { callers: 20 });
    await waitUntil(() => draws.slots.length > 100, "calls leave");

    await fill(redis);
    const before = draws.slots.length;
    await waitUntil(() => draws.slots.length > before + RATE, "calls go on leaving");
    await makeRoom(redis);
    await draws.stop();

    const extra = extraSlots(timesOf(draws.slots), { perSecond: RATE });
    console.log(
      JSON.stringify({ fault: "memory full, calls", extra, failed: draws.errors.length }),
    );
    expect(draws.errors).toEqual([]);
    expect(extra).toBe(0);
  });

  it("tells producers so, and takes jobs again when there is room", async () => {
    const redis = await servers.start();
    const sluice = redis.open({ storeTimeoutMs: TIMEOUT_MS });
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueue(0);
    await fill(redis);

    const reasons = await Promise.all([
      rejectionOf(queue.enqueue(1)),
      rejectionOf(queue.enqueue(2, { key: "acme" })),
      rejectionOf(queue.enqueueMany([3, 4])),
    ]);
    await makeRoom(redis);
    const stored = await queue.enqueue(5);

    for (const reason of reasons) expect(reason).toBeInstanceOf(StoreUnavailableError);
    expect(stored.data).toBe(5);
    const { waiting, delayed } = await queue.counts();
    expect(waiting + delayed).toBe(2);
  });

  it("fails no job and loses none: workers go on by themselves when there is room", async () => {
    const redis = await servers.start();
    const jobs = workOn([redis.open(), redis.open()], { rate: `${RATE}/s`, lockMs: 30_000 });
    const numbers = Array.from({ length: JOBS }, (_, index) => index);
    const keyOf = (number: number) => (number % 2 === 0 ? undefined : `k${number % 5}`);
    await jobs.queue.enqueueMany(numbers, (number) => ({ key: keyOf(number) }));
    await waitUntil(() => jobs.attempts.length > 50, "jobs are done");

    await fill(redis);
    const fullMs = await redisNowMs(redis.operator);
    await waitUntil(
      async () => (await redisNowMs(redis.operator)) > fullMs + FULL_MS,
      "it is full for a while",
    );
    await makeRoom(redis);
    await jobs.untilEmpty();

    const doneAgain = jobs.attempts.length - JOBS;
    const extra = extraSlots(
      jobs.attempts.map(({ atMs }) => atMs),
      { perSecond: RATE },
    );
    console.log(JSON.stringify({ fault: "memory full, jobs", extra, doneAgain }));
    expect(jobs.reached().size).toBe(JOBS);
    expect((await jobs.queue.counts()).failed).toBe(0);
    expect(extra).toBe(0);
  });
});
