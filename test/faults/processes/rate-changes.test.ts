import { describe, expect, it } from "vitest";
import type { Slot } from "sluice";
import { ownRedisServers, redisNowMs } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { drawSteadily, extraSlots, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();
/** How soon a change is to hold for all replicas. */
const EFFECTIVE_MS = 1_000;

const between = (slots: readonly Slot[], fromMs: number, toMs: number): number[] =>
  timesOf(slots).filter((atMs) => atMs >= fromMs && atMs < toMs);

describe("a rate that changes while calls run", () => {
  it("applies to all replicas within a second, up and down, and a pause stops all calls", async () => {
    const redis = await servers.start();
    const replicas = Array.from({ length: 3 }, () => redis.open());
    const buckets = replicas.map((sluice) => sluice.bucket("b", { rate: "10/s" }));
    const [first, second, third] = buckets;
    const draws = drawSteadily(buckets, { callers: 100 });
    const now = (): Promise<number> => redisNowMs(redis.operator);
    const more = async (count: number): Promise<void> => {
      const before = draws.slots.length;
      await waitUntil(() => draws.slots.length >= before + count, "calls leave");
    };

    await more(15);
    // It is noted once more after it holds: calls leave at the new rate before it is told here.
    const changedMs = await now();
    await first!.configure({ rate: "100/s" });
    const fasterMs = await now();
    await more(200);
    await second!.pause();
    const pausedMs = await now();
    await waitUntil(async () => (await now()) > pausedMs + 2 * EFFECTIVE_MS, "the pause lasts");
    await third!.configure({ rate: "10/s" });
    const resumedMs = await now();
    await first!.resume();
    await more(20);
    await Promise.all(replicas.map((sluice) => sluice.close()));
    await draws.stop();

    const { slots } = draws;
    const late = between(slots, pausedMs, resumedMs).map((atMs) => atMs - pausedMs);
    const after = between(slots, resumedMs, Infinity);
    reportFigures("the rate goes 10, 100, pause, 10", {
      "ms until a faster rate": Math.min(...between(slots, fasterMs, Infinity)) - fasterMs,
      "ms into the pause of the last slot": Math.max(0, ...late),
      "ms until it goes on": Math.min(...after) - resumedMs,
    });
    expect(draws.errors).toEqual([]);
    expect(extraSlots(between(slots, 0, changedMs), { perSecond: 10 })).toBe(0);
    expect(extraSlots(between(slots, changedMs, resumedMs), { perSecond: 100 })).toBe(0);
    expect(extraSlots(after, { perSecond: 10 })).toBe(0);
    const fast = between(slots, fasterMs + EFFECTIVE_MS, pausedMs);
    expect(fast.length).toBeGreaterThan((50 * (pausedMs - fasterMs - EFFECTIVE_MS)) / 1_000);
    expect(between(slots, pausedMs + EFFECTIVE_MS, resumedMs)).toEqual([]);
  });
});
