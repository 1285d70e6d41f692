import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { compilePolicy } from "../../src/core/policy.ts";
import type { DrawRequest } from "../../src/core/store.ts";
import { runScript } from "../../src/redis/script.ts";
import { slotsDraw } from "../../src/redis/scripts/slots-draw.ts";
import { slotsReturn } from "../../src/redis/scripts/slots-return.ts";
import { slotsOf } from "../support/asker.ts";

let redis: Redis;
let prefix: string;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(() => {
  prefix = `t${randomUUID()}`;
});
afterAll(async () => {
  await redis.quit();
});

const request: DrawRequest = {
  bucket: "b",
  asker: "a",
  wanted: 1,
  cost: 1,
  horizonUs: 100_000,
  policy: compilePolicy("test", { rate: "10/s", burst: 3 }),
  generation: 0,
  drewUs: 0,
  turnUs: 0,
};
const keysOf = async (): Promise<string[]> => (await redis.keys(`${prefix}*`)).sort();

describe("a bucket's keys in Redis", () => {
  it("share one hash tag, and each expires by itself", async () => {
    const first = await runScript(redis, slotsDraw, { ...request, prefix, wanted: 50 });
    const other = { ...request, prefix, asker: "other", wanted: 50 };
    await runScript(redis, slotsDraw, other);
    await runScript(redis, slotsReturn, {
      prefix,
      bucket: "b",
      asker: "a",
      cost: 1,
      generation: first.generation,
      slotsUs: [first.nowUs + 50_000],
    });

    const keys = await keysOf();

    expect(keys).toEqual(["holes", "state", "turns"].map((name) => `${prefix}:{b}:${name}`));
    for (const key of keys) expect(await redis.pttl(key)).toBeGreaterThan(0);
  });

  it("outlive the debt of a slow bucket", async () => {
    const policy = compilePolicy("test", { rate: "1/2d" });

    await runScript(redis, slotsDraw, { ...request, prefix, policy });

    const twoDaysMs = 2 * 86_400_000;
    expect(await redis.pttl(`${prefix}:{b}:state`)).toBeGreaterThanOrEqual(twoDaysMs);
  });

  it("keep their turns as long as the last of them is due", async () => {
    const policy = compilePolicy("test", { rate: "1/2d" });
    await runScript(redis, slotsDraw, { ...request, prefix, policy });

    await runScript(redis, slotsDraw, { ...request, prefix, policy, asker: "late" });

    const dueMs = 2 * 86_400_000 - 100;
    expect(await redis.pttl(`${prefix}:{b}:turns`)).toBeGreaterThanOrEqual(dueMs);
  });

  it.each([
    [{ wanted: 0 }],
    [{ wanted: 1.5 }],
    [{ wanted: Number.NaN }],
    [{ wanted: 2 ** 53 }],
    [{ cost: -1 }],
    [{ cost: 0 }],
    [{ cost: Number.NaN }],
    [{ cost: Infinity }],
    [{ horizonUs: -1 }],
    [{ generation: -1 }],
    [{ generation: 0.5 }],
    [{ drewUs: Number.NaN }],
    [{ policy: { count: 0, periodUs: 1, burst: 1 } }],
    [{ policy: { count: 1, periodUs: Number.NaN, burst: 1 } }],
    [{ policy: { count: 1, periodUs: 1, burst: 1.5 } }],
  ])("are not written to by a script that is given %j", async (bad) => {
    const refused = runScript(redis, slotsDraw, { ...request, prefix, ...bad });

    await expect(refused).rejects.toThrow("SLUICE_BAD_ARGUMENT");
    expect(await keysOf()).toEqual([]);
  });

  it("hold the very same bytes after a refused cost", async () => {
    await runScript(redis, slotsDraw, { ...request, prefix, wanted: 50 });
    const before = await redis.dump(`${prefix}:{b}:state`);

    const refused = runScript(redis, slotsDraw, { ...request, prefix, cost: 4 });

    await expect(refused).rejects.toThrow("SLUICE_COST_TOO_LARGE 3");
    expect(await redis.dump(`${prefix}:{b}:state`)).toEqual(before);
  });

  it("are found again after the server forgot its scripts", async () => {
    const first = await runScript(redis, slotsDraw, { ...request, prefix, wanted: 3 });
    await redis.script("FLUSH");

    const second = await runScript(redis, slotsDraw, { ...request, prefix, wanted: 1 });

    expect(slotsOf(second)[0]).toBe(slotsOf(first)[0]! + 100_000);
  });
});
