import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { createManualClock } from "../../src/testing/manual-clock.ts";
import { createAsker, policyOf, type Asker } from "../support/asker.ts";
import { createPinnedRedisStore } from "../support/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const policy = policyOf({ rate: "10/s", burst: 3, concurrency: 5 });
const US = 1_000_000;
const BAD = { NaN: Number.NaN, half: 0.5, "2^53": 2 ** 53, Infinity };
type Tell = (asker: Asker, bad: number) => Promise<unknown>;
const TELLS: Readonly<Record<string, Tell>> = {
  "a settled cost": (asker, bad) => asker.settle(US, { calls: bad }),
  "the slot of a settled cost": (asker, bad) => asker.settle(bad, { calls: 1 }),
  "a slot given back": (asker, bad) => asker.giveBack([bad]),
  "a lease renewed": (asker, bad) => asker.renew([bad]),
  "a lease released": (asker, bad) => asker.release([bad]),
  "a pause": (asker, bad) => asker.steer({ do: "pause", forUs: bad }),
  "a gap": (asker, bad) => asker.steer({ do: "space", gapUs: bad, forUs: US }),
  "a cooldown": (asker, bad) =>
    asker.steer({ do: "cool", forUs: bad, rampUs: 0, slotUs: Number.MAX_SAFE_INTEGER }),
  "a cut": (asker, bad) =>
    asker.steer({ do: "cut", factor: bad, floor: 1, recoverUs: US, slotUs: 2 ** 52 }),
};

describe("a script in Redis that is told what is no whole number", () => {
  it.each(
    Object.keys(TELLS).flatMap((what) => Object.keys(BAD).map((bad) => [what, bad] as const)),
  )("refuses %s of %s and leaves every byte as it was", async (what, bad) => {
    const prefix = `t${randomUUID()}`;
    const store = createPinnedRedisStore(redis, { prefix, nowUs: createManualClock().nowUs });
    const asker = createAsker(store, { bucket: "b", name: "a", policy });
    const bytes = async (): Promise<string[]> => {
      const keys = (await redis.keys(`${prefix}*`)).sort();
      const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
      return keys.map((key, index) => `${key} ${dumps[index]!.toString("hex")}`);
    };
    await asker.draw(2);
    const before = await bytes();

    const told = TELLS[what]!(asker, BAD[bad as keyof typeof BAD]);

    await expect(told).rejects.toThrow("SLUICE_BAD_ARGUMENT");
    expect(await bytes()).toEqual(before);
  });
});
