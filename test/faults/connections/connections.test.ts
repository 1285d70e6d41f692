import { describe, expect, it, onTestFinished } from "vitest";
import { StoreUnavailableError } from "sluice";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { produceSteadily, workOn } from "../../support/jobs/paced-jobs.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, extraSlots, figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const STRIKES = 10;
const servers = ownRedisServers();

const openBuckets = (redis: OwnRedis, storeTimeoutMs = 30_000) =>
  [1, 2, 3].map(() => redis.open({ storeTimeoutMs }).bucket("b", { rate: `${RATE}/s` }));

async function killClients({ operator }: OwnRedis): Promise<void> {
  for (const type of ["normal", "pubsub"] as const) {
    await operator.client("KILL", "TYPE", type, "SKIPME", "yes");
  }
}

describe("connections that are killed again and again", () => {
  it("make no call fail, and the cap holds", async () => {
    const redis = await servers.start();
    const draws = drawSteadily(openBuckets(redis), { callers: 20 });

    for (let strike = 1; strike <= STRIKES; strike++) {
      const before = draws.slots.length;
      await waitUntil(() => draws.slots.length > before + 20, "calls leave");
      await killClients(redis);
    }
    await draws.stop();

    const atMs = timesOf(draws.slots);
    const figures = figuresOf(atMs, RATE);
    reportFigures("connections are killed in a loop, calls", figures);
    expect(draws.errors).toEqual([]);
    expect(figures.extra).toBe(0);
  });

  it("lose no job, and producers only get StoreUnavailableError", async () => {
    const redis = await servers.start();
    const jobs = workOn([redis.open(), redis.open()], { rate: `${RATE}/s` });
    const producer = produceSteadily(jobs.queue);

    for (let strike = 1; strike <= STRIKES; strike++) {
      const before = jobs.attempts.length;
      await waitUntil(() => jobs.attempts.length > before + 20, "jobs are done");
      await killClients(redis);
    }
    await producer.stop();
    await jobs.untilEmpty();

    const again = jobs.attempts.length - new Set(jobs.attempts.map(({ id }) => id)).size;
    const lost = producer.stored.filter((number) => !jobs.reached().has(number));
    const extra = extraSlots(
      jobs.attempts.map(({ atMs }) => atMs),
      { perSecond: RATE },
    );
    reportFigures("connections are killed in a loop, jobs", {
      extra,
      lost: lost.length,
      again,
      "refusals of enqueue": producer.errors.length,
    });
    expect(lost).toEqual([]);
    expect(producer.errors.every((error) => error instanceof StoreUnavailableError)).toBe(true);
    expect((await jobs.queue.counts()).failed).toBe(0);
    expect(extra).toBe(0);
  });
});

describe("a server that hangs", () => {
  it("loses its connection once, however many commands wait", async () => {
    const redis = await servers.start();
    const sluice = redis.open({ storeTimeoutMs: 2_000 });
    const buckets = Array.from({ length: 30 }, (_, number) =>
      sluice.bucket(`b${number}`, { rate: "100/s" }),
    );
    await Promise.all(buckets.map((bucket) => bucket.draw()));
    const warnings: string[] = [];
    const note = ({ name, message }: Error): void => void warnings.push(`${name}: ${message}`);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));

    redis.signal("SIGSTOP");
    const errors = await Promise.all(buckets.map((bucket) => rejectionOf(bucket.draw())));
    redis.signal("SIGCONT");

    expect(errors.every((error) => error instanceof StoreUnavailableError)).toBe(true);
    expect(warnings).toEqual([]);
  });
});

describe("a server that is a replica for a while", () => {
  it("lets patient callers wait, and fails the others with StoreUnavailableError", async () => {
    const redis = await servers.start();
    const patient = drawSteadily(openBuckets(redis), { callers: 10 });
    const hasty = drawSteadily(openBuckets(redis, 200), { callers: 10 });
    await waitUntil(() => patient.slots.length + hasty.slots.length > 150, "calls leave");

    await redis.operator.replicaof("127.0.0.1", 1);
    await waitUntil(() => hasty.errors.length > 20, "calls are refused");
    await redis.operator.replicaof("NO", "ONE");
    const before = [patient, hasty].map(({ slots }) => slots.length);
    await waitUntil(
      () => [patient, hasty].every(({ slots }, index) => slots.length > before[index]! + 60),
      "both go on",
    );
    await Promise.all([patient.stop(), hasty.stop()]);

    const atMs = timesOf([...patient.slots, ...hasty.slots]);
    const figures = figuresOf(atMs, RATE);
    reportFigures("a primary turns replica and back", figures);
    expect(patient.errors).toEqual([]);
    expect(hasty.errors.every((error) => error instanceof StoreUnavailableError)).toBe(true);
    expect(figures.extra).toBe(0);
  });
});

describe("a server that accepts no more clients", () => {
  it("rejects new replicas with StoreUnavailableError, serves the others, and accepts all later", async () => {
    const redis = await servers.start();
    const draws = drawSteadily(openBuckets(redis), { callers: 20 });
    await waitUntil(() => draws.slots.length > 50, "calls leave");
    const clients = /connected_clients:(\d+)/.exec(await redis.operator.info("clients"))![1]!;
    await redis.operator.config("SET", "maxclients", clients);

    const late = redis.open({ storeTimeoutMs: 300 });
    const bucket = late.bucket("b", { rate: `${RATE}/s` });
    const queue = late.queue<number>("jobs", { bucket });
    const reasons = await Promise.all([
      rejectionOf(bucket.draw()),
      rejectionOf(bucket.tryDraw()),
      rejectionOf(queue.enqueue(1)),
    ]);
    const before = draws.slots.length;
    await waitUntil(() => draws.slots.length > before + 100, "the others go on");
    await redis.operator.config("SET", "maxclients", "1000");
    await waitUntil(() => bucket.draw().then(Boolean, () => false), "the new one is served");
    await waitUntil(() => queue.enqueue(2).then(Boolean, () => false), "its queue as well");
    await draws.stop();

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(StoreUnavailableError);
      expect(String(reason)).toContain("max number of clients reached");
      expect(String(reason)).toContain("maxclients");
    }
    const figures = figuresOf(timesOf(draws.slots), RATE);
    reportFigures("no more clients are taken", figures);
    expect(draws.errors).toEqual([]);
    expect(figures.extra).toBe(0);
  });
});
