import { afterEach, describe, expect, it } from "vitest";
import { createSluice, type Slot, type Sluice } from "sluice";
import { worstWindow } from "sluice/testing";
import { Redis } from "ioredis";
import { startRedis, type LocalRedis } from "../support/local-redis.ts";
import { waitUntil } from "../support/wait-until.ts";

let redis: LocalRedis | undefined;
let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  await redis?.stop();
});

/** Three replicas with a backlog; their slots as they come. */
function callFromThree(url: string, count: number) {
  const slots: Slot[] = [];
  const calls = Array.from({ length: 3 }, () => {
    const sluice = createSluice({ redis: url, storeTimeoutMs: 30_000 });
    opened.push(sluice);
    const bucket = sluice.bucket("b", { rate: "300/s" });
    return Promise.all(Array.from({ length: count }, async () => slots.push(await bucket.draw())));
  });
  return { slots, ended: Promise.all(calls) };
}

describe("Redis restarts and has forgotten everything", () => {
  it("and all replicas go on by themselves, with no more than a horizon of extra calls", async () => {
    redis = await startRedis({ fresh: true });
    const port = Number(new URL(redis.url).port);
    const { slots, ended } = callFromThree(redis.url, 200);
    await waitUntil(() => slots.length > 150, "calls leave");

    await redis.stop();
    redis = await startRedis({ fresh: true, port });
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
    redis = await startRedis({ fresh: true });
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
