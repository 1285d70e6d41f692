import { describe, expect, it } from "vitest";
import { CostTooLargeError } from "../../../../../src/core/errors.ts";
import { concurrency, leakyBucket } from "../../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../../src/core/store.ts";
import type { OwnedBucket } from "../../../../../src/throttle/bucket.ts";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

const advance = fakeTimers();
const PAUSE_MS = 2_000;

/** One replica holds the one lease, and three wait for it, one after the other: who starts after a change, and how much later. */
async function startsAfter(
  policy: object,
  change: (bucket: OwnedBucket) => Promise<unknown>,
): Promise<{ names: string[]; longestMs: number }> {
  const store = createMemoryStore();
  const buckets = Array.from({ length: 4 }, () => createTestBucket(policy, { store }).bucket);
  const [holder, ...waiters] = buckets;
  const held = await holder!.draw({ key: "k" });
  const names: string[] = [];
  let longestMs = 0;
  let sinceMs = 0;
  for (const [index, bucket] of waiters.entries()) {
    void bucket.draw({ key: "k" }).then((slot) => {
      names.push(`waiter ${index}`);
      longestMs = performance.now() - sinceMs;
      slot.release();
    });
    await advance(20);
  }

  await change(holder!);
  await advance(20);
  sinceMs = performance.now();
  held.release();
  await advance(6_000);
  await Promise.all([...buckets.map((bucket) => bucket.close()), advance(1)]);
  return { names, longestMs };
}

describe.each([
  ["the bucket's", { rate: "1000/s", concurrency: 1 }],
  ["the bucket's, where keys take turns,", { rate: "1000/s", concurrency: 1, fair: true }],
  ["a key's", { rate: "1000/s", perKey: { concurrency: 1 } }],
])("replicas that wait for one of %s leases", (_whose, policy) => {
  it.each<[string, number, (bucket: OwnedBucket) => Promise<unknown>]>([
    ["a resume of what is not paused", 0, (bucket) => bucket.resume()],
    ["a pause", PAUSE_MS, (bucket) => bucket.pause({ forMs: PAUSE_MS + 20 })],
    ["a change of their rate", 0, (bucket) => bucket.configure({ ...policy, rate: "500/s" })],
  ])("keep their places over %s", async (_what, shutMs, change) => {
    const { names, longestMs } = await startsAfter(policy, change);

    expect(names).toEqual(["waiter 0", "waiter 1", "waiter 2"]);
    // A place in which nobody stands any more holds a lease back until it is forgotten, for a second and a half.
    expect(longestMs - shutMs).toBeLessThan(100);
  });
});

describe.each([
  ["the bucket's", { limits: [concurrency(1)] }, {}],
  ["a key's", { limits: [] }, { perKey: { concurrency: 1 } }],
])(
  "a replica whose calls a change has refused, where it waited for one of %s leases",
  (_whose, shared, perKey) => {
    it("waits again, behind replicas that came in between", async () => {
      const store = createMemoryStore();
      const ofTokens = (burst: number) => ({
        limits: [leakyBucket("1000/s", { unit: "tokens", burst }), ...shared.limits],
        ...perKey,
      });
      // It hears of the change with its next try, and not as it asks for those who wait.
      const deafly: Store = { ...store, listen: (asker) => store.listen(asker, () => undefined) };
      const buckets = [store, deafly, store].map(
        (each) => createTestBucket(ofTokens(10), { store: each }).bucket,
      );
      const [holder, refused, other] = buckets as [OwnedBucket, OwnedBucket, OwnedBucket];
      const held = await holder.draw({ key: "k" });
      const names: string[] = [];
      const wait = async (name: string, bucket: OwnedBucket, tokens: number): Promise<void> => {
        const slot = await bucket.draw({ key: "k", cost: { tokens } });
        names.push(name);
        slot.release();
      };
      const refusing = wait("refused", refused, 8).catch((error: Error) => error);
      await advance(20);
      const waiting = [wait("other", other, 1)];
      await advance(20);

      await holder.configure(ofTokens(5));
      await refused.tryDraw({ key: "other" });
      expect(await refusing).toBeInstanceOf(CostTooLargeError);
      waiting.push(wait("again", refused, 1));
      await advance(2_000);
      held.release();
      await advance(2_000);
      await Promise.all([...waiting, ...buckets.map((bucket) => bucket.close()), advance(1)]);

      expect(names).toEqual(["other", "again"]);
    });
  },
);

describe("calls that give up in the lines of their keys after their bucket was paused", () => {
  it.each([
    { when: "with the pause", count: 1 },
    { when: "with the pause", count: 20 },
    { when: "later", count: 1 },
  ])("keep no position there: $count, $when", async ({ when, count }) => {
    const store = createMemoryStore();
    const policy = { rate: "10000/s", burst: 1_000, perKey: { rate: "1/s", burst: 12 } };
    const [here, there] = ["here", "there"].map(
      (replica) => createTestBucket(policy, { store, replica }).bucket,
    );
    const keys = Array.from({ length: count }, (_, index) => `key ${index}`);
    await Promise.all([...keys.map((key) => there!.draw({ key, cost: 12 })), advance(100)]);
    const leaving = new AbortController();
    const bounds = { maxWaitMs: when === "later" ? undefined : 60_000, signal: leaving.signal };
    const waiting = keys.map((key) => here!.draw({ key, cost: 12, ...bounds }));
    const ended = Promise.allSettled(waiting);
    await advance(100);
    await here!.pause({ forMs: 600_000 });
    await advance(100);
    await there!.resume();
    here!.redraw();
    await advance(50);
    leaving.abort();
    await ended;
    await advance(2_000);

    const tries = await Promise.all(keys.map((key) => there!.tryDraw({ key })));

    expect(tries.filter(({ allowed }) => !allowed)).toEqual([]);
    await Promise.all([here!.close(), there!.close()]);
  });
});
