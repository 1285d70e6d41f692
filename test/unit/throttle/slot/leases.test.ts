import { describe, expect, it, vi } from "vitest";
import {
  LeaseLostError,
  StoreUnavailableError,
  type WaitTooLongError,
} from "../../../../src/core/errors.ts";
import { concurrency, leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

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
  it("runs at most its number of calls at once, without gaps between them", async () => {
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

  it("releases the lease when a call throws immediately", async () => {
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

  it("returns a retry time of at least a second to callers that do not wait for a lease", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const slot = await bucket.draw();

    const refused = rejectionOf(bucket.draw({ maxWaitMs: 10 }));
    await vi.advanceTimersByTimeAsync(10);

    expect(await refused).toMatchObject({ retryAfterMs: 1_000, limitedBy: "1 at once" });
    slot.release();
    await bucket.close();
  });

  it("are not reported as free soon where a pause hides that all are out", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const slot = await bucket.draw();
    await bucket.pause({ forMs: 60_000 });

    const refused = rejectionOf(bucket.draw({ maxWaitMs: 10 }));
    await vi.advanceTimersByTimeAsync(10);

    const { limitedBy, retryAfterMs } = (await refused) as WaitTooLongError;
    expect(limitedBy).toBe("a pause");
    expect(retryAfterMs).toBeGreaterThanOrEqual(1_000);
    slot.release();
    await bucket.close();
  });

  it("are no reason to guess where places are free and the rate alone holds a call back", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", concurrency: 5 });
    (await bucket.draw()).release();

    const refused = rejectionOf(bucket.draw({ maxWaitMs: 20 }));
    await vi.advanceTimersByTimeAsync(20);

    const { retryAfterMs } = (await refused) as WaitTooLongError;
    expect(retryAfterMs).toBeLessThanOrEqual(100);
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

  it("gives back those of all keys whose calls end together in one request", async () => {
    const memory = createMemoryStore();
    const release = vi.fn<Store["release"]>((request) => memory.release(request));
    const store: Store = { ...memory, release };
    const { bucket } = createTestBucket({ perKey: { concurrency: 1 } }, { store });
    const slots = await Promise.all(["a", "b", "c"].map((key) => bucket.draw({ key })));

    slots[0]!.release();
    slots[1]!.release();
    await vi.advanceTimersByTimeAsync(0);

    const tries = await Promise.all(["a", "b", "c"].map((key) => bucket.tryDraw({ key })));
    expect(tries.map(({ allowed }) => allowed)).toEqual([true, true, false]);
    expect(release.mock.calls.map(([{ leases }]) => leases.length)).toEqual([2]);
    for (const each of tries) if (each.allowed) each.slot.release();
    slots[2]!.release();
    await bucket.close();
  });

  it("counts only the leases of calls that hold one, whichever other calls draw", async () => {
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
});
