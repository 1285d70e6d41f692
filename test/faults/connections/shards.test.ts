import { afterEach, describe, expect, it } from "vitest";
import { createSluice, StoreUnavailableError, type Sluice } from "sluice";
import { Redis } from "ioredis";
import { createShards } from "../../../src/redis/shards.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";

let servers: LocalRedis[] = [];
let sluice: Sluice | undefined;
afterEach(async () => {
  await sluice?.close();
  await Promise.all(servers.map((server) => server.stop()));
  servers = [];
});

describe("an operator of three independent servers", () => {
  it("sees the buckets of all, and of those that answer when one is down", async () => {
    servers = await Promise.all([1, 2, 3].map(() => startRedis({ fresh: true })));
    const urls = servers.map(({ url }) => url);
    const serverOf = createShards(urls);
    const names = Array.from({ length: 12 }, (_, index) => `b${index}`);
    sluice = createSluice({ shards: urls, storeTimeoutMs: 500 });
    const operator = sluice;
    await Promise.all(names.map((name) => operator.bucket(name, { rate: "1000/s" }).draw()));
    await waitUntil(async () => (await operator.overview()).buckets.length === 12, "all are told");
    await Promise.all(
      names.map((name) => operator.bucket(name, { rate: "1000/s" }).pause({ by: name })),
    );
    const open = (name: string) =>
      operator.queue(name, { bucket: operator.bucket(name, { rate: "1000/s" }) });
    for (const name of names) operator.worker(open(name), () => undefined);
    await waitUntil(async () => (await operator.overview()).workers.length === 12, "all are told");
    const changes = await operator.changes();
    expect(changes.map(({ by }) => by).toSorted()).toEqual(names.toSorted());

    await servers[0]!.stop();

    const { buckets, queues, workers, unreachable, replicas } = await operator.overview();
    const up = names.filter((name) => serverOf(name) !== urls[0]);
    expect(buckets.map(({ name }) => name)).toEqual(up.toSorted());
    expect(queues.map(({ name }) => name)).toEqual(up.toSorted());
    expect(workers.map(({ queue }) => queue).toSorted()).toEqual(up.toSorted());
    expect(unreachable).toMatchObject([{ bucket: undefined }]);
    expect(replicas).toHaveLength(1);
  });
});

describe("one of three independent servers is down", () => {
  it("and takes down only the buckets and queues that live there", async () => {
    servers = await Promise.all([1, 2, 3].map(() => startRedis({ fresh: true })));
    const urls = servers.map(({ url }) => url);
    const serverOf = createShards(urls);
    const names = Array.from({ length: 30 }, (_, index) => `b${index}`);
    sluice = createSluice({ shards: urls, storeTimeoutMs: 500 });
    const own = sluice;
    const buckets = names.map((name) => own.bucket(name, { rate: "1000/s" }));
    await Promise.all(buckets.map((bucket) => bucket.draw()));
    for (const url of urls) {
      const client = new Redis(url);
      const held = await client.keys("*");
      client.disconnect();
      const its = names.filter((name) => serverOf(name) === url);
      expect(its.length).toBeGreaterThan(0);
      for (const name of its) expect(held.some((key) => key.includes(`{${name}}`))).toBe(true);
    }

    await servers[0]!.stop();
    const outcomes = await Promise.allSettled(buckets.map((bucket) => bucket.draw()));

    for (const [index, outcome] of outcomes.entries()) {
      const isDown = serverOf(names[index]!) === urls[0];
      expect(outcome.status).toBe(isDown ? "rejected" : "fulfilled");
      if (outcome.status !== "rejected") continue;
      expect(outcome.reason).toBeInstanceOf(StoreUnavailableError);
    }
    const alive = buckets.find(({ name }) => serverOf(name) !== urls[0])!;
    const queues = names.map((name) => sluice!.queue<number>(name, { bucket: alive }));
    const stored = await Promise.allSettled(queues.map((queue) => queue.enqueue(1)));
    for (const [index, outcome] of stored.entries()) {
      const isDown = serverOf(names[index]!) === urls[0];
      expect(outcome.status).toBe(isDown ? "rejected" : "fulfilled");
    }
  });
});
