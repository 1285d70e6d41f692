import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { fixedWindow, leakyBucket, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { scopesOf } from "../../../src/core/policy/per-key.ts";
import { compilePolicy } from "../../../src/core/policy/policy.ts";
import {
  NO_POSITION,
  type DrawRequest,
  type KeyScope,
  type Store,
  type SlotRequest,
} from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica } from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";

let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(async () => {
  await redis.quit();
});

const perKey = { limits: [tokenBucket({ capacity: 3, refill: "1/s" })] };
const policy = compilePolicy("test", { perKey });
const { limits, shares, text } = policy;
const [scope] = scopesOf(policy, "k") as [KeyScope];
const slotRequest: SlotRequest = {
  name: "1 k",
  scopes: [scope],
  costs: [1],
  wanted: 1,
  rank: 0,
  isBounded: false,
  sinceUs: 0,
  nextSinceUs: 0,
  lastSinceUs: 0,
};
const request: DrawRequest = {
  bucket: "b",
  asker: "a",
  terms: { limits, shares, text, version: 0 },
  slotRequests: [slotRequest],
  horizonUs: 0,
  drewUs: 0,
  position: NO_POSITION,
  lease: 1,
  leases: 0,
  isTry: true,
};
const fromSlotRequest = (wrong: object): object => ({
  slotRequests: [slotRequest, { ...slotRequest, scopes: [{ ...scope, key: "other" }], ...wrong }],
});
const fromLimit = (wrong: object): object =>
  fromSlotRequest({ scopes: [{ ...scope, limits: [{ ...scope.limits[0], ...wrong }] }] });

function open() {
  const prefix = `t${randomUUID()}`;
  const clock = createManualClock();
  const scripts: string[] = [];
  const onDrawn = (script: string): void => void scripts.push(script);
  const store = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs, onDrawn });
  const bytes = async (): Promise<Record<string, string>> => {
    const keys = (await redis.keys(`${prefix}*`)).sort();
    const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
    return Object.fromEntries(keys.map((key, index) => [key, dumps[index]!.toString("hex")]));
  };
  return { store, scripts, bytes, clock };
}

describe("a try for keys with one plain limit", () => {
  it.each<[string, object]>([
    ["zero wanted", fromSlotRequest({ wanted: 0 })],
    ["half a call wanted", fromSlotRequest({ wanted: 1.5 })],
    ["NaN wanted", fromSlotRequest({ wanted: Number.NaN })],
    ["2^53 wanted", fromSlotRequest({ wanted: 2 ** 53 })],
    ["a negative cost", fromSlotRequest({ costs: [-1] })],
    ["half a cost", fromSlotRequest({ costs: [0.5] })],
    ["a cost of NaN", fromSlotRequest({ costs: [Number.NaN] })],
    ["a cost above the capacity", fromSlotRequest({ costs: [4] })],
    ["NaN for the last draw", { drewUs: Number.NaN }],
    ["half a version", { terms: { ...request.terms, version: 0.5 } }],
    ["a negative version", { terms: { ...request.terms, version: -1 } }],
    ["a count of zero", fromLimit({ count: 0 })],
    ["a period of NaN", fromLimit({ periodUs: Number.NaN })],
    ["a capacity of 1.5", fromLimit({ capacity: 1.5 })],
  ])("is rejected before any write if it has %s", async (_what, wrong) => {
    const { store, bytes } = open();
    await store.draw(request);
    await store.draw(request);
    const before = await bytes();

    const refused = store.draw({ ...request, ...wrong });

    await expect(refused).rejects.toThrow(/SLUICE_(BAD_ARGUMENT|COST_TOO_LARGE)/);
    expect(await bytes()).toEqual(before);
  });

  it("is served by its own script once the bucket is known, and by slots-draw while anything is unusual", async () => {
    const { store, scripts, clock } = open();
    const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
    const tryOnce = (key: string): Promise<unknown> =>
      store.draw({ ...request, slotRequests: [{ ...slotRequest, scopes: [{ ...scope, key }] }] });
    await tryOnce("k");
    await tryOnce("k");
    await replica.steer({ do: "pause", durationUs: 1_000_000 }, "k");
    await tryOnce("k");
    await tryOnce("other");
    clock.advanceMs(1_001);
    await tryOnce("k");

    expect(scripts).toEqual([
      "bucket/slots-draw",
      "bucket/slots-try",
      "bucket/slots-draw",
      "bucket/slots-try",
      "bucket/slots-try",
    ]);
  });

  it.each<[string, Limit, Limit]>([
    [
      "a slower refill",
      tokenBucket({ capacity: 3, refill: "1/s" }),
      tokenBucket({ capacity: 3, refill: "1/min" }),
    ],
    ["a smaller burst", leakyBucket("1/min", { burst: 9 }), leakyBucket("1/min", { burst: 3 })],
    ["a shorter window", fixedWindow(3, "1d"), fixedWindow(3, "1h")],
  ])(
    "is served by slots-draw once its key has %s, and counts the earlier use",
    async (_what, before, after) => {
      const { store, scripts, clock } = open();
      const memory = createMemoryStore(clock.nowUs);
      const tryUnder = async (limit: Limit, asked: Store): Promise<object> => {
        const { text: sameText, perKey: own } = compilePolicy("test", {
          perKey: () => ({ limits: [limit] }),
        });
        const terms = { ...request.terms, text: sameText };
        const scopes = [{ ...scope, limits: own!.scopesOf("k")[0]!.limits }];
        const slotRequests = [{ ...slotRequest, scopes, wanted: 2 }];
        const { sentAtMs: _sentAtMs, ...reply } = await asked.draw({
          ...request,
          terms,
          slotRequests,
        });
        return reply;
      };

      for (const limit of [before, before, after])
        expect(await tryUnder(limit, store)).toEqual(await tryUnder(limit, memory));

      expect(scripts).toEqual(["bucket/slots-draw", "bucket/slots-try", "bucket/slots-draw"]);
    },
  );

  it("changes no byte when it is rejected", async () => {
    const { store, scripts, bytes, clock } = open();
    const all = { ...request, slotRequests: [{ ...slotRequest, wanted: 9 }] };
    await store.draw(all);
    clock.advanceMs(500);
    const before = await bytes();

    const { granted } = await store.draw(request);

    expect(scripts).toEqual(["bucket/slots-draw", "bucket/slots-try"]);
    expect(granted[0]!.run).toBeUndefined();
    expect(await bytes()).toEqual(before);
  });
});
