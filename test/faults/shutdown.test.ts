import { describe, expect, it, onTestFinished } from "vitest";
import { ClosedError } from "sluice";
import { children } from "../support/child.ts";
import { ownRedisServers, redisNowMs } from "../support/own-redis.ts";
import { drawSteadily, extraSlots, timesOf, usedShare } from "../support/steady-draws.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { waitUntil } from "../support/wait-until.ts";

const RATE = 50;
const servers = ownRedisServers();
const processes = children();

describe("a replica that is closed while calls wait", () => {
  it("starts none once it is closed, fails those that wait, and leaves its slots to others", async () => {
    const redis = await servers.start();
    const [leaving, staying] = [redis.open(), redis.open()];
    const policy = { rate: `${RATE}/s` };
    let started = 0;
    const call = leaving.bucket("b", policy).throttled(async () => void (started += 1));
    const outcomes = Array.from({ length: 300 }, () =>
      call().then(
        () => "left",
        (error) => error,
      ),
    );
    const draws = drawSteadily([staying.bucket("b", policy)], { callers: 20 });
    await waitUntil(() => draws.slots.length > RATE && started > 10, "both call");

    const closingMs = await redisNowMs(redis.operator);
    await leaving.close();
    const startedBefore = started;
    await waitUntil(() => draws.slots.at(-1)!.atMs > closingMs + 3_000, "the other goes on");
    await draws.stop();
    const ended = await Promise.all(outcomes);

    const since = timesOf(draws.slots).filter((atMs) => atMs >= closingMs);
    const firstAfterMs = Math.min(...since) - closingMs;
    const used = usedShare([closingMs, ...since], RATE);
    console.log(JSON.stringify({ fault: "shutdown during waits", firstAfterMs, used }));
    expect(started).toBe(startedBefore);
    expect(ended.filter((outcome) => outcome === "left")).toHaveLength(started);
    expect(ended.filter((outcome) => outcome instanceof ClosedError)).toHaveLength(300 - started);
    expect(used).toBeGreaterThanOrEqual(0.95);
    expect(extraSlots(timesOf(draws.slots), { perSecond: RATE })).toBe(0);
  });
});

describe("a process whose connections broke before they were ready", () => {
  it("ends by itself once its sluice is closed", async () => {
    const redis = await servers.start();
    const proxy = await startTcpProxy(redis.port);
    onTestFinished(() => proxy.close());
    const process = processes.start("listener.ts", [`redis://127.0.0.1:${proxy.port}`]);
    await waitUntil(() => process.messages.length > 0, "it is at work");

    proxy.set("stall");
    proxy.cut();
    for (let cuts = 1; cuts <= 3; cuts++) {
      await waitUntil(() => proxy.kept > 0, "new connections ask whether Redis is ready");
      proxy.cut();
      proxy.set("stall");
    }
    proxy.set("pass");
    process.send("close");

    expect(await process.ended).toBe(0);
  });
});
