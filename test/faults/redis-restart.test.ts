import { describe, expect, it } from "vitest";
import type { Slot } from "sluice";
import { worstWindow } from "sluice/testing";
import { Redis } from "ioredis";
import { openSluice, portOf, startOwnRedis } from "../support/for-one-test.ts";
import { waitUntil } from "../support/wait-until.ts";

/** Three replicas with a backlog; their slots as they come. */
function callFromThree(url: string, count: number) {
  const slots: Slot[] = [];
  const calls = Array.from({ length: 3 }, () => {
    const sluice = openSluice({ redis: url, storeTimeoutMs: 30_000 });
    const bucket = sluice.bucket("b", { rate: "300/s" });
    return Promise.all(Array.from({ length: count }, async () => slots.push(await bucket.draw())));
  });
  return { slots, ended: Promise.all(calls) };
}

describe("Redis restarts and has forgotten everything", () => {
  it("and all replicas go on by themselves, with no more than a horizon of extra calls", async () => {
    const redis = await startOwnRedis();
    const { slots, ended } = callFromThree(redis.url, 200);
    await waitUntil(() => slots.length > 150, "calls leave");

    await redis.stop();
    await startOwnRedis({ port: portOf(redis) });
    await ended;

    const atMs = slots.map((slot) => slot.atMs);
    expect(slots).toHaveLength(600);
    for (const windowMs of [100, 1_000]) {
      const most = Math.ceil(0.3 * windowMs) + Math.ceil(0.3 * 100) + 1;
      expect(worstWindow(atMs, windowMs)).toBeLessThanOrEqual(most);
    }
  });
});

describe("Redis forgets its scripts, its data or its clients under load", () => {
  it.each([
    ["SCRIPT FLUSH", (client: Redis) => client.script("FLUSH")],
    ["FLUSHALL", (client: Redis) => client.flushall()],
    ["CLIENT KILL", (client: Redis) => client.client("KILL", "TYPE", "normal", "SKIPME", "yes")],
  ])("by %s, and no caller sees an error", async (_name, strike) => {
    const redis = await startOwnRedis();
    const operator = new Redis(redis.url);
    const { slots, ended } = callFromThree(redis.url, 100);

    for (const reached of [50, 150, 250]) {
      await waitUntil(() => slots.length > reached, `${reached} calls have left`);
      await strike(operator);
    }
    await ended;

    expect(slots).toHaveLength(300);
    await operator.quit();
  });
});
