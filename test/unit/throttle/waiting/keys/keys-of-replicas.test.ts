import { expect, it, vi } from "vitest";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import { createFarStore } from "../../../../support/draws/far-store.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { simulateLatency } from "../../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });
const FOR_MS = 20_000;

it.each([
  { replicas: 2, keys: 6 },
  { replicas: 3, keys: 4 },
  { replicas: 3, keys: 6 },
  { replicas: 6, keys: 6 },
  { replicas: 8, keys: 6 },
])(
  "$replicas replicas use 20/s in full while $keys keys of 5/s have callers at each, and serve each of them",
  async ({ replicas, keys }) => {
    const store = createMemoryStore();
    const options = { rate: "20/s", perKey: { rate: "5/s" } };
    const buckets = Array.from({ length: replicas }, () => createTestBucket(options, { store }));
    const endMs = performance.now() + FOR_MS;
    const calls = buckets.map(() => Array.from({ length: keys }, () => 0));

    const calling = buckets.flatMap(({ bucket }, replica) =>
      Array.from({ length: 3 * keys }, async (_, caller) => {
        const key = caller % keys;
        while (performance.now() < endMs) {
          await bucket.draw({ key: `key ${key}` });
          calls[replica]![key]! += 1;
        }
      }),
    );
    await advance(FOR_MS + 10_000);
    await Promise.all(calling);

    const counts = calls.flat();
    const waiting = 3 * counts.length;
    const total = counts.reduce((sum, count) => sum + count, 0) - waiting;
    expect(total / (20 * (FOR_MS / 1_000))).toBeGreaterThan(0.95);
    expect(Math.min(...counts) - 3).toBeGreaterThan(total / counts.length / 4);
    for (const { bucket } of buckets) await bucket.close();
  },
);

it("lets an urgent call wait at most an interval of its key and two horizons, whichever others call for it", async () => {
  const store = createMemoryStore();
  const options = { rate: "20/s", perKey: { rate: "5/s" } };
  const open = () => createTestBucket(options, { store }).bucket;
  const buckets = Array.from({ length: 8 }, open);
  const endMs = performance.now() + 60_000;

  const calling = buckets.flatMap((bucket) =>
    Array.from({ length: 18 }, async (_, caller) => {
      while (performance.now() < endMs) await bucket.draw({ key: `key ${caller % 6}` });
    }),
  );
  const own = open();
  const waitedMs: number[] = [];
  const urgent = (async () => {
    for (let call = 0; performance.now() < endMs; call += 1) {
      const slot = await own.draw({ key: "key 0", priority: "critical" });
      waitedMs.push(slot.waitedMs);
      await simulateLatency(700 + ((call * 137) % 600));
    }
  })();
  await advance(90_000);
  await Promise.all([...calling, urgent]);

  // The key's last slot may be a horizon ahead, and so may the shared slots that others have by then.
  expect(Math.max(...waitedMs)).toBeLessThanOrEqual(400);
  for (const bucket of [...buckets, own]) await bucket.close();
});

it.each([
  { keys: 10, most: 1.3, what: "one for each call, where 10 keys hold all calls back" },
  { keys: 100, most: 0.12, what: "few, where 100 keys share what all may have" },
  { keys: 100, most: 0.12, fair: true, what: "few, where 100 keys take turns" },
])("4 replicas ask seldom for calls of keys: $what", async ({ keys, most, fair }) => {
  const store = createFarStore({ thereMs: 0.5, backMs: 0.5 });
  const draw = vi.spyOn(store, "draw");
  const options = { rate: "1000/s", perKey: { rate: "50/s" }, fair };
  const buckets = Array.from({ length: 4 }, (_, replica) =>
    createTestBucket(options, { store, replica: `replica ${replica}` }),
  );
  const endMs = performance.now() + 4_000;
  let calls = 0;

  const calling = buckets.flatMap(({ bucket }) => {
    let next = 0;
    return Array.from({ length: 50 }, async () => {
      while (performance.now() < endMs) {
        await bucket.draw({ key: `key ${next++ % keys}` });
        calls += 1;
      }
    });
  });
  await advance(10_000);
  await Promise.all(calling);

  expect(draw.mock.calls.length / calls).toBeLessThan(most);
  for (const { bucket } of buckets) await bucket.close();
});
