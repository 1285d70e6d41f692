import { afterEach, describe, expect, it } from "vitest";
import { createSluice, StoreUnavailableError, type Sluice } from "sluice";
import { Redis } from "ioredis";
import { createShards } from "../../../src/stores/redis/shards.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";

const redises = ownRedisServers();
const files = rulesFiles();

let servers: LocalRedis[] = [];
let sluice: Sluice | undefined;
afterEach(async () => {
  await sluice?.close();
  await Promise.all(servers.map((server) => server.stop()));
  servers = [];
});

describe("an operator of three independent servers", () => {
  it("sees the buckets of all servers, or of the others when one is down", async () => {
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

describe("one of three independent servers that is down", () => {
  it("makes only its own buckets and queues unavailable", async () => {
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

describe("on three independent servers, the rules of a file", () => {
  it("apply to the buckets of all servers, also of one that was down when the file changed", async () => {
    const servers = await Promise.all([1, 2, 3].map(() => redises.start(["--appendonly", "yes"])));
    const urls = servers.map(({ url }) => url);
    const names = Array.from({ length: 12 }, (_, at) => `b${at}`);
    const rulesOf = (version: number, rate: string): string =>
      `version: ${version}\nbuckets:\n${names.map((name) => `  ${name}: { rate: ${rate} }`).join("\n")}`;
    const file = files.write("sluice.yaml", rulesOf(1, "50/s"));
    const { logger, lines } = heardLog();
    openSluice({ shards: urls, storeTimeoutMs: 30_000, rules: file, logger });
    const other = openSluice({ shards: urls, storeTimeoutMs: 30_000 });
    const buckets = names.map((name) => other.bucket(name, { rate: "100/s" }));
    const areInForce = async (rate: string): Promise<boolean> => {
      const looks = await Promise.all(buckets.map((bucket) => bucket.peek()));
      return looks.every(({ policy, policyFrom }) => policy === rate && policyFrom === "rules");
    };
    await waitUntil(() => areInForce("50/s"), "the first rules");
    expect(await buckets[0]!.status()).toMatchObject({ source: "rules", rulesVersion: 1 });

    const isBack = servers[0]!.crash();
    files.write("sluice.yaml", rulesOf(2, "60/s"));
    await isBack;

    await waitUntil(() => areInForce("60/s"), "the second rules");
    expect(lines.filter((line) => line.includes("rules"))).toEqual([]);
  });

  it("reach the buckets of reachable servers first, and those of the others once they are back", async () => {
    const servers = await Promise.all([1, 2, 3].map(() => redises.start()));
    const urls = servers.map(({ url }) => url);
    const serverOf = createShards(urls);
    const names = Array.from({ length: 12 }, (_, at) => `b${at}`);
    const [away, up] = [true, false].map((isAway) =>
      names.filter((name) => (serverOf(name) === urls[0]) === isAway),
    ) as [string[], string[]];
    expect(away.length).toBeGreaterThan(0);
    const rulesOf = (version: number, rate: string): string =>
      `version: ${version}\nbuckets:\n${names.map((name) => `  ${name}: { rate: ${rate} }`).join("\n")}`;
    const file = files.write("sluice.yaml", rulesOf(1, "50/s"));
    const { logger, lines } = heardLog();
    openSluice({ shards: urls, storeTimeoutMs: 500, rules: file, logger });
    const other = openSluice({ shards: urls, storeTimeoutMs: 500, logger: heardLog().logger });
    const buckets = new Map(names.map((name) => [name, other.bucket(name, { rate: "100/s" })]));
    const areInForce = async (of: readonly string[], rate: string): Promise<boolean> => {
      const looks = await Promise.all(of.map((name) => buckets.get(name)!.peek()));
      return looks.every(({ policy, policyFrom }) => policy === rate && policyFrom === "rules");
    };
    await waitUntil(() => areInForce(names, "50/s"), "the first rules");

    servers[0]!.signal("SIGSTOP");
    files.write("sluice.yaml", rulesOf(2, "60/s"));
    await waitUntil(() => areInForce(up, "60/s"), "the second rules, where servers answer");
    servers[0]!.signal("SIGCONT");

    await waitUntil(
      () => areInForce(away, "60/s").catch(() => false),
      "the second rules, on the server that is back",
    );
    expect(await areInForce(up, "60/s")).toBe(true);
    expect(lines.filter((line) => line.includes("rules"))).toEqual([]);
  });
});
