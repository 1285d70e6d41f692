import { describe, expect, it } from "vitest";
import type { Slot } from "sluice";
import { worstWindow } from "sluice/testing";
import { Redis } from "ioredis";
import { openSluice, portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 300;
/** What may have been booked when the bucket's state is lost. */
const HORIZON_CALLS = RATE / 10;

/** Three replicas with a backlog; their slots as they come. */
function callFromThree(url: string, count: number) {
  const slots: Slot[] = [];
  const calls = Array.from({ length: 3 }, () => {
    const sluice = openSluice({ redis: url, storeTimeoutMs: 30_000 });
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    return Promise.all(Array.from({ length: count }, async () => slots.push(await bucket.draw())));
  });
  return { slots, ended: Promise.all(calls) };
}

describe("after Redis restarts without its data", () => {
  it("all replicas continue by themselves, with at most a horizon of extra calls", async () => {
    const redis = await startOwnRedis();
    const { slots, ended } = callFromThree(redis.url, 200);
    await waitUntil(() => slots.length > 150, "calls leave");

    await redis.stop();
    await startOwnRedis({ port: portOf(redis) });
    await ended;

    const atMs = timesOf(slots);
    reportFigures("Redis restarts and has forgotten everything, calls", figuresOf(atMs, RATE));
    expect(slots).toHaveLength(600);
    for (const windowMs of [100, 1_000]) {
      const most = Math.ceil((RATE * windowMs) / 1_000) + HORIZON_CALLS + 1;
      expect(worstWindow(atMs, windowMs)).toBeLessThanOrEqual(most);
    }
  });
});

describe("when Redis loses its scripts, data or clients under load", () => {
  it.each([
    ["SCRIPT FLUSH", 0, (client: Redis) => client.script("FLUSH")],
    ["FLUSHALL", HORIZON_CALLS, (client: Redis) => client.flushall()],
    ["CLIENT KILL", 0, (client: Redis) => client.client("KILL", "TYPE", "normal", "SKIPME", "yes")],
  ] as const)(
    "by %s, no caller gets an error, and at most %i extra calls start each time",
    async (name, most, strike) => {
      const redis = await startOwnRedis();
      const operator = new Redis(redis.url);
      const { slots, ended } = callFromThree(redis.url, 100);

      const strikesAt = [50, 150, 250];
      for (const reached of strikesAt) {
        await waitUntil(() => slots.length > reached, `${reached} calls have left`);
        await strike(operator);
      }
      await ended;

      const figures = figuresOf(timesOf(slots), RATE);
      reportFigures(`${name} three times`, figures);
      expect(slots).toHaveLength(300);
      expect(figures.extra).toBeLessThanOrEqual(most * strikesAt.length);
      await operator.quit();
    },
  );
});
