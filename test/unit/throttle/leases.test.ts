import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LeaseLostError, StoreUnavailableError } from "../../../src/core/errors.ts";
import { concurrency, leakyBucket } from "../../../src/core/limit-makers.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import { rejectionOf } from "../../support/rejection.ts";
import { simulateLatency } from "../../support/simulate-latency.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

function sleeper(ms: number): { run: () => Promise<void>; most: () => number } {
  let running = 0;
  let most = 0;
  return {
    most: () => most,
    async run() {
      running += 1;
      most = Math.max(most, running);
      await simulateLatency(ms);
      running -= 1;
    },
  };
}

describe("a bucket that limits concurrency", () => {
  it("lets no more calls run at once than it says, and wastes no time between them", async () => {
    const { bucket } = createTestBucket({ concurrency: 3 });
    const { run, most } = sleeper(100);
    const call = bucket.throttled(run);
    const startMs = performance.now();

    const calls = Promise.all(Array.from({ length: 9 }, () => call()));
    await vi.advanceTimersByTimeAsync(1_000);
    await calls;

    expect(most()).toBe(3);
    expect(performance.now() - startMs).toBe(1_000);
    await bucket.close();
  });

  it("gives the lease back when a call throws at once", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const call = bucket.throttled((): Promise<void> => {
      throw new Error("no");
    });

    const calls = Promise.allSettled([call(), call(), call()]);
    await vi.advanceTimersByTimeAsync(100);

    expect((await calls).map(({ status }) => status)).toEqual(Array(3).fill("rejected"));
    await bucket.close();
  });

  it("gives back the lease of a caller that left before its slot came", async () => {
    const { bucket } = createTestBucket({ limits: [leakyBucket("20/s"), concurrency(1)] });
    const first = await bucket.draw();
    first.release();
    await expect(
      Promise.all([bucket.draw({ maxWaitMs: 10 }), vi.advanceTimersByTimeAsync(10)]),
    ).rejects.toThrow("No slot");

    const drawing = bucket.draw();
    await vi.advanceTimersByTimeAsync(600);
    const second = await drawing;

    second.release();
    await bucket.close();
  });

  it.each([
    ["draw", 1],
    ["tryDraw", 3],
  ] as const)("of a %s whose reply got lost is given back", async (how, count) => {
    const memory = createMemoryStore();
    const store: Store = {
      ...memory,
      async draw(request) {
        await memory.draw(request);
        throw new StoreUnavailableError("no reply");
      },
    };
    const { bucket } = createTestBucket({ concurrency: 3 }, { store });

    const calls = Array.from({ length: count }, () => bucket[how]());
    await Promise.allSettled(calls);
    await vi.advanceTimersByTimeAsync(1);

    expect((await bucket.peek()).limits[0]).toMatchObject({ level: 0 });
    await bucket.close();
  });

  it("tells those who will not wait for a lease to come again in a second at the soonest", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const slot = await bucket.draw();

    const refused = rejectionOf(bucket.draw({ maxWaitMs: 10 }));
    await vi.advanceTimersByTimeAsync(10);

    expect(await refused).toMatchObject({ retryAfterMs: 1_000, limitedBy: "1 at once" });
    slot.release();
    await bucket.close();
  });

  it("renews the lease of a call that runs for longer than it lasts", async () => {
    const { bucket } = createTestBucket({ limits: [concurrency(1, { leaseMs: 1_000 })] });
    const { run } = sleeper(5_000);
    const long = bucket.throttled(run)();
    await vi.advanceTimersByTimeAsync(4_000);

    const refused = await bucket.tryDraw();

    expect(refused.allowed).toBe(false);
    await vi.advanceTimersByTimeAsync(1_000);
    await expect(long).resolves.toBeUndefined();
    await bucket.close();
  });

  it("tells a call before its lease ends that it could not be renewed", async () => {
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
    expect(warnings[0]!.message).toBe("Leases could not be renewed.");
    slot.release();
    await bucket.close();
  });

  it("tells a call before the lease ends that was renewed, and then could not be any more", async () => {
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

  it("gives a lease back by the limit that it was drawn under, whatever policy is in force by then", async () => {
    const limited = { limits: [concurrency(1), leakyBucket("1000/s")] };
    const { bucket } = createTestBucket(limited);
    const slot = await bucket.draw();
    await bucket.configure({ rate: "1000/s" });
    const configured = bucket.draw();
    await vi.advanceTimersByTimeAsync(100);
    await configured;

    slot.release();
    await vi.advanceTimersByTimeAsync(100);
    await bucket.configure(limited);
    const again = bucket.draw({ maxWaitMs: 1_000 });
    await vi.advanceTimersByTimeAsync(1_000);

    expect((await again).hasLease).toBe(true);
    (await again).release();
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

  it("rejects a throttled call whose lease was taken away", async () => {
    const store = createMemoryStore();
    vi.spyOn(store, "renew").mockImplementation(async ({ leases }) => leases);
    const limits = [concurrency(1, { leaseMs: 1_000 })];
    const { bucket } = createTestBucket({ limits }, { store });
    const { run } = sleeper(5_000);

    const outcome = rejectionOf(bucket.throttled(run)());
    await vi.advanceTimersByTimeAsync(5_000);

    expect(await outcome).toBeInstanceOf(LeaseLostError);
    await bucket.close();
  });

  it("lets leases be released again and again without a second one coming free", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const first = await bucket.draw();
    first.release();
    first.release();
    const second = await bucket.draw();
    first.release();

    const third = await bucket.tryDraw();

    expect(third.allowed).toBe(false);
    second.release();
    await bucket.close();
  });

  it("bounds the calls of each key by themselves", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s", perKey: { concurrency: 1 } });
    const { run, most } = sleeper(100);
    const call = bucket.throttled(async (_key: string) => run(), { key: (key) => key });

    const calls = Promise.all(["a", "b", "a", "b"].map((key) => call(key)));
    await vi.advanceTimersByTimeAsync(2_000);
    await calls;

    expect(most()).toBe(2);
    await bucket.close();
  });

  it("counts leases of those calls alone that hold one, whoever draws beside them", async () => {
    const { bucket } = createTestBucket({
      perKey: {
        tiers: { free: { concurrency: 2 }, pro: { rate: "1000/s", burst: 100 } },
        tierOf: (key) => (key === "pro" ? "pro" : "free"),
      },
    });

    const pros = Promise.all(Array.from({ length: 10 }, () => bucket.draw({ key: "pro" })));
    const [first, second] = await Promise.all([
      bucket.draw({ key: "free" }),
      bucket.draw({ key: "free" }),
    ]);

    expect((await pros).map(({ hasLease }) => hasLease)).not.toContain(true);
    expect((await bucket.tryDraw({ key: "free" })).allowed).toBe(false);
    first!.release();
    second!.release();
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

  it("tells a call that outlives the bucket and its lease, since nobody renews for it", async () => {
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
