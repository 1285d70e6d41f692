import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { StoreUnavailableError, type Bucket, type StoreEvent } from "sluice";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { drawSteadily, extraSlots, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();
const TIMEOUT_MS = 400;
const RATE = 100;

interface Refusal {
  readonly word: string;
  readonly begin: (redis: OwnRedis) => Promise<unknown>;
  readonly end: (redis: OwnRedis) => Promise<unknown>;
}

const WITHOUT_REPLICAS: Refusal = {
  word: "NOREPLICAS",
  begin: ({ operator }) => operator.config("SET", "min-replicas-to-write", "1"),
  end: ({ operator }) => operator.config("SET", "min-replicas-to-write", "0"),
};
const AS_REPLICA: Refusal = {
  word: "READONLY",
  begin: async ({ operator }) => operator.replicaof("127.0.0.1", await freePort("127.0.0.1")),
  end: ({ operator }) => operator.replicaof("NO", "ONE"),
};
const AFTER_FAILED_SAVE: Refusal = {
  word: "MISCONF",
  async begin({ operator }) {
    const [, folder] = (await operator.config("GET", "dir")) as [string, string];
    // Where the file belongs there is a folder.
    await mkdir(join(folder, "dump.rdb", "taken"), { recursive: true });
    await operator.config("SET", "save", "3600 1");
    await operator.bgsave();
    await waitUntil(
      async () => /rdb_last_bgsave_status:err/.test(await operator.info("persistence")),
      "the save has failed",
    );
  },
  end: ({ operator }) => operator.config("SET", "stop-writes-on-bgsave-error", "no"),
};

async function start() {
  const redis = await servers.start();
  const events: StoreEvent[] = [];
  const logged: string[] = [];
  const log = (_facts: object, message: string): void => void logged.push(message);
  const sluice = redis.open({ storeTimeoutMs: TIMEOUT_MS, logger: { warn: log, error: log } });
  sluice.on("store", (event) => events.push(event));
  return { redis, sluice, events, logged };
}

const untilLimited = (bucket: Bucket): Promise<void> =>
  waitUntil(async () => !(await bucket.tryDraw()).allowed, "the limit holds again");

// What a bucket does depends on its `onStoreDown`, and not on the reason of the refusal.
describe("a Redis that refuses writes", () => {
  it("lets a bucket continue locally at its share, without a request for each call", async () => {
    const { redis, sluice, logged } = await start();
    const onStoreDown = { local: 0.5 };
    const bucket = sluice.bucket("b", { rate: `${RATE}/s`, onStoreDown });
    await bucket.draw();
    await WITHOUT_REPLICAS.begin(redis);
    await bucket.draw();
    const sinceMs = performance.now();

    const calls = drawSteadily([bucket], { callers: 10 });
    await waitUntil(() => performance.now() > sinceMs + 3_000, "three seconds have passed");
    const passed = calls.slots.length / ((performance.now() - sinceMs) / 1_000);
    await WITHOUT_REPLICAS.end(redis);
    const before = calls.slots.length;
    await waitUntil(() => calls.slots.length > before + 2 * RATE, "calls go on");
    await calls.stop();

    // A busy machine loses slots; where each look ended the outage, it was a tenth.
    expect(passed).toBeGreaterThan(RATE * 0.5 * 0.4);
    expect(passed).toBeLessThan(RATE * 0.5 * 1.2);
    expect(logged.filter((line) => line.includes("continues in this process"))).toHaveLength(1);
    expect(calls.errors).toEqual([]);
    const extra = extraSlots(timesOf(calls.slots), { perSecond: RATE });
    expect(extra).toBeLessThanOrEqual(RATE / 10);
  });

  it("lets an open bucket pass all calls, and only the first one waits for Redis", async () => {
    const { redis, sluice, logged } = await start();
    const bucket = sluice.bucket("b", { rate: "20/s", burst: 5, onStoreDown: "open" });
    await bucket.draw();
    await AS_REPLICA.begin(redis);

    let waited = 0;
    const untilMs = performance.now() + 8 * TIMEOUT_MS;
    while (performance.now() < untilMs) {
      const fromMs = performance.now();
      await bucket.draw();
      if (performance.now() - fromMs > TIMEOUT_MS / 2) waited += 1;
      await new Promise((resolve) => setImmediate(resolve));
    }
    await AS_REPLICA.end(redis);
    await untilLimited(bucket);

    // A busy machine may stand still for as long once or twice; did each look wait, it were eight.
    expect(waited).toBeGreaterThanOrEqual(1);
    expect(waited).toBeLessThan(4);
    expect(logged.filter((line) => line.includes("WITHOUT ANY LIMIT"))).toHaveLength(1);
  });

  it.each([WITHOUT_REPLICAS, AS_REPLICA, AFTER_FAILED_SAVE])(
    "fails the calls of a refusing bucket with the reason, until Redis accepts writes: $word",
    async ({ word, begin, end }) => {
      const { redis, sluice, events } = await start();
      const bucket = sluice.bucket("b", { rate: "1000/s" });
      await bucket.draw();
      await begin(redis);

      const first = await rejectionOf(bucket.draw());
      const untilMs = performance.now() + 12 * TIMEOUT_MS;
      while (performance.now() < untilMs) {
        await rejectionOf(bucket.draw());
        await new Promise((resolve) => setImmediate(resolve));
      }
      const seen = events.map(({ state }) => state);
      await end(redis);
      await waitUntil(
        () =>
          bucket.draw().then(
            () => true,
            () => false,
          ),
        "calls pass",
      );

      expect(first).toBeInstanceOf(StoreUnavailableError);
      expect((first as Error).message).toContain(word);
      expect(seen).toEqual(["down"]);
      expect(events.map(({ state }) => state)).toEqual(["down", "up"]);
    },
  );

  it("lets the calls of a waiting bucket wait until Redis accepts writes", async () => {
    const { redis, sluice } = await start();
    const bucket = sluice.bucket("b", { rate: "1000/s", onStoreDown: "wait" });
    await bucket.draw();
    await AFTER_FAILED_SAVE.begin(redis);

    const calls = drawSteadily([bucket], { callers: 5 });
    const untilMs = performance.now() + 5 * TIMEOUT_MS;
    await waitUntil(() => performance.now() > untilMs, "two seconds have passed");
    const passed = calls.slots.length;
    await AFTER_FAILED_SAVE.end(redis);
    await waitUntil(() => calls.slots.length > 100, "calls pass");
    await calls.stop();

    expect(passed).toBe(0);
    expect(calls.errors).toEqual([]);
  });
});
