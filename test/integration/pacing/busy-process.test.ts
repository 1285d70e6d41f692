import { describe, expect, it, vi } from "vitest";
import { fixedWindow, type Logger } from "sluice";
import { block } from "../../support/async/block.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = ownRedisServers();

describe("a process that stands still while its slots come", () => {
  it("loses nothing of a daily quota", async () => {
    const bucket = sluices.open().bucket("daily", { limits: [fixedWindow(1_000, "1d")] });
    await bucket.draw();

    const calls = Array.from({ length: 700 }, () => bucket.draw());
    await new Promise((resolve) => setImmediate(resolve));
    block(300);
    await Promise.all(calls);

    expect((await bucket.peek()).limits[0]!.remaining).toBe(1_000 - 701);
  });
});

/** Asks, and then stands still for longer than an answer may take, with what it asked on its way. */
async function askAndStandStill<Answer>(ask: () => Promise<Answer>, ms: number): Promise<Answer> {
  const answer = ask();
  await new Promise<void>((resolve) => process.nextTick(resolve));
  block(ms);
  return answer;
}

async function connectionsEver({ operator }: OwnRedis): Promise<number> {
  return Number(/total_connections_received:(\d+)/.exec(await operator.info("stats"))![1]);
}

describe("a process that stands still for longer than Redis may take", () => {
  it("does not report Redis as unreachable", async () => {
    const warn = vi.fn<Logger["warn"]>();
    const logger = { warn, error: warn };
    const bucket = sluices.open({ storeTimeoutMs: 200, logger }).bucket("b", { rate: "1000/s" });
    await bucket.draw();

    for (let time = 0; time < 5; time++) {
      const { allowed } = await askAndStandStill(() => bucket.tryDraw(), 300);
      expect(allowed).toBe(true);
    }

    expect(warn).not.toHaveBeenCalled();
  });

  it("keeps its connection", async () => {
    const redis = await servers.start();
    const bucket = redis.open().bucket("b", { rate: "1000/s" });
    await bucket.draw();
    const connected = await connectionsEver(redis);

    await askAndStandStill(() => bucket.tryDraw(), 1_200);
    await bucket.draw();

    expect(await connectionsEver(redis)).toBe(connected);
  });

  it("stores its jobs", async () => {
    const sluice = sluices.open({ storeTimeoutMs: 200 });
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "1/s" }) });

    await askAndStandStill(() => queue.enqueue(1), 300);
    await askAndStandStill(() => queue.enqueue(2), 300);

    const { waiting } = await askAndStandStill(() => queue.counts(), 300);
    expect(waiting).toBe(2);
  });
});

describe("a policy that another replica has put in force", () => {
  it("fails the calls of a replica that cannot apply it, instead of letting them run unlimited", async () => {
    const newer = sluices.open().bucket("b", { perKey: () => ({ rate: "1/s" }) });
    const older = sluices.open().bucket("b", { rate: "10/s" });
    await older.draw({ key: "x" });

    await newer.draw({ key: "x" });
    const draws = Array.from({ length: 50 }, () => older.draw({ key: "x" }));
    const outcomes = await Promise.allSettled(draws);

    const started = outcomes.filter(({ status }) => status === "fulfilled");
    expect(started.length).toBeLessThanOrEqual(2);
    expect(outcomes.at(-1)).toMatchObject({ reason: { code: "ERR_INVALID_OPTION" } });
  });
});

describe("a key whose tier changes while its calls wait", () => {
  it("lets its calls and those of other keys continue", async () => {
    let tier = "free";
    const bucket = sluices.open().bucket("b", {
      rate: "1000/s",
      perKey: {
        tiers: { free: { rate: "5/s" }, pro: { rate: "50/s", burst: 2 } },
        tierOf: (key) => (key === "acme" ? tier : "free"),
      },
    });

    const calls = ["acme", "acme", "other", "other"].map((key) => bucket.draw({ key }));
    await calls[0];
    tier = "pro";
    calls.push(bucket.draw({ key: "acme" }), bucket.draw({ key: "third" }));
    await bucket.pause();
    await bucket.resume();

    await expect(Promise.all(calls)).resolves.toHaveLength(6);
  });
});
