import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { budget, concurrency, createSluice, leakyBucket, type Sluice } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = ownRedisServers();

/** Buckets in all the states that an operator looks for; resolves when they are told of. */
async function openAll(service: Sluice, operator: Sluice): Promise<string[]> {
  const local = { rate: "70/s", perKey: () => ({ rate: "5/s" as const }) } as const;
  const open = {
    plain: service.bucket("plain", { rate: "100/s" }),
    leases: service.bucket("leases", { limits: [leakyBucket("9/s"), concurrency(3)] }),
    keys: service.bucket("keys", { perKey: { rate: "5/s" } }),
    local: service.bucket("local", local),
    cool: service.bucket("cool", { rate: "100/s" }),
    paused: service.bucket("paused", { rate: "100/s" }),
    over: service.bucket("over", { rate: "100/s", perKey: { rate: "5/s" } }),
    away: service.bucket("away", { rate: "100/s" }),
  };
  await Promise.all(Object.values(open).map((bucket) => bucket.draw({ key: "acme" })));
  await open.over.configure({ rate: "20/s" }, { by: "ann", forMs: 3_600_000 });
  await open.paused.pause({ by: "bob", reason: "maintenance" });
  await open.cool.run(() => ({ status: 429, headers: { "retry-after": "600" } }));
  const names = Object.keys(open).toSorted();
  await waitUntil(
    async () => (await operator.overview()).buckets.length === names.length,
    "all are told of",
  );
  return names;
}

/** What moves by itself between two looks. */
function still(status: object): object {
  const rest: Record<string, unknown> = { ...status };
  for (const name of ["coolingForMs", "reports", "toldBy", "setBy", "limits", "turns", "replicas"])
    delete rest[name];
  return rest;
}

describe("an overview of several buckets", () => {
  it("shows the same as the status of each, in full and in brief", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    const names = await openAll(service, operator);
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    await redis.set(`${sluices.prefix()}:{away}:away:`, 60_000, "PX", 3_600_000);

    for (const looker of [operator, service]) {
      const whole = await looker.overview();
      const brief = await looker.overview({ brief: true });

      expect(whole.buckets.map(({ name }) => name)).toEqual(names);
      expect(brief.buckets.map(({ name }) => name)).toEqual(names);
      for (const [at, name] of names.entries()) {
        const own = await (await looker.find(name))!.status();
        const [one, other] = [whole.buckets[at]!, brief.buckets[at]!];
        const someMs = expect.any(Number) as number;
        const moving = { waiting: own.waiting, unreachableForMs: someMs, awayForMs: someMs };
        expect(still(one)).toEqual({ ...still(own), ...moving });
        expect(still(other)).toEqual({ ...still(own), ...moving });
        expect(one.limits.map((limit) => limit.name)).toEqual(
          own.limits.map(({ name: its }) => its),
        );
        expect(Object.keys(other)).not.toContain("limits");
        expect(one.turns).toEqual([]);
        expect(Object.keys(other)).not.toContain("turns");
      }
      const [away, cool, , , , over, paused] = brief.buckets;
      expect(away!.unreachableForMs).toBeGreaterThan(0);
      expect(cool!.coolingForMs).toBeGreaterThan(0);
      expect(over).toMatchObject({ policy: "20/s; per key 5/s", setBy: { by: "ann" } });
      expect(paused).toMatchObject({ pausedForMs: Infinity, pausedBy: { by: "bob" } });
      expect(JSON.parse(JSON.stringify(paused))).toMatchObject({ pausedForMs: "forever" });
    }
  });

  it("costs Redis one request for a hundred buckets in brief, and one more for each in full", async () => {
    const own = await servers.start();
    const { operator: redis } = own;
    const [service, operator] = [own.open(), own.open()];
    const names = Array.from({ length: 250 }, (_, at) => `b${at}`);
    await Promise.all(names.map((name) => service.bucket(name, { rate: "100/s" }).draw()));
    const page = { limit: 1_000 };
    await waitUntil(
      async () => (await operator.overview(page)).buckets.length === names.length,
      "all are told of",
    );
    // Nothing reports any more.
    await service.close();
    async function countOf(brief: boolean): Promise<number> {
      await redis.config("RESETSTAT");
      await operator.overview({ ...page, brief });
      const stats = await redis.info("commandstats");
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    }

    // Three read a hundred buckets each, and one reads the time for replicas, workers and outboxes.
    expect(await countOf(true)).toBe(4);
    expect(await countOf(false)).toBe(names.length + 4);
  });

  it("omits a bucket whose code no process has any more", async () => {
    const [service, operator] = [sluices.open(), sluices.open()];
    await service.bucket("api", { rate: "100/s" }).draw();
    await service.bucket("mail", { rate: "100/s" }).draw();
    await waitUntil(async () => (await operator.overview()).buckets.length === 2, "all are told");
    await service.close();
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());

    await redis.hset(`${sluices.prefix()}:{:fleet}:declared`, "api", "of another version");
    await redis.hdel(`${sluices.prefix()}:{:fleet}:declared`, "mail");
    await redis.del(`${sluices.prefix()}:{api}:state`);

    const { buckets, unreachable } = await operator.overview({ brief: true });
    expect(buckets).toEqual([]);
    expect(unreachable).toMatchObject([{ bucket: "api" }]);
    expect(unreachable[0]!.reason).toContain("run the same version");
  });
});

it("says in brief which buckets have budgets or members, and leaves these out", async () => {
  await using sluice = createSluice({ redis: "memory" });
  const limits = [budget({ unit: "usd", amount: 10, per: "year" })];
  await sluice.bucket("paid", { limits }).draw();
  await sluice.pool("pool", { members: { east: { rate: "9/s" } } }).draw();
  const brief = async () => (await sluice.overview({ brief: true })).buckets;

  await waitUntil(async () => (await brief()).length === 2, "both are listed");

  const [paid, pool] = await brief();
  expect(paid).toMatchObject({ name: "paid", hasBudgets: true, isPool: false });
  expect(pool).toMatchObject({ name: "pool", hasBudgets: false, isPool: true });
  expect(paid).not.toHaveProperty("budgets");
  expect(pool).not.toHaveProperty("members");
});
