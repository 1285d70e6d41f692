import process from "node:process";
import { hostname } from "node:os";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { leakyBucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

describe("the overview", () => {
  it("shows the buckets of all processes, whichever declares them", async () => {
    const [a, b, operator] = [sluices.open(), sluices.open(), sluices.open()];
    const local = { limits: [leakyBucket("70/s")], perKey: () => ({ rate: "5/s" as const }) };
    await a.bucket("api", { rate: "100/s" }).draw();
    await b.bucket("mail", { rate: "50/s", perKey: { rate: "5/s" } }).draw({ key: "acme" });
    await b.bucket("local", local).draw({ key: "acme" });

    await waitUntil(async () => (await operator.overview()).buckets.length === 3, "all are told");

    const { buckets, next, replicas } = await operator.overview();
    expect(buckets.map(({ name, policy, capPerSecond }) => [name, policy, capPerSecond])).toEqual([
      ["api", "100/s", 100],
      ["local", "70/s; per key by its tier", 70],
      ["mail", "50/s; per key 5/s", 50],
    ]);
    expect(next).toBeUndefined();
    expect(replicas).toHaveLength(2);
    expect(replicas[0]).toMatchObject({ host: hostname(), pid: process.pid });
    expect(replicas[0]!.version).toMatch(/^\d+\.\d+\.\d+/);
    const [own] = buckets;
    expect(own!.reports.map(({ replica }) => replica)).toEqual([
      replicas.find(({ replica }) => replica === own!.reports[0]!.replica)!.replica,
    ]);
    expect(own!.toldBy).toEqual(own!.reports);
  });

  it("counts the calls of all processes", async () => {
    const [a, b] = [sluices.open(), sluices.open()];
    const here = a.bucket("api", { rate: "10000/s", burst: 100 });
    const there = b.bucket("api", { rate: "10000/s", burst: 100 });

    const calls = Array.from({ length: 30 }, (_, at) => (at % 2 === 0 ? here : there).draw());
    await Promise.all([...calls, here.tryDraw(), there.run(() => 1)]);

    await waitUntil(
      async () =>
        (await a.bucket("api", { rate: "10000/s", burst: 100 }).status()).actualPerSecond >= 3.2,
      "all are counted",
    );
    const { actualPerSecond, reports } = await here.status();
    expect(actualPerSecond).toBe(3.2);
    expect(reports).toHaveLength(2);
    const { stepMs, points } = await here.history();
    expect(stepMs).toBe(10_000);
    expect(points.reduce((total, { started }) => total + started, 0)).toBe(32);
  });

  it("shows pending callers by priority, how long they have waited, and for which limit", async () => {
    const [a, operator] = [sluices.open(), sluices.open()];
    const bucket = a.bucket("api", { rate: "100/s" });
    await bucket.draw();
    await bucket.pause({ by: "ann", reason: "maintenance" });
    const waiting = [
      bucket.draw({ priority: "low" }),
      bucket.draw({ priority: "critical" }),
      bucket.draw(),
    ];

    await waitUntil(async () => {
      const [found] = (await operator.overview()).buckets;
      return found?.waiting.total === 3 && found.limitedBy !== undefined;
    }, "the operator sees who waits");

    const [found] = (await operator.overview()).buckets;
    expect(found).toMatchObject({
      limitedBy: "a pause",
      pausedBy: { by: "ann", reason: "maintenance" },
      waiting: { total: 3, byPriority: { critical: 1, high: 0, normal: 1, low: 1 } },
    });
    expect(found!.waiting.oldestMs).toBeGreaterThan(0);
    await bucket.resume();
    await Promise.all(waiting);
    await waitUntil(
      async () => (await operator.overview()).buckets[0]!.waiting.total === 0,
      "nobody waits",
    );
    await a.close();
    const waited = (await (await operator.find("api"))!.history()).points.map(
      (each) => each.waiting,
    );
    expect(new Set(waited.flatMap((each) => Object.keys(each)))).toEqual(
      new Set(["critical", "normal", "low"]),
    );
    expect(waited.every(({ normal = 0 }) => normal < 1)).toBe(true);
  });

  it("forgets a process that was closed", async () => {
    const [a, operator] = [sluices.open(), sluices.open()];
    await a.bucket("api", { rate: "100/s" }).draw();
    await waitUntil(async () => (await operator.overview()).replicas.length === 1, "it is told of");

    await a.close();

    const { replicas, buckets } = await operator.overview();
    expect(replicas).toEqual([]);
    expect(buckets.map(({ name, reports }) => [name, reports])).toEqual([["api", []]]);
    expect((await operator.bucket("api", { rate: "100/s" }).history()).points).toMatchObject([
      { started: 1 },
    ]);
  });

  it("comes in pages", async () => {
    const [a, operator] = [sluices.open(), sluices.open()];
    const names = ["a", "b", "c", "d", "e"];
    await Promise.all(names.map((name) => a.bucket(name, { rate: "100/s" }).draw()));
    await waitUntil(async () => (await operator.overview()).buckets.length === 5, "all are told");

    const first = await operator.overview({ limit: 2 });
    const second = await operator.overview({ limit: 3, after: first.next! });

    expect([...first.buckets, ...second.buckets].map(({ name }) => name)).toEqual(names);
    expect(first.next).toBe("b");
    expect(second.next).toBeUndefined();
    for (const wrong of [{ limit: 0 }, { limit: 1_001 }, { after: 7 }, { bucket: "a" }]) {
      const error = await rejectionOf(operator.overview(wrong as object));
      expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: Object.keys(wrong)[0] });
    }
  });

  it("of a sluice in memory is of this process", async () => {
    const sluice = sluices.open({ redis: "memory" });
    const bucket = sluice.bucket("api", { rate: "100/s" });
    await bucket.draw();
    await waitUntil(async () => (await sluice.overview()).buckets.length === 1, "it is told");

    const { buckets, replicas } = await sluice.overview();

    expect(buckets[0]).toMatchObject({ name: "api", actualPerSecond: 0.1 });
    expect(replicas).toHaveLength(1);
  });

  it("keeps nothing of processes that were killed, and nothing for good", async () => {
    const service = sluices.open();
    const bucket = service.bucket("api", { rate: "1000/s" });
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const told = `${sluices.prefix()}:{:fleet}:reports:api`;
    const state = JSON.stringify({ waiting: [0, 0, 5, 0], oldestMs: 1, startedIn10s: 100 });
    for (let dead = 0; dead < 5; dead++) await redis.hset(told, `dead-${dead}`, `1|${state}`);

    await bucket.draw();
    await waitUntil(async () => (await redis.hlen(told)) === 1, "they are forgotten");

    expect(await bucket.status()).toMatchObject({ waiting: { total: 0 }, actualPerSecond: 0.1 });
    await bucket.configure({ rate: "500/s" }, { forMs: 60_000 });
    await bucket.pause({ forMs: 1 });
    await bucket.undo();
    const keys = await redis.keys(`${sluices.prefix()}:*`);
    expect(keys.length).toBeGreaterThan(8);
    for (const key of keys) expect([key, (await redis.pttl(key)) > 0]).toEqual([key, true]);
  });
});
