import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { StoreUnavailableError, type Bucket, type StoreEvent } from "sluice";
import { startRedis } from "../../support/redis/local-redis.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { outages } from "../../support/children/outages.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const { start } = outages();
const servers = ownRedisServers();

/** Draws one after the other until the breaker has opened; tells how many. */
async function drawUntilDown(bucket: Bucket, isDown: () => boolean): Promise<number> {
  let draws = 0;
  await waitUntil(async () => {
    draws += 1;
    await bucket.draw().catch(() => undefined);
    return isDown();
  }, "the breaker has opened");
  return draws;
}

/** How many scripts and probes a server has run. */
async function asked(url: string): Promise<number> {
  const client = new Redis(url);
  const stats = await client.info("commandstats");
  await client.quit();
  const calls = ["evalsha", "eval", "del"].map((name) =>
    Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0),
  );
  return calls.reduce((sum, each) => sum + each, 0);
}

describe("a Redis that accepts commands and does not reply", () => {
  it("gets no more requests after three failures, until a probe succeeds", async () => {
    const outage = await start();
    const { sluice, events, logged } = outage.open();
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    await bucket.draw();
    outage.begin();
    const draws = await drawUntilDown(bucket, () => events.length > 0);
    const askedBefore = await asked(outage.redis.url);

    const reasons: unknown[] = [];
    for (let each = 0; each < 50; each++) reasons.push(await rejectionOf(bucket.draw()));
    for (let each = 0; each < 50; each++) reasons.push(await rejectionOf(bucket.tryDraw()));
    const askedWhileOpen = (await asked(outage.redis.url)) - askedBefore;
    outage.end();
    const endedMs = performance.now();
    await waitUntil(() => events.length > 1, "the breaker has closed");
    const recoveryMs = performance.now() - endedMs;
    await bucket.draw();

    reportFigures("Redis takes commands and does not answer", {
      recoveryMs,
      "draws until the circuit breaker opens": draws,
      "asked while it is open": askedWhileOpen,
    });
    expect(reasons.every((reason) => reason instanceof StoreUnavailableError)).toBe(true);
    expect(String(reasons[0])).toContain("is not being asked now");
    expect(askedWhileOpen).toBe(0);
    const server = `127.0.0.1:${outage.proxy.port}`;
    expect(events).toEqual([
      { state: "down", server },
      { state: "up", server },
    ]);
    const loggedOfServer = logged.filter((line) => line.includes(server));
    expect(loggedOfServer).toEqual([
      `warn: Redis at ${server} has failed repeatedly; only probes are sent until one succeeds.`,
      `warn: Redis at ${server} answers again.`,
    ]);
  });
});

describe("a Redis that replies again just when the breaker opens", () => {
  it("is used immediately, not after the next probe", async () => {
    const redis = await servers.start();
    const sluice = redis.open({ storeTimeoutMs: 400, breaker: { probeMs: 600_000 } });
    const states: string[] = [];
    sluice.on("store", ({ state }) => {
      states.push(state);
      if (state === "down") redis.signal("SIGCONT");
    });
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    await bucket.draw();
    redis.signal("SIGSTOP");
    await drawUntilDown(bucket, () => states.length > 0);

    await waitUntil(() => states.length > 1, "the breaker has closed");

    expect(states).toEqual(["down", "up"]);
  });
});

describe("a Redis that has stopped", () => {
  it("is reported with the error of its connection", async () => {
    const redis = await servers.start();
    const sluice = redis.open({ storeTimeoutMs: 400, breaker: { probeMs: 600_000 } });
    const events: StoreEvent[] = [];
    sluice.on("store", (event) => events.push(event));
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    await bucket.draw();

    redis.signal("SIGKILL");
    await drawUntilDown(bucket, () => events.length > 0);

    expect(events[0]).toMatchObject({
      state: "down",
      reason: expect.stringContaining("ECONNREFUSED"),
    });
  });
});

describe("a Redis that is stopped and started again", () => {
  it("is used again without a restart of the process", async () => {
    const outage = await start();
    const { sluice, events } = outage.open();
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    await bucket.draw();
    const port = Number(new URL(outage.redis.url).port);
    await outage.redis.stop();
    await drawUntilDown(bucket, () => events.length > 0);

    const again = await startRedis({ fresh: true, port });
    await waitUntil(() => events.at(-1)?.state === "up", "the breaker has closed");

    await expect(bucket.draw()).resolves.toMatchObject({ bucket: "b" });
    await again.stop();
  });
});

describe("one of two independent servers that does not reply", () => {
  it("opens its own breaker, and not that of the other server", async () => {
    const [first, second] = [await start(), await start()];
    const shards = [first, second].map(({ proxy }) => `redis://127.0.0.1:${proxy.port}`);
    const { sluice, events } = first.open({ redis: undefined, shards });
    const names = Array.from({ length: 20 }, (_, index) => `b${index}`);
    const buckets = names.map((name) => sluice.bucket(name, { rate: "1000/s" }));
    await Promise.all(buckets.map((bucket) => bucket.draw()));

    first.begin();
    await waitUntil(async () => {
      await Promise.allSettled(buckets.map((bucket) => bucket.draw()));
      return events.length > 0;
    }, "a breaker has opened");
    const outcomes = await Promise.allSettled(buckets.map((bucket) => bucket.draw()));

    expect(events).toEqual([{ state: "down", server: `127.0.0.1:${first.proxy.port}` }]);
    const statuses = new Set(outcomes.map(({ status }) => status));
    expect(statuses).toEqual(new Set(["fulfilled", "rejected"]));
  });
});
