import { randomUUID } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import { Cluster, type Redis } from "ioredis";
import type { Webhooks } from "sluice/webhooks";
import { nameOn, startOwnCluster } from "../../support/redis/cluster.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
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
import { openSluice, startProxy } from "../../support/redis/for-one-test.ts";
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
});

/** Calls repeatedly while the replies to earlier calls are on their way, until the first call is done. */
async function callAhead<Result>(
  call: (index: number) => Promise<Result>,
  ping: () => Promise<unknown>,
): Promise<Result[]> {
  const calls: Promise<Result>[] = [];
  let isDone = false;
  while (!isDone && calls.length < 900) {
    calls.push(call(calls.length));
    void calls[0]!.then(() => (isDone = true));
    await ping();
  }
  return Promise.all(calls);
}

/** Sends messages to an ordered endpoint, and returns the numbers of the stored ones in the order of their storage. */
async function sendAhead(hooks: Webhooks, ping: () => Promise<unknown>): Promise<number[]> {
  const target = { tenant: randomUUID(), id: "a" };
  const { tenant } = target;
  await hooks.endpoints.put({ ...target, url: "http://127.0.0.1:1/", ordered: true });
  const sent = await callAhead(
    (index) => hooks.send({ tenant, type: "note.made", data: index }),
    ping,
  );
  const { entries } = await hooks.messages.list({ tenant, limit: 1_000 });
  return entries.map(({ id }) => sent.findIndex((message) => message.id === id)).toReversed();
}

async function openBehindProxy() {
  const redis = await servers.start();
  const proxy = await startProxy(redis);
  proxy.set("delay", 30);
  const url = `redis://127.0.0.1:${proxy.port}`;
  return { redis, ping: () => redis.operator.ping(), open: () => redis.open({ redis: url }) };
}

const LOSSES: readonly (readonly [string, (redis: OwnRedis) => Promise<unknown>])[] = [
  ["crashes", (redis) => redis.crash()],
  ["flushes its scripts", (redis) => redis.operator.script("FLUSH")],
];

describe("calls that are not awaited keep their order", () => {
  it.each(LOSSES)("as messages of an ordered endpoint, if Redis %s", async (_name, lose) => {
    const { redis, ping, open } = await openBehindProxy();
    const hooks = openHooks({ open });

    for (let round = 0; round < 3; round++) {
      if (round > 0) await lose(redis);
      const stored = await sendAhead(hooks, ping);
      expect(stored).toEqual(stored.toSorted((one, other) => one - other));
    }
  });

  it("as messages of an ordered endpoint, on each node of a cluster", async () => {
    const cluster = await startOwnCluster();
    const nodes = [...cluster.primaries, ...cluster.replicas];
    const proxies = await Promise.all(nodes.map(({ server }) => startProxy(server)));
    for (const proxy of proxies) proxy.set("delay", 30);
    const behind = proxies.map(({ port }) => ({ host: "127.0.0.1", port }));
    const natMap = Object.fromEntries(
      nodes.map(({ port }, index) => [`127.0.0.1:${port}`, behind[index]!]),
    );
    const client = new Cluster(behind.slice(0, 3), { natMap });
    onTestFinished(() => client.disconnect());
    const sluice = openSluice({ redis: client });

    for (const node of cluster.primaries) {
      const name = await nameOn(cluster, node);
      const hooks = openHooks({ open: () => sluice }, { name });
      const stored = await sendAhead(hooks, () => node.client.ping());
      expect(stored).toEqual(stored.toSorted((one, other) => one - other));
    }
  });

  it.each(LOSSES)("as jobs of an ordered key, if Redis %s", async (_name, lose) => {
    const { redis, ping, open } = await openBehindProxy();
    const sluice = open();
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    const queue = sluice.queue<number>("jobs", { bucket, ordered: true });

    for (let round = 0; round < 3; round++) {
      if (round > 0) await lose(redis);
      const key = `key ${round}`;
      const jobs = await callAhead((index) => queue.enqueue(index, { key }), ping);
      const fields = await Promise.all(
        jobs.map(({ id }) =>
          redis.operator.hget(`${queue.stored.prefix}:${queue.stored.name}:${id}`, "sluiceSeq"),
        ),
      );
      const positions = fields.map(Number);
      expect(positions).toEqual(positions.toSorted((one, other) => one - other));
    }
  });
});
