import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import type { BucketOptions } from "../../../src/throttle/bucket-options.ts";
import { simulateLatency } from "../../support/simulate-latency.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

/** A store to which a question takes `thereMs`, and its reply `backMs`. */
function farStore({ thereMs, backMs }: { thereMs: number; backMs: number }): Store {
  const memory = createMemoryStore();
  return {
    ...memory,
    async draw(request) {
      const sentAtMs = performance.now();
      await simulateLatency(thereMs);
      const drawn = await memory.draw(request);
      await simulateLatency(backMs);
      return { ...drawn, sentAtMs };
    },
  };
}

describe("a process to which a reply takes its time", () => {
  it.each<[string, number, number, BucketOptions]>([
    ["20 ms, under a limit that all share", 20, 1_000, { rate: "1000/s" }],
    ["60 ms, under a limit that all share", 60, 1_000, { rate: "1000/s" }],
    ["60 ms, under a limit of its key", 60, 1_000, { perKey: { rate: "1000/s" } }],
    ["60 ms, under both", 60, 10, { rate: "1000/s", perKey: { rate: "10/s" } }],
  ])("%s: lets calls leave at the whole rate", async (_which, tookMs, perSecond, options) => {
    const store = farStore({ thereMs: tookMs / 2, backMs: tookMs / 2 });
    const { bucket } = createTestBucket(options, { store });
    const left: number[] = [];

    const drawing = Array.from({ length: perSecond }, async () => {
      await bucket.draw({ key: "a" });
      left.push(performance.now());
    });
    await vi.advanceTimersByTimeAsync(3_000);
    await Promise.all(drawing);

    const share = (1_000 - 1_000 / perSecond) / (left.at(-1)! - left[0]!);
    expect(share).toBeGreaterThan(0.99);
    await bucket.close();
  });

  it("asks no sooner than its turn comes there", async () => {
    const store = farStore({ thereMs: 10, backMs: 20 });
    const draw = vi.spyOn(store, "draw");
    const { bucket } = createTestBucket({ rate: "2/s" }, { store });

    const drawing = Promise.all(Array.from({ length: 4 }, () => bucket.draw()));
    await vi.advanceTimersByTimeAsync(3_000);
    await drawing;

    // One for each slot, as if it were near.
    expect(draw).toHaveBeenCalledTimes(4);
    await bucket.close();
  });
});
