import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { readPerKeyText } from "../../../src/core/policy/per-key.ts";
import type { Policy } from "../../../src/core/policy/policy.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica, policyOf, type TestReplica } from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";

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
type Tell = (replica: TestReplica, bad: number) => Promise<unknown>;
const TELLS: Readonly<Record<string, Tell>> = {
  "a settled cost": (replica, bad) => replica.settle(US, { calls: bad }),
  "the slot of a settled cost": (replica, bad) => replica.settle(bad, { calls: 1 }),
  "a slot given back": (replica, bad) => replica.giveBack([bad]),
  "a lease renewed": (replica, bad) => replica.renew([bad]),
  "a lease released": (replica, bad) => replica.release([bad]),
  "a pause": (replica, bad) => replica.steer({ do: "pause", durationUs: bad }),
  "a gap": (replica, bad) => replica.steer({ do: "space", gapUs: bad, durationUs: US }),
  "a cooldown": (replica, bad) =>
    replica.steer({ do: "cool", durationUs: bad, rampUs: 1, slotUs: Number.MAX_SAFE_INTEGER }),
  "a cut": (replica, bad) =>
    replica.steer({
      do: "cut",
      factor: bad,
      floor: 1,
      recoverUs: US,
      durationUs: US,
      slotUs: 2 ** 52,
    }),
};

const REFUSED = { reason: expect.stringMatching("SLUICE_BAD_ARGUMENT"), hasChanged: false };

/** What becomes of something bad that an replica tells a bucket, and whether any byte is another after it. */
async function outcomeOf(
  bad: Policy,
  tell: (replica: TestReplica) => Promise<unknown>,
): Promise<{ reason: string; hasChanged: boolean }> {
  const prefix = `t${randomUUID()}`;
  const store = createPinnedRedisStore(redis, { prefix, nowUs: createManualClock().nowUs });
  const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
  const bytes = async (): Promise<string[]> => {
    const keys = (await redis.keys(`${prefix}*`)).sort();
    const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
    return keys.map((key, index) => `${key} ${dumps[index]!.toString("hex")}`);
  };
  await replica.draw(2);
  const before = await bytes();

  const told = tell(createTestReplica(store, { bucket: "b", name: "a", policy: bad }));

  const reason = await told.then(() => "none", String);
  const after = await bytes();
  return { reason, hasChanged: after.join() !== before.join() };
}

describe("a script in Redis that gets a number which is not whole", () => {
  it.each(
    Object.keys(TELLS).flatMap((what) => Object.keys(BAD).map((bad) => [what, bad] as const)),
  )("rejects %s of %s, and changes no byte", async (what, bad) => {
    const outcome = outcomeOf(policy, (replica) =>
      TELLS[what]!(replica, BAD[bad as keyof typeof BAD]),
    );

    await expect(outcome).resolves.toEqual(REFUSED);
  });
});

describe("a script in Redis that gets an impossible argument", () => {
  const none = { ...policy, limits: policy.limits.map((limit) => ({ ...limit, count: 0 })) };
  const { limits: fixed } = none;
  const perKey = readPerKeyText("test", fixed, undefined);
  const asks: Readonly<Record<string, (replica: TestReplica, key: string) => Promise<unknown>>> = {
    "a draw": (replica, key) => replica.drawAll([{ key, wanted: 1 }]),
    "a settled cost": (replica, key) => replica.settle(US, { calls: 1 }, key),
    "a slot given back": (replica, key) => replica.giveBack([US], 1, key),
    "a pause": (replica, key) => replica.steer({ do: "pause", durationUs: US }, key),
    "a look": (replica, key) => replica.peek(key),
  };

  it.each(Object.keys(asks))("rejects %s under a limit of 0", async (what) => {
    const outcome = outcomeOf(none, (replica) => asks[what]!(replica, "k"));

    await expect(outcome).resolves.toEqual(REFUSED);
  });

  it.each(Object.keys(asks))("rejects %s for a key with a limit of 0", async (what) => {
    const outcome = outcomeOf({ ...policy, perKey }, (replica) => asks[what]!(replica, "k"));

    await expect(outcome).resolves.toEqual(REFUSED);
  });

  it.each(["a lease renewed", "a lease released"])(
    "refuses %s under a limit of -1 calls at once",
    async (what) => {
      const limits = policy.limits.map((limit) => ({ ...limit, count: -1 }));

      const outcome = outcomeOf({ ...policy, limits }, (replica) => TELLS[what]!(replica, 1));

      await expect(outcome).resolves.toEqual(REFUSED);
    },
  );

  it("rejects a returned slot with a cost below 0", async () => {
    const outcome = outcomeOf(policy, (replica) => replica.giveBack([US], -1));

    await expect(outcome).resolves.toEqual(REFUSED);
  });
});
