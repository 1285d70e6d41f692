import { expect, it } from "vitest";
import { createFarStore } from "../../../support/draws/far-store.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });
const FOR_MS = 20_000;

it.each([
  { rate: "2/s", replicas: 8, callers: 3 },
  { rate: "1/s", replicas: 4, callers: 5 },
  { rate: "5/s", replicas: 8, callers: 3 },
  { rate: "4/s", replicas: 3, callers: 10 },
] as const)(
  "$replicas replicas of $callers callers start equally many calls under $rate, one more or less",
  async ({ rate, replicas, callers }) => {
    const store = createFarStore({ thereMs: 1, backMs: 1 });
    const buckets = Array.from({ length: replicas }, (_, replica) =>
      createTestBucket({ rate }, { store, replica: `replica ${replica}` }),
    );
    const endMs = performance.now() + FOR_MS;
    const calls = buckets.map(() => 0);

    const calling = buckets.flatMap(({ bucket }, replica) =>
      Array.from({ length: callers }, async () => {
        for (;;) {
          await bucket.draw();
          if (performance.now() >= endMs) return;
          calls[replica]! += 1;
        }
      }),
    );
    await advance(2 * FOR_MS);
    await Promise.all(calling);

    expect(Math.max(...calls) - Math.min(...calls)).toBeLessThanOrEqual(2);
    for (const { bucket } of buckets) await bucket.close();
  },
);
