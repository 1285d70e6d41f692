import { describe, expect, it } from "vitest";
import type { OwnedBucket } from "../../../src/throttle/owned-bucket.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import { fakeTimers } from "../../support/fake-timers.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

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
