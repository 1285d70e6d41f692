import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { createTestBucket, type TestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

type Bucket = TestBucket["bucket"];

const ways: Record<string, (bucket: Bucket) => Promise<boolean>> = {
  draw: async (bucket) => {
    const { waitedMs } = await bucket.draw();
    return waitedMs === 0;
  },
  tryDraw: async (bucket) => (await bucket.tryDraw()).allowed,
};

describe.each(Object.entries(ways))(
  "a store that has lost a bucket, found by %s",
  (_way, goesAtOnce) => {
    /** Whether a call goes at once when the store has lost a bucket whose burst was not used up. */
    async function afterLoss(options: { onStateLost?: "empty" | "full" }): Promise<boolean> {
      const stores = [createMemoryStore(), createMemoryStore()] as const;
      let store = stores[0];
      const { bucket } = createTestBucket(
        { rate: "1/s", burst: 5, ...options },
        { store: { ...store, draw: (request) => store.draw(request) } },
      );
      await goesAtOnce(bucket);
      await vi.advanceTimersByTimeAsync(10);
      store = stores[1];

      const going = goesAtOnce(bucket);
      await vi.advanceTimersByTimeAsync(2_000);
      await bucket.close();
      return going;
    }

    it("has calls spaced out as after a burst", async () => {
      expect(await afterLoss({})).toBe(false);
    });

    it("lets a burst leave where onStateLost is full", async () => {
      expect(await afterLoss({ onStateLost: "full" })).toBe(true);
    });
  },
);
