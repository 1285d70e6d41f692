import { describe, expect, it, vi } from "vitest";
import { leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { atOnce, MINUTE_MS, refusedIn, told } from "../../../support/async/refusals.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

fakeTimers();

describe("a call that may go in time", () => {
  it("waits, and is notified when the pause ends early", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: MINUTE_MS });
    const slot = bucket.draw({ maxWaitMs: MINUTE_MS + 1_000 });
    await vi.advanceTimersByTimeAsync(1_000);

    await bucket.resume();
    await vi.advanceTimersByTimeAsync(100);

    expect((await slot).waitedMs).toBeLessThan(2_000);
    await bucket.close();
  });

  it("goes right after a resume, though others were refused right before", async () => {
    const store = createMemoryStore();
    const [here, there] = [1, 2].map(() => createTestBucket({ rate: "100/s" }, { store }).bucket);
    await here!.pause({ forMs: MINUTE_MS });
    expect(told(await refusedIn(there!), MINUTE_MS)).toEqual(atOnce("a pause"));
    const refused = rejectionOf(there!.draw({ maxWaitMs: 1_000 }));
    await vi.advanceTimersByTimeAsync(1);
    await refused;

    await here!.resume();
    const slot = there!.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(100);

    expect((await slot).bucket).toBe("test");
    await Promise.all([here!.close(), there!.close()]);
  });

  it("goes under another policy, though others were refused right before", async () => {
    const { bucket } = createTestBucket({ rate: "1/min" });
    await bucket.draw();
    expect(told(await refusedIn(bucket), MINUTE_MS)).toEqual(atOnce("1/min"));

    await bucket.configure({ rate: "100/s" });
    const slot = bucket.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(100);

    expect((await slot).bucket).toBe("test");
    await bucket.close();
  });

  it("waits for a slot that a caller holds here and may leave", async () => {
    const { bucket } = createTestBucket({ rate: "1/10s" });
    await bucket.draw();
    const leaving = new AbortController();
    const left = rejectionOf(bucket.draw({ signal: leaving.signal }));
    await vi.advanceTimersByTimeAsync(9_950);
    const slot = bucket.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(20);
    leaving.abort();
    await left;
    await vi.advanceTimersByTimeAsync(200);

    expect((await slot).waitedMs).toBeLessThan(300);
    await bucket.close();
  });

  it("waits its whole time behind a line, which others may leave", async () => {
    const { bucket } = createTestBucket({ rate: "10/s" });
    const leaving = new AbortController();
    const line = Array.from({ length: 100 }, () => bucket.draw({ signal: leaving.signal }));
    const ended = Promise.allSettled(line);
    const slot = bucket.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(500);
    leaving.abort();
    await vi.advanceTimersByTimeAsync(400);

    expect((await slot).waitedMs).toBeLessThan(1_000);
    await ended;
    await bucket.close();
  });

  it("waits for a lease, which may come free at any time", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const running = await bucket.draw();
    const next = bucket.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(900);
    running.release();
    await vi.advanceTimersByTimeAsync(50);

    const slot = await next;
    expect(slot.waitedMs).toBeGreaterThanOrEqual(900);
    slot.release();
    await bucket.close();
  });

  it("goes on what a call has given back that cost less", async () => {
    const limits = [leakyBucket("100/s"), leakyBucket("10/min", { unit: "tokens", burst: 10 })];
    const { bucket } = createTestBucket({ limits });
    const slot = await bucket.draw({ cost: { tokens: 10 } });
    const refused = rejectionOf(bucket.draw({ cost: { tokens: 5 }, maxWaitMs: 1_000 }));
    await vi.advanceTimersByTimeAsync(1);
    await refused;

    await slot.settle({ tokens: 1 });
    const next = bucket.draw({ cost: { tokens: 5 }, maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(200);

    expect((await next).bucket).toBe("test");
    await bucket.close();
  });
});
