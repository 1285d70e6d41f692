import { LRUCache } from "lru-cache";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Limit } from "../../../../src/core/limits/rule.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { TryDecision } from "../../../../src/throttle/try/decision.ts";
import type { Group } from "../../../../src/throttle/waiting/group.ts";
import { createRefusals } from "../../../../src/throttle/try/try-draw.ts";
import { deferred } from "../../../support/async/deferred.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

const REFUSED = { retryAfterMs: 5_000, limits: [] as TryDecision["limits"] } as TryDecision;

/** Counts the entries that walks through caches look at. */
function countWalked(): () => number {
  type Entries = (this: unknown) => Generator<[{}, {}]>;
  const entries = Reflect.get(LRUCache.prototype, "entries") as Entries;
  let walked = 0;
  vi.spyOn(LRUCache.prototype, "entries").mockImplementation(function* (this: LRUCache<{}, {}>) {
    for (const entry of entries.call(this)) {
      walked += 1;
      yield entry;
    }
  });
  return () => walked;
}

/** So many keys have used up all that they have. */
async function refusedKeys(count: number) {
  const store = createMemoryStore();
  const { bucket } = createTestBucket({ perKey: { rate: "1/h", burst: 4 } }, { store });
  const keys = Array.from({ length: count }, (_, index) => `k${index}`);
  const slots = await Promise.all(keys.map((key) => bucket.draw({ key, cost: 4 })));
  for (const key of keys) await bucket.tryDraw({ key });
  const asked = vi.spyOn(store, "draw");
  const isAsked = async (key: string, cost = 1): Promise<boolean> => {
    const before = asked.mock.calls.length;
    await bucket.tryDraw({ key, cost });
    return asked.mock.calls.length > before;
  };
  return { bucket, slots, isAsked };
}

describe("refusals that are remembered", () => {
  it("are not all searched for a change notification of one key", async () => {
    const { bucket, slots, isAsked } = await refusedKeys(500);
    const walked = countWalked();

    for (const slot of slots) await slot.settle({ calls: 3 });

    expect(walked()).toBeLessThan(5_000);
    expect(await isAsked("k7")).toBe(true);
    await bucket.close();
  });

  it("are forgotten for all costs of a changed key, and for no other key", async () => {
    const { bucket, slots, isAsked } = await refusedKeys(2);
    await bucket.tryDraw({ key: "k0", cost: 2 });
    await bucket.tryDraw({ key: "k0", cost: 2 });
    const before = [await isAsked("k0"), await isAsked("k0", 2), await isAsked("k1")];

    await slots[0]!.settle({ calls: 3 });

    const after = [await isAsked("k0"), await isAsked("k0", 2), await isAsked("k1")];
    expect(before).toEqual([false, false, false]);
    expect(after).toEqual([true, true, false]);
    await bucket.close();
  });

  it("make room for newer ones, and none is found after its key has changed", () => {
    const refusals = createRefusals();
    const limits: readonly Limit[] = [];
    const groupOf = (key: string) =>
      ({ name: `1:${key}`, scopes: [{ key, limits }] }) as unknown as Group;
    for (let index = 0; index <= 10_000; index++)
      refusals.keep(groupOf(`k${index}`), REFUSED, 60_000);
    const isKept = (key: string): boolean => refusals.find(groupOf(key)) !== undefined;
    const before = [isKept("k0"), isKept("k1"), isKept("k5000")];

    for (const key of ["k0", "k5000"]) refusals.forget(key);
    refusals.keep(groupOf("k0"), REFUSED, 60_000);

    expect(before).toEqual([false, true, true]);
    expect([isKept("k0"), isKept("k1"), isKept("k5000")]).toEqual([true, true, false]);
  });

  it.each([
    ["the endpoint", ["acme", "e1"]],
    ["its customer", "acme"],
  ])("are none of those that were under way when a pause of %s ended", async (_whose, paused) => {
    const memory = createMemoryStore();
    let isAnswering: Promise<void> = Promise.resolve();
    const store: Store = {
      ...memory,
      async draw(request) {
        const drawn = await memory.draw(request);
        await isAnswering;
        return drawn;
      },
    };
    const { bucket } = createTestBucket({ perKey: [{ rate: "9/s" }, { rate: "9/s" }] }, { store });
    const key = ["acme", "e1"];
    await bucket.pause({ key: paused, forMs: 60_000 });
    const answer = deferred();
    isAnswering = answer.promise;
    const underWay = bucket.tryDraw({ key });
    await vi.advanceTimersByTimeAsync(1);

    await bucket.resume({ key: paused });
    answer.resolve();
    const first = await underWay;
    const second = await bucket.tryDraw({ key });

    expect([first.allowed, second.allowed]).toEqual([false, true]);
    await bucket.close();
  });

  it.each([
    ["the bucket's", { rate: "1000/s", concurrency: 1 }],
    ["a key's", { perKey: { concurrency: 1 } }],
    ["a key's beside the bucket's rate", { rate: "1000/s", perKey: { concurrency: 1 } }],
  ])(
    "are forgotten when a pause ends, where %s leases may be free then",
    async (_whose, policy) => {
      const store = createMemoryStore();
      const [holder, other] = [1, 2].map(() => createTestBucket(policy, { store }).bucket);
      const held = await holder!.draw({ key: "k" });
      await holder!.pause({ forMs: 50 });
      const before = await other!.tryDraw({ key: "k" });

      await vi.advanceTimersByTimeAsync(60);
      held.release();
      await vi.advanceTimersByTimeAsync(1);
      const after = await other!.tryDraw({ key: "k" });

      expect([before.allowed, after.allowed]).toEqual([false, true]);
      await Promise.all([holder!.close(), other!.close(), vi.advanceTimersByTimeAsync(100)]);
    },
  );
});
