import { describe, expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { jobCalls } from "../../support/jobs/lane-workers.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf } from "../../support/draws/steady-draws.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const HOUR_MS = 3_600_000;
const RATE = 100;
/** Calls that leave 10 ms apart, on connections of their own, may come in another order. */
const DISPLACED = 3;
const servers = ownRedisServers();
const processes = children();
const downstream = useDownstream();

/** A process whose wall clock is wrong by so much. */
function startShifted(file: string, args: readonly string[], shiftMs: number) {
  const env = { CLOCK_SHIFT_MS: String(shiftMs) };
  return processes.start(file, args, { preload: "shifted-clock.ts", env });
}

describe("processes whose wall clocks are an hour off, each way", () => {
  it("keep the shared limit", async () => {
    const redis = await servers.start();
    const args = [redis.url, "clock", `${RATE}/s`, downstream.url, "100"];
    const replicas = [0, HOUR_MS, -HOUR_MS].map((shiftMs) =>
      startShifted("replica.ts", args, shiftMs),
    );
    const areReady = (): boolean => replicas.every(({ messages }) => messages.includes("ready"));
    await waitUntil(areReady, "all are ready");

    for (const replica of replicas) replica.send("go");
    await Promise.all(replicas.map((replica) => replica.success()));

    const atMs = downstream.arrivals.map(({ headers }) => Number(headers["x-slot-ms"]));
    const figures = figuresOf(atMs, RATE);
    reportFigures("a process's clock is an hour off, calls", figures);
    expect(atMs).toHaveLength(300);
    expect(figures.extra).toBe(0);
  });

  it.each([HOUR_MS, -HOUR_MS])("do each job once and in order, %i ms off", async (shiftMs) => {
    const redis = await servers.start();
    const policy = { rate: `${RATE}/s` };
    const sluice = redis.open();
    const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) });
    const names = Array.from({ length: 200 }, (_, index) => String(index));
    await queue.enqueueMany(names, { key: "acme" });
    const settings = { redis: redis.url, prefix: "sluice", url: downstream.url, policy };
    const lockMs = 30_000;

    startShifted("workers/lane-worker.ts", [JSON.stringify({ ...settings, lockMs })], shiftMs);
    await waitUntil(() => downstream.arrivals.length >= names.length, "all are done");

    const calls = jobCalls(downstream.arrivals);
    const displaced = calls.map(({ job }, index) => Math.abs(Number(job) - index));
    reportFigures(`a process's clock is ${shiftMs / HOUR_MS} h off, jobs`, {
      again: calls.length - names.length,
      "places out of order, at most": Math.max(...displaced),
    });
    expect(new Set(calls.map(({ job }) => job)).size).toBe(names.length);
    expect(calls).toHaveLength(names.length);
    expect(calls.every(({ attempt }) => attempt === 1)).toBe(true);
    expect(Math.max(...displaced)).toBeLessThanOrEqual(DISPLACED);
  });
});
