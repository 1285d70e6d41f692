import { describe, expect, it, vi } from "vitest";
import {
  fixedWindow,
  leakyBucket,
  tokenBucket,
} from "../../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../../src/throttle/bucket/bucket-options.ts";
import { simulateLatency } from "../../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** A bucket that was drawn from once, three seconds ago, and whose next reply lies about for 250 ms; to settle takes a while. */
async function afterAQuietTime(options: BucketOptions, settleMs = 0) {
  const memory = createMemoryStore();
  let lieAboutMs = 0;
  const store: Store = {
    ...memory,
    async draw(request) {
      const drawn = await memory.draw(request);
      const heldMs = lieAboutMs;
      lieAboutMs = 0;
      await simulateLatency(heldMs);
      return drawn;
    },
    async settle(request) {
      await simulateLatency(settleMs);
      return memory.settle(request);
    },
  };
  const { bucket } = createTestBucket(options, { store });
  await bucket.draw();
  await vi.advanceTimersByTimeAsync(3_000);
  lieAboutMs = 250;
  return bucket;
}

describe("a reply that arrives more than a horizon late", () => {
  it("grants no slots whose time has passed", async () => {
    const bucket = await afterAQuietTime({ rate: "100/s" });
    const askedAtMs = performance.timeOrigin + performance.now();

    const drawing = bucket.draw();
    await vi.advanceTimersByTimeAsync(400);

    expect((await drawing).atMs).toBeGreaterThanOrEqual(askedAtMs + 250);
    await bucket.close();
  });

  it("uses no quota for calls that it did not start", async () => {
    const bucket = await afterAQuietTime({ limits: [fixedWindow(10, "1h")] });

    const drawing = Promise.all([1, 2, 3, 4].map(() => bucket.draw()));
    await vi.advanceTimersByTimeAsync(400);
    await drawing;

    expect((await bucket.peek()).limits[0]).toMatchObject({ level: 5 });
    await bucket.close();
  });

  it.each([
    ["leaky bucket", leakyBucket("1/h", { unit: "tokens", burst: 1_000 })],
    ["token bucket", tokenBucket({ unit: "tokens", capacity: 1_000, refill: "1/h" })],
  ])("takes no tokens of a %s for calls that it did not start", async (_kind, tokens) => {
    const limits = [leakyBucket("200/s"), tokens];
    const bucket = await afterAQuietTime({ limits });

    const drawing = Promise.all([1, 2, 3, 4].map(() => bucket.draw({ cost: { tokens: 100 } })));
    await vi.advanceTimersByTimeAsync(400);
    await drawing;

    expect((await bucket.peek()).limits[1]).toMatchObject({ level: 400 });
    await bucket.close();
  });

  it("leaves the call of a job in its line until its key has back what the slot took", async () => {
    const bucket = await afterAQuietTime({ rate: "200/s", perKey: { rate: "1/h" } }, 50);

    const drawing = bucket.drawForJob({ key: "slow", patienceMs: 200 }, new Set());
    await vi.advanceTimersByTimeAsync(1_000);

    expect(await drawing).toMatchObject({ key: "slow" });
    await bucket.close();
  });

  it("does not have a key wait for longer than that should take", async () => {
    const bucket = await afterAQuietTime({ rate: "200/s", perKey: { rate: "10/s" } }, 20_000);
    const askedAtMs = performance.now();
    let leftAtMs = Infinity;

    const drawing = bucket.draw({ key: "a" }).then(() => (leftAtMs = performance.now()));
    await vi.advanceTimersByTimeAsync(30_000);
    await drawing;

    expect(leftAtMs - askedAtMs).toBeLessThan(500);
    await bucket.close();
  });
});
