import { describe, expect, it } from "vitest";
import { StoreUnavailableError, type Queue, type Sluice } from "sluice";
import { startProxy } from "../../support/redis/for-one-test.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { produceSteadily, workOn } from "../../support/jobs/paced-jobs.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { longestGapMs } from "../../support/draws/steadily.ts";
import { extraSlots } from "../../support/draws/steady-draws.ts";
import type { TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 100;
const JOBS = 600;
const servers = ownRedisServers();

/** A Redis, a replica that reaches it through a proxy, and one that does so directly. */
async function openBoth(): Promise<{
  redis: OwnRedis;
  proxy: TcpProxy;
  behind: Sluice;
  direct: Sluice;
}> {
  const redis = await servers.start();
  const proxy = await startProxy(redis);
  const behind = redis.open({ redis: `redis://127.0.0.1:${proxy.port}`, storeTimeoutMs: 1_000 });
  return { redis, proxy, behind, direct: redis.open() };
}

function openQueue(sluice: Sluice): Queue<number> {
  return sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: `${RATE}/s` }) });
}

/** Half of them with a key. */
async function enqueueAll(queue: Queue<number>): Promise<void> {
  const numbers = Array.from({ length: JOBS / 2 }, (_, number) => number);
  await queue.enqueueMany(numbers);
  await queue.enqueueMany(
    numbers.map((number) => JOBS / 2 + number),
    { key: "k" },
  );
}

describe("connections that are dead without a notification to either side", () => {
  it("are replaced by a busy worker, and no job is lost", async () => {
    const { proxy, behind, direct } = await openBoth();
    const jobs = workOn([behind], { rate: `${RATE}/s` });
    await enqueueAll(openQueue(direct));
    await waitUntil(() => jobs.attempts.length > RATE, "jobs are done");

    proxy.abandon();
    await waitUntil(() => proxy.kept > 0, "something was on its way");
    await waitUntil(() => jobs.reached().size === JOBS, "all are done");

    const atMs = jobs.attempts.map((attempt) => attempt.atMs);
    const extra = extraSlots(atMs, { perSecond: RATE });
    reportFigures("connections go dead, a worker at work", {
      recoveryMs: longestGapMs(atMs),
      extra,
      again: jobs.attempts.length - JOBS,
    });
    expect(extra).toBe(0);
    expect((await openQueue(direct).counts()).failed).toBe(0);
  });

  it("are replaced by an idle worker", async () => {
    const { redis, proxy, behind, direct } = await openBoth();
    const jobs = workOn([behind], { rate: `${RATE}/s` });
    const queue = openQueue(direct);
    await waitUntil(() => blockedClients(redis), "it waits");

    proxy.abandon();
    const fromMs = performance.now();
    await queue.enqueueMany([1, 2, 3]);
    await waitUntil(() => jobs.reached().size === 3, "the jobs are done");

    reportFigures("connections go dead, an idle worker", {
      recoveryMs: performance.now() - fromMs,
    });
    expect(jobs.reached()).toEqual(new Set([1, 2, 3]));
  });

  it("are replaced by a producer, which reports Redis as unreachable until then", async () => {
    const { proxy, behind } = await openBoth();
    const queue = openQueue(behind);
    await queue.enqueue(0);

    proxy.abandon();
    const fromMs = performance.now();
    const producer = produceSteadily(queue);
    await waitUntil(() => producer.stored.length > 0, "jobs are stored again");
    await producer.stop();

    reportFigures("connections go dead, a producer", { recoveryMs: performance.now() - fromMs });
    expect(producer.errors.length).toBeGreaterThan(0);
    expect(producer.errors.every((error) => error instanceof StoreUnavailableError)).toBe(true);
  });

  it.each<[string, (queue: Queue<number>) => Promise<unknown>]>([
    ["enqueue", (queue) => queue.enqueue(1)],
    ["enqueue with an id", (queue) => queue.enqueue(1, { id: "one" })],
    ["counts", (queue) => queue.counts()],
  ])("are replaced after a function was frozen: the second %s succeeds", async (_what, ask) => {
    const { redis, proxy } = await openBoth();
    const at = `redis://127.0.0.1:${proxy.port}`;
    const queue = openQueue(redis.open({ redis: at, storeTimeoutMs: 200 }));
    await queue.enqueue(0);
    const restMs = performance.now();

    proxy.abandon();
    await waitUntil(() => performance.now() - restMs > 400, "it was at rest");
    const first = await rejectionOf(ask(queue));
    await ask(queue);

    expect(first).toBeInstanceOf(StoreUnavailableError);
  });

  it("are replaced by a listener of a queue's events, which gets the events of the outage", async () => {
    const { proxy, behind, direct } = await openBoth();
    const done: unknown[] = [];
    openQueue(behind).on("done", ({ result }) => void done.push(result));
    const queue = openQueue(direct);
    direct.worker(queue, async ({ data }) => data);
    await waitUntil(async () => {
      await queue.enqueue(0);
      return done.length > 0;
    }, "events are heard");

    proxy.abandon();
    const fromMs = performance.now();
    await queue.enqueue(1);
    await waitUntil(() => done.includes(1), "the event is heard");

    reportFigures("connections go dead, a listener for events", {
      recoveryMs: performance.now() - fromMs,
    });
    expect(done.at(-1)).toBe(1);
  });

  it("are replaced by a listener of a bucket's change notifications", async () => {
    const { redis, proxy, behind } = await openBoth();
    await behind.bucket("b", { rate: `${RATE}/s` }).draw();
    await waitUntil(async () => (await subscribers(redis)).length === 1, "it listens");
    const [dead] = await subscribers(redis);

    proxy.abandon();
    const fromMs = performance.now();
    await waitUntil(async () => !(await subscribers(redis)).includes(dead), "it has left");
    await waitUntil(async () => (await subscribers(redis)).length === 1, "it listens again");

    reportFigures("connections go dead, a listener for bucket changes", {
      recoveryMs: performance.now() - fromMs,
    });
    expect(await subscribers(redis)).not.toContain(dead);
  });
});

describe("a server that hangs and continues", () => {
  it("loses no job, though workers replace its connections while it hangs", async () => {
    const { redis, proxy, behind, direct } = await openBoth();
    const jobs = workOn([direct, behind], { rate: `${RATE}/s` });
    await enqueueAll(jobs.queue);
    await waitUntil(() => jobs.attempts.length > RATE, "jobs are done");

    const open = [...proxy.clients];
    redis.signal("SIGSTOP");
    await waitUntil(() => open.every(({ destroyed }) => destroyed), "its connections are given up");
    redis.signal("SIGCONT");
    await waitUntil(() => jobs.reached().size === JOBS, "all are done");

    reportFigures("Redis stands still until its connections are given up", {
      again: jobs.attempts.length - JOBS,
    });
    expect((await jobs.queue.counts()).failed).toBe(0);
  });
});

/** Whether a worker's connection blocks until there are jobs. */
async function blockedClients({ operator }: OwnRedis): Promise<boolean> {
  return /^blocked_clients:[1-9]/m.test(await operator.info("clients"));
}

/** The ids of the connections that listen to channels. */
async function subscribers({ operator }: OwnRedis): Promise<(string | undefined)[]> {
  const lines = String(await operator.client("LIST")).split("\n");
  return lines.filter((line) => / sub=[1-9]/.test(line)).map((line) => /^id=(\d+)/.exec(line)?.[1]);
}
