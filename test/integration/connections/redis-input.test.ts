import { Cluster, Redis } from "ioredis";
import {
  afterAll,
  afterEach,
  beforeAll,
  describe,
  expect,
  inject,
  it,
  onTestFinished,
} from "vitest";
import { connect } from "../../../src/stores/redis/connection.ts";
import { createSluice, type RedisInput, type Sluice } from "sluice";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

let cluster: LocalRedis;
let sluice: Sluice | undefined;
let given: Redis | Cluster | undefined;

beforeAll(async () => {
  cluster = await startRedis({
    fresh: true,
    args: ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"],
  });
  const node = new Redis(cluster.url);
  await node.cluster("ADDSLOTSRANGE", 0, 16_383);
  await waitUntil(
    async () => (await node.cluster("INFO")).includes("cluster_state:ok"),
    "the cluster is up",
  );
  await node.quit();
});
afterEach(async () => {
  await sluice?.close();
  given?.disconnect();
  given = undefined;
});
afterAll(async () => {
  await cluster.stop();
});

const address = (url: string) => ({
  host: new URL(url).hostname,
  port: Number(new URL(url).port),
});

/** What a user may pass as `redis`; a client is the user's own, and stays so. */
const inputs: readonly [string, () => RedisInput][] = [
  ["a URL", () => inject("redisUrl")],
  ["ioredis options", () => address(inject("redisUrl"))],
  ["an ioredis client", () => (given = new Redis(inject("redisUrl")))],
  [
    "an ioredis client with a key prefix and a queue of its own",
    () => (given = new Redis(inject("redisUrl"), { keyPrefix: "app:", maxRetriesPerRequest: 3 })),
  ],
  ["an ioredis cluster", () => (given = new Cluster([address(cluster.url)]))],
];

describe("Redis given as", () => {
  it.each(inputs)("%s serves calls and jobs", async (_name, input) => {
    sluice = createSluice({ redis: input(), prefix: "kinds" });
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    const done: number[] = [];
    sluice.worker(queue, async (job) => void done.push(job.data));

    await queue.enqueueMany([1, 2, 3]);
    await Promise.all([bucket.draw(), bucket.draw()]);
    await waitUntil(() => done.length === 3, "the jobs are done");

    expect(done).toEqual([1, 2, 3]);
  });

  it("a client is not changed: it is usable after the sluice is closed", async () => {
    given = new Redis(inject("redisUrl"));
    sluice = createSluice({ redis: given });
    await sluice.bucket("b", { rate: "100/s" }).draw();

    await sluice.close();

    await expect(given.ping()).resolves.toBe("PONG");
  });

  it.each([
    ["ioredis options", () => ({ ...address(inject("redisUrl")), commandTimeout: 50 })],
    [
      "an ioredis client",
      () => (given = new Redis(inject("redisUrl"), { commandTimeout: 50, lazyConnect: true })),
    ],
    [
      "an ioredis cluster",
      () =>
        (given = new Cluster([address(cluster.url)], {
          redisOptions: { commandTimeout: 50 },
          lazyConnect: true,
        })),
    ],
  ] as const)(
    "%s with a time limit for commands makes workers wait longer for jobs",
    async (_, input) => {
      const worker = connect(input(), "worker");

      const waited = await worker.blpop("no-jobs", 0.3).finally(() => worker.disconnect());

      expect(waited).toBeNull();
    },
  );
});

describe("a worker's connection, to Redis given as", () => {
  it.each([
    ["a URL", () => inject("redisUrl")],
    ["an ioredis cluster", () => (given = new Cluster([address(cluster.url)]))],
  ])("%s, sends the commands of one event in one write", async (_name, input) => {
    const client = connect(input(), "worker");
    onTestFinished(() => client.disconnect());
    await client.ping();
    const { stream } = client instanceof Cluster ? client.nodes("master")[0]! : client;
    /** How many bytes wait to be sent before each command. */
    const waiting: number[] = [];
    const words = Array.from({ length: 50 }, (_, index) => `word ${index}`);

    const answers = words.map(async (word) => {
      await Promise.resolve();
      waiting.push(stream.writableLength);
      return client.echo(word);
    });

    expect(await Promise.all(answers)).toEqual(words);
    expect(waiting).toEqual([...new Set(waiting)].toSorted((a, b) => a - b));
    expect(stream.writableLength).toBe(0);
  });
});
