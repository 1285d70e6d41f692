import { describe, expect, it, vi } from "vitest";
import { LeaseLostError, StoreUnavailableError } from "../../../../src/core/errors.ts";
import { concurrency } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { deferred } from "../../../support/async/deferred.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

describe("a bucket whose calls hold leases", () => {
  it("renews the lease of a call that runs for longer than it lasts", async () => {
    const { bucket } = createTestBucket({ limits: [concurrency(1, { leaseMs: 1_000 })] });
    const long = bucket.throttled(() => simulateLatency(5_000))();
    await vi.advanceTimersByTimeAsync(4_000);

    const refused = await bucket.tryDraw();

    expect(refused.allowed).toBe(false);
    await vi.advanceTimersByTimeAsync(1_000);
    await expect(long).resolves.toBeUndefined();
    await bucket.close();
  });

  it("ends the lease of a call whose try was answered after the close", async () => {
    const memory = createMemoryStore();
    const { promise: isAnswered, resolve: answer } = deferred();
    let draws = 0;
    const store: Store = {
      ...memory,
      async draw(request) {
        draws += 1;
        if (draws === 2) await isAnswered;
        return memory.draw(request);
      },
    };
    const { bucket } = createTestBucket({ concurrency: 1 }, { store });
    (await bucket.tryDraw()).slot!.release();
    const late = bucket.tryDraw();
    await bucket.close();
    answer();
    const { signal } = (await late).slot!;

    await vi.advanceTimersByTimeAsync(30_000);

    expect(signal.reason).toBeInstanceOf(LeaseLostError);
  });

  it("aborts a call before its lease ends when the lease could not be renewed", async () => {
    const store = createMemoryStore();
    vi.spyOn(store, "renew").mockRejectedValue(new StoreUnavailableError("away"));
    const { bucket, warnings } = createTestBucket({ concurrency: 1 }, { store });
    const slot = await bucket.draw();
    const { signal } = slot;
    const startMs = performance.now();
    let toldMs = 0;
    signal.addEventListener("abort", () => (toldMs = performance.now() - startMs));

    await vi.advanceTimersByTimeAsync(30_000);

    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(toldMs).toBe(27_000);
    expect(warnings[0]!.message).toBe("Could not renew leases; retrying until they expire.");
    slot.release();
    await bucket.close();
  });

  it("aborts a call before its renewed lease ends when a later renewal fails", async () => {
    const memory = createMemoryStore();
    const renewedMs: number[] = [];
    const store: Store = {
      ...memory,
      async renew(request) {
        if (renewedMs.length > 0) throw new StoreUnavailableError("away");
        renewedMs.push(performance.now());
        return memory.renew(request);
      },
    };
    const limits = [concurrency(1, { leaseMs: 1_000 })];
    const { bucket } = createTestBucket({ limits }, { store });
    const startMs = performance.now();
    const slot = await bucket.draw();
    let toldMs = 0;
    slot.signal.addEventListener("abort", () => (toldMs = performance.now()));

    await vi.advanceTimersByTimeAsync(3_000);

    expect(toldMs).toBeGreaterThan(startMs + 1_000);
    expect(toldMs).toBeLessThan(renewedMs[0]! + 1_000);
    slot.release();
    await bucket.close();
  });

  it("counts a lease's time from when its renewal was asked for, however late the answer comes", async () => {
    const memory = createMemoryStore();
    const askedMs: number[] = [];
    const store: Store = {
      ...memory,
      async renew(request) {
        if (askedMs.length > 0) throw new StoreUnavailableError("away");
        askedMs.push(performance.now());
        const lost = await memory.renew(request);
        await simulateLatency(400);
        return lost;
      },
    };
    const { bucket } = createTestBucket(
      { limits: [concurrency(1, { leaseMs: 1_000 })] },
      { store },
    );
    const slot = await bucket.draw();
    let toldMs = 0;
    slot.signal.addEventListener("abort", () => (toldMs = performance.now()));

    await vi.advanceTimersByTimeAsync(3_000);

    expect(toldMs).toBeGreaterThan(askedMs[0]!);
    expect(toldMs).toBeLessThanOrEqual(askedMs[0]! + 1_000);
    slot.release();
    await bucket.close();
  });

  it("is renewed in time also when longer ones were there before it", async () => {
    const leaseOf = (leaseMs: number) => ({ limits: [concurrency(1, { leaseMs })] });
    const perKey = (key: string) => leaseOf(key === "long" ? 60_000 : 1_000);
    const { bucket } = createTestBucket({ perKey });
    const long = await bucket.draw({ key: "long" });
    const short = await bucket.draw({ key: "short" });

    await vi.advanceTimersByTimeAsync(9_000);

    expect([long, short].map(({ signal }) => signal.aborted)).toEqual([false, false]);
    expect((await bucket.tryDraw({ key: "short" })).allowed).toBe(false);
    long.release();
    short.release();
    await bucket.close();
  });

  it("renews thousands of leases in requests that Redis can take", async () => {
    const store = createMemoryStore();
    const renew = vi.spyOn(store, "renew");
    const limits = [concurrency(1_200, { leaseMs: 1_000 })];
    const { bucket } = createTestBucket({ limits }, { store });
    const drawing = Promise.all(Array.from({ length: 1_200 }, () => bucket.draw()));
    await vi.advanceTimersByTimeAsync(100);
    const slots = await drawing;

    await vi.advanceTimersByTimeAsync(2_000);

    const sizes = renew.mock.calls.map(([{ leases }]) => leases.length);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(500);
    expect(slots.some(({ signal }) => signal.aborted)).toBe(false);
    for (const slot of slots) slot.release();
    await bucket.close();
  });

  it("lets a call that still runs end when the bucket is closed", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const call = bucket.throttled(() => simulateLatency(10_000).then(() => "paid"));
    const paying = call();
    await vi.advanceTimersByTimeAsync(100);

    await bucket.close();
    await vi.advanceTimersByTimeAsync(10_000);

    expect(await paying).toBe("paid");
  });

  it("aborts a call that outlives the bucket and its lease, since nothing renews the lease", async () => {
    const store = createMemoryStore();
    const renew = vi.spyOn(store, "renew");
    const limits = [concurrency(1, { leaseMs: 1_000 })];
    const { bucket } = createTestBucket({ limits }, { store });
    const slot = await bucket.draw();
    const { signal } = slot;

    await bucket.close();
    await vi.advanceTimersByTimeAsync(800);
    expect(signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(200);

    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(slot.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(renew).not.toHaveBeenCalled();
  });
});
