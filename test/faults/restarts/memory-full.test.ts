import { afterEach, describe, expect, it } from "vitest";
import {
  StoreUnavailableError,
  createSluice,
  type Handler,
  type Logger,
  type Queue,
  type Sluice,
} from "sluice";
import { startCluster, type RedisCluster } from "../../support/redis/cluster.ts";
import { deferred } from "../../support/async/deferred.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { workOn } from "../../support/jobs/paced-jobs.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const JOBS = 400;
const TIMEOUT_MS = 1_000;
const LOCK_MS = 3_000;
const servers = ownRedisServers();
let cluster: RedisCluster | undefined;
let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await cluster?.stop();
  cluster = undefined;
});

/** From now on the server has no room for anything; it evicts nothing. */
const fill = (redis: OwnRedis) => redis.operator.config("SET", "maxmemory", "1");
const makeRoom = (redis: OwnRedis) => redis.operator.config("SET", "maxmemory", "0");

describe("a Redis whose memory is full", () => {
  it("still grants slots", async () => {
    const redis = await servers.start();
    const bucket = redis.open({ storeTimeoutMs: TIMEOUT_MS }).bucket("b", { rate: `${RATE}/s` });
    await bucket.draw();
    await fill(redis);

    await expect(bucket.draw()).resolves.toMatchObject({ bucket: "b" });
  });

  it("still paces calls under load", async () => {
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

    const figures = figuresOf(timesOf(draws.slots), RATE);
    reportFigures("memory is full, calls", figures);
    expect(draws.errors).toEqual([]);
    expect(figures.extra).toBe(0);
  });

  it("rejects jobs with that reason, and accepts jobs again when it has room", async () => {
    const redis = await servers.start();
    const sluice = redis.open({ storeTimeoutMs: TIMEOUT_MS });
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueue(0);
    await fill(redis);

    const reasons = await Promise.all([
      rejectionOf(queue.enqueue(1)),
      rejectionOf(queue.enqueue(2, { key: "acme" })),
      rejectionOf(queue.enqueueMany([3, 4])),
      rejectionOf(queue.enqueue(7, { id: "seven" })),
      rejectionOf(queue.enqueue(8, { key: "acme", dedupeId: "eight", dedupe: "again" })),
      rejectionOf(queue.enqueue(6, { every: 1_000, dedupeId: "often" })),
    ]);
    await makeRoom(redis);
    const stored = await queue.enqueue(5);

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(StoreUnavailableError);
      expect((reason as Error).message).toContain("The memory of Redis is full");
    }
    expect(reasons.map((reason) => (reason as StoreUnavailableError).mayBeStored)).toEqual([
      false,
      false,
      true,
      false,
      false,
      false,
    ]);
    expect(stored.data).toBe(5);
    const { waiting, delayed } = await queue.counts();
    expect(waiting + delayed).toBe(2);
  });

  it("lets workers do the stored jobs, each on its slot", async () => {
    const redis = await servers.start();
    const producer = redis.open();
    const bucket = producer.bucket("b", { rate: `${RATE}/s` });
    const numbers = Array.from({ length: JOBS }, (_, index) => index);
    const keyOf = (number: number) => (number % 2 === 0 ? undefined : `k${number % 5}`);
    const optionsOf = (number: number) => ({ key: keyOf(number) });
    await producer.queue<number>("jobs", { bucket }).enqueueMany(numbers, optionsOf);

    await fill(redis);
    const jobs = workOn([redis.open(), redis.open()], { rate: `${RATE}/s`, lockMs: 30_000 });
    await jobs.untilEmpty();

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const figures = figuresOf(atMs, RATE);
    reportFigures("memory is full, jobs", {
      ...figures,
      lost: JOBS - jobs.reached().size,
      again: jobs.attempts.length - jobs.reached().size,
    });
    expect(jobs.attempts).toHaveLength(JOBS);
    expect(jobs.reached().size).toBe(JOBS);
    expect(await jobs.queue.counts()).toMatchObject({ failed: 0, done: JOBS });
    expect(figures.extra).toBe(0);
  });

  it.each(["one server", "a cluster"])(
    "delays no job on %s, whatever its outcome",
    async (where) => {
      const lines: string[] = [];
      const { sluice, setMemory } = await open(
        where,
        (facts) => void lines.push(JSON.stringify(facts)),
      );
      const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
      const queue = sluice.queue<string>("jobs", { bucket });
      const attempts: string[] = [];
      const isLong = deferred();
      const handler: Handler<string, void> = async ({ data }, { attempt, log }) => {
        attempts.push(`${data} ${attempt}`);
        await log("begun");
        if (data === "fails" || (data === "fails once" && attempt === 1)) throw new Error("no");
        if (data === "long") await isLong.promise;
      };
      await queue.enqueueMany(["plain", "with a key", "fails once", "fails", "long"], (data) => ({
        key: data === "with a key" ? "acme" : undefined,
        attempts: 2,
        backoff: { baseMs: 10 },
      }));
      await queue.enqueue("later", { delayMs: 1_000, key: "acme" });
      await queue.enqueue("again and again", { every: 100, dedupeId: "often" });

      await setMemory("1");
      sluice.worker(queue, handler, { lockMs: LOCK_MS });
      const ends = ["plain 1", "with a key 1", "fails once 2", "fails 2", "long 1", "later 1"];
      await waitUntil(
        () => ends.every((end) => attempts.includes(end)),
        "all have had their tries",
      );
      const runs = () => attempts.filter((attempt) => attempt.startsWith("again")).length;
      await waitUntil(
        () => runs() > LOCK_MS / 50,
        "a recurring job goes on, for longer than a lock",
      );
      isLong.resolve();
      const [dead] = await untilFailed(queue);
      const refused = await rejectionOf(queue.enqueue("more"));
      await queue.pause();
      await queue.resume();
      await queue.unschedule("often");
      await waitUntil(async () => (await queue.counts()).active === 0, "all have ended");
      await queue.drain();
      await setMemory("0");
      await queue.replay(dead!.id);
      await queue.enqueue("more");
      await waitUntil(() => attempts.includes("more 1"), "the worker goes on");

      const once = ["plain 1", "with a key 1", "fails once 1", "long 1", "later 1"];
      expect(attempts.filter((attempt) => once.includes(attempt)).toSorted()).toEqual(
        once.toSorted(),
      );
      expect(dead).toMatchObject({ data: "fails" });
      expect(refused).toBeInstanceOf(StoreUnavailableError);
      expect(lines.filter((line) => line.includes("OOM"))).toEqual([]);
    },
  );
});

/** A sluice, and how the memory of its Redis is set. */
async function open(where: string, log: Logger["warn"]) {
  const logger = { warn: log, error: log };
  if (where === "one server") {
    const redis = await servers.start();
    const setMemory = (most: string) => redis.operator.config("SET", "maxmemory", most);
    return { sluice: redis.open({ logger }), setMemory };
  }
  cluster = await startCluster();
  const { primaries } = cluster;
  const sluice = createSluice({ redis: cluster.open(), logger });
  opened.push(sluice);
  const setMemory = (most: string) =>
    Promise.all(primaries.map(({ client }) => client.config("SET", "maxmemory", most)));
  return { sluice, setMemory };
}

async function untilFailed(queue: Queue<string>) {
  await waitUntil(async () => (await queue.failed()).length > 0, "a job is a dead letter");
  return queue.failed();
}
