import { describe, expect, it, onTestFinished } from "vitest";
import { ClosedError } from "sluice";
import { children } from "../../support/children/child.ts";
import { ownRedisServers, redisNowMs } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, extraSlots, timesOf } from "../../support/draws/steady-draws.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** So slow that the 300 calls would take two and a half minutes. */
const RATE = 2;
const LEAVING = 10;
const WAITING = 300;
const FOR_MS = 4_000;
const servers = ownRedisServers();
const processes = children();

describe("replicas that are closed while calls wait", () => {
  it("start no more calls, reject pending calls, and free their slots", async () => {
    const redis = await servers.start();
    const staying = redis.open();
    const leaving = Array.from({ length: LEAVING }, () => redis.open());
    const policy = { rate: `${RATE}/s` };
    // Those of the others come later, and wait behind its first ones.
    const draws = drawSteadily([staying.bucket("b", policy)], { callers: 20 });
    let started = 0;
    const calls = leaving.map((sluice) =>
      sluice.bucket("b", policy).throttled(async () => void (started += 1)),
    );
    const outcomes = Array.from({ length: WAITING }, (_, index) =>
      calls[index % LEAVING]!().then(
        () => "left",
        (error) => error,
      ),
    );
    await waitUntil(() => draws.slots.length > 0 && started > RATE, "all call");

    const closingMs = await redisNowMs(redis.operator);
    await Promise.all(leaving.map((sluice) => sluice.close()));
    const startedBefore = started;
    await waitUntil(() => draws.slots.at(-1)!.atMs > closingMs + FOR_MS, "the other goes on");
    await draws.stop();
    const ended = await Promise.all(outcomes);

    const since = timesOf(draws.slots).filter((atMs) => atMs >= closingMs);
    const soon = since.filter((atMs) => atMs < closingMs + FOR_MS).length;
    reportFigures("ten sluices close while 300 calls wait", {
      [`slots of the next ${FOR_MS} ms that others use`]: soon,
    });
    expect(started).toBe(startedBefore);
    expect(ended.filter((outcome) => outcome === "left")).toHaveLength(started);
    expect(ended.filter((outcome) => outcome instanceof ClosedError)).toHaveLength(
      WAITING - started,
    );
    // Eight, and none if it waited behind those that left; a busy machine may cost it a slot.
    expect(soon).toBeGreaterThanOrEqual((RATE * FOR_MS) / 1_000 / 2);
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
