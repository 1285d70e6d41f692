import { expect, it } from "vitest";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

const SILENT = { warn: () => {}, error: () => {} };

it("a key that was alone before gets its share beside another key at once", async () => {
  const time = beginVirtualTime();
  try {
    const store = createMemoryStore(() =>
      Math.floor((performance.timeOrigin + time.now()) * 1_000),
    );
    const insight = createMemoryInsight();
    const common = { store, insight, logger: SILENT, isRemote: false, isCluster: false };
    const bucket = createBuckets(common).open("test", "api", { rate: "100/s", burst: 50 });
    const started = { before: 0, other: 0 };
    let hasEnded = false;
    async function loop(key: keyof typeof started): Promise<void> {
      while (!hasEnded) {
        await bucket.draw({ key });
        started[key] += 1;
      }
    }

    // Each batch is a little more than one draw may get.
    const batches: Promise<unknown>[] = [];
    for (let batch = 0; batch < 7; batch++) {
      for (let call = 0; call < 55; call++) batches.push(bucket.draw({ key: "before" }));
      await time.runUntil(time.now() + 650);
    }
    await Promise.all(batches);
    const loops = Array.from({ length: 30 }, () => [loop("before"), loop("other")]).flat();
    // What the key used at once before the other one came counts.
    await time.runUntil(time.now() + 1_000);
    const first = { ...started };
    await time.runUntil(time.now() + 2_000);
    hasEnded = true;
    const [before, other] = [started.before - first.before, started.other - first.other];
    await time.runUntil(time.now() + 5_000);
    await Promise.all(loops);

    expect(before + other).toBeGreaterThanOrEqual(196);
    expect(Math.abs(before - other)).toBeLessThanOrEqual(10);
  } finally {
    time.end();
  }
});
