import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, it, vi } from "vitest";
import {
  ClosedError,
  CostTooLargeError,
  InvalidOptionError,
  StoreUnavailableError,
  WaitTooLongError,
} from "../../../../src/core/errors.ts";
import type { Priority } from "../../../../src/core/input/options.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { DrawOptions } from "../../../../src/throttle/call-options.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

describe("draw", () => {
  it("starts calls one interval apart, in the order of arrival", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const left: [number, number][] = [];
    const startMs = performance.now();

    const calls = [0, 1, 2, 3].map(async (call) => {
      await bucket.draw();
      left.push([call, performance.now() - startMs]);
    });
    await vi.advanceTimersByTimeAsync(100);
    await Promise.all(calls);

    expect(left.map(([call]) => call)).toEqual([0, 1, 2, 3]);
    for (const [call, afterMs] of left) expect(afterMs).toBeGreaterThanOrEqual(call * 10);
  });

  it("never starts a call before its slot", async () => {
    const { bucket } = createTestBucket({ rate: "300/s" });
    const earlyMs: number[] = [];

    const calls = Array.from({ length: 50 }, async () => {
      const slot = await bucket.draw();
      earlyMs.push(slot.atMs - (performance.timeOrigin + performance.now()));
    });
    await vi.advanceTimersByTimeAsync(1_000);
    await Promise.all(calls);

    expect(Math.max(...earlyMs)).toBeLessThanOrEqual(0.001);
  });

  it("starts urgent calls before earlier ones", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const left: Priority[] = [];
    const priorities: Priority[] = ["low", "normal", "low", "high", "critical", "normal"];

    const calls = priorities.map(async (priority) => {
      await bucket.draw({ priority });
      left.push(priority);
    });
    await vi.advanceTimersByTimeAsync(200);
    await Promise.all(calls);

    expect(left).toEqual(["critical", "high", "normal", "normal", "low", "low"]);
  });

  it("starts 100,000 waiting callers in the order of arrival", async () => {
    const { bucket } = createTestBucket({ rate: "1000000/s" });
    const left: number[] = [];

    const calls = Array.from({ length: 100_000 }, (_, call) =>
      bucket.draw().then(() => left.push(call)),
    );
    await vi.advanceTimersByTimeAsync(1_000);
    await Promise.all(calls);

    expect(left.every((call, index) => call === index)).toBe(true);
    expect(left).toHaveLength(100_000);
  });

  it("keeps a call's async context through the wait", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const context = new AsyncLocalStorage<string>();
    const seen: (string | undefined)[] = [];

    const calls = ["a", "b", "c"].map((name) =>
      context.run(name, async () => {
        await bucket.draw();
        seen.push(context.getStore());
      }),
    );
    await vi.advanceTimersByTimeAsync(100);
    await Promise.all(calls);

    expect(seen).toEqual(["a", "b", "c"]);
  });

  it("rejects when maxWaitMs is over, and says what limits and when to try again", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const calls = Array.from({ length: 3 }, () => bucket.draw({ key: "acme", maxWaitMs: 500 }));
    const settled = Promise.allSettled(calls);

    await vi.advanceTimersByTimeAsync(500);
    const [first, second] = await settled;

    expect(first).toMatchObject({ status: "fulfilled", value: { bucket: "test", key: "acme" } });
    const { reason } = second as PromiseRejectedResult;
    expect(reason).toBeInstanceOf(WaitTooLongError);
    expect(reason).toMatchObject({
      code: "ERR_WAIT_TOO_LONG",
      bucket: "test",
      key: "acme",
      limitedBy: "1/s",
    });
    expect((reason as WaitTooLongError).retryAfterMs).toBeGreaterThan(0);
    await bucket.close();
  });

  it("rejects with the signal's reason at once, and leaves no listener behind", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const controller = new AbortController();
    const added = vi.spyOn(controller.signal, "addEventListener");
    const removed = vi.spyOn(controller.signal, "removeEventListener");
    const reason = new Error("the user went away");
    const calls = Promise.allSettled(
      Array.from({ length: 20 }, () => bucket.draw({ signal: controller.signal })),
    );
    await vi.advanceTimersByTimeAsync(1);

    controller.abort(reason);
    const settled = await calls;

    expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(settled.at(-1)).toEqual({ status: "rejected", reason });
    expect(removed.mock.calls.length).toBe(added.mock.calls.length);
    expect(bucket.waiting).toBe(0);
    await bucket.close();
  });

  it("rejects at once when the signal was aborted before", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });

    await expect(bucket.draw({ signal: AbortSignal.abort("gone") })).rejects.toBe("gone");

    expect(bucket.waiting).toBe(0);
  });

  it("gives the slots of callers that gave up to those that still wait", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const controller = new AbortController();
    const left: number[] = [];
    const leavers = Promise.allSettled(
      Array.from({ length: 5 }, () => bucket.draw({ signal: controller.signal })),
    );
    const stayers = Array.from({ length: 5 }, async () => {
      await bucket.draw();
      left.push(performance.now());
    });
    const startMs = performance.now();
    await vi.advanceTimersByTimeAsync(0);

    controller.abort();
    await vi.advanceTimersByTimeAsync(60);
    await Promise.all([leavers, ...stayers]);

    expect(left).toHaveLength(5);
    expect(left[3]! - startMs).toBeLessThanOrEqual(50);
  });

  it("gives slots that no caller waits for back to the store", async () => {
    const store = createMemoryStore();
    const returned = vi.spyOn(store, "giveBack");
    const { bucket } = createTestBucket({ rate: "100/s" }, { store });
    const controller = new AbortController();
    const calls = Array.from({ length: 6 }, () => bucket.draw({ signal: controller.signal }));
    const settled = Promise.allSettled(calls);
    await vi.advanceTimersByTimeAsync(1);

    controller.abort();
    await settled;
    await vi.advanceTimersByTimeAsync(1);

    expect(returned).toHaveBeenCalledTimes(1);
    expect(returned.mock.calls[0]![0].slotsUs).toHaveLength(5);
    await bucket.close();
  });

  it("draws stale slots again instead of letting a frozen process fire them in a clump", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const left: number[] = [];
    const calls = Array.from({ length: 60 }, async () => {
      await bucket.draw();
      left.push(performance.now());
    });
    await vi.advanceTimersByTimeAsync(5);

    // A process that stands still: the clock goes on, and no timer fires.
    vi.setSystemTime(Date.now() + 5_000);
    const frozenMs = performance.now();
    const thaw = vi.spyOn(performance, "now").mockImplementation(() => frozenMs + 5_000);
    await vi.advanceTimersByTimeAsync(1);
    thaw.mockRestore();
    await vi.advanceTimersByTimeAsync(10_000);
    await Promise.all(calls);

    const most = left.filter((atMs) => atMs === frozenMs + 5_000).length;
    expect(most).toBeLessThanOrEqual(11);
  });

  it("draws together for callers that arrive while others wait for their slots", async () => {
    const store = createMemoryStore();
    const draw = vi.spyOn(store, "draw");
    const { bucket } = createTestBucket({ rate: "1000/s" }, { store });
    const calls = Array.from({ length: 60 }, () => bucket.draw());
    await vi.advanceTimersByTimeAsync(1);
    const before = draw.mock.calls.length;

    for (let come = 0; come < 20; come++) {
      calls.push(bucket.draw());
      await vi.advanceTimersByTimeAsync(1);
    }

    expect(draw.mock.calls.length - before).toBeLessThanOrEqual(3);
    await vi.advanceTimersByTimeAsync(1_000);
    await Promise.all(calls);
    await bucket.close();
  });

  it("keeps the slots of one key when those of another become invalid", async () => {
    const { bucket } = createTestBucket({ perKey: { rate: "100/s" } });
    const calls = Array.from({ length: 6 }, () => bucket.draw({ key: "a" }));
    await vi.advanceTimersByTimeAsync(1);

    bucket.changed("b");
    await vi.advanceTimersByTimeAsync(200);

    const slots = await Promise.all(calls);
    const gapsMs = slots.slice(1).map((slot, index) => slot.atMs - slots[index]!.atMs);
    expect(gapsMs.map(Math.round)).toEqual([10, 10, 10, 10, 10]);
    await bucket.close();
  });

  it("goes on when the way to its store becomes longer for good", async () => {
    const memory = createMemoryStore();
    let wayMs = 0;
    const store: Store = {
      ...memory,
      async draw(request) {
        const sentAtMs = performance.now();
        const drawn = await memory.draw(request);
        await simulateLatency(wayMs);
        return { ...drawn, sentAtMs };
      },
    };
    const { bucket } = createTestBucket({ rate: "100/s" }, { store });
    await bucket.draw();
    wayMs = 150;

    const calls = Promise.all(Array.from({ length: 20 }, () => bucket.draw()));
    await vi.advanceTimersByTimeAsync(5_000);

    await expect(calls).resolves.toHaveLength(20);
  });

  it("rejects all waiting callers when the bucket is closed, and all later ones", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const calls = Promise.allSettled([bucket.draw(), bucket.draw(), bucket.draw()]);
    await vi.advanceTimersByTimeAsync(1);

    await bucket.close();
    const settled = await calls;

    expect(settled.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
    expect((settled[1] as PromiseRejectedResult).reason).toBeInstanceOf(ClosedError);
    await expect(bucket.draw()).rejects.toThrow(ClosedError);
  });

  it("rejects all waiting callers with a failure of the store", async () => {
    const failure = new StoreUnavailableError("no Redis");
    const store: Store = { ...createMemoryStore(), draw: () => Promise.reject(failure) };
    const { bucket } = createTestBucket({ rate: "1/s" }, { store });

    const settled = await Promise.allSettled([bucket.draw(), bucket.draw()]);

    expect(settled).toEqual([
      { status: "rejected", reason: failure },
      { status: "rejected", reason: failure },
    ]);
  });

  it.each([
    [{ priority: "urgent" }, "priority"],
    [{ maxWaitMs: 0 }, "maxWaitMs"],
    [{ maxWaitMs: 1.5 }, "maxWaitMs"],
    [{ maxWait: 5 }, "maxWait"],
    [{ key: "a\nb" }, "key"],
    [{ key: [] }, "key"],
    [{ key: ["a", "b", "c", "d"] }, "key"],
    [{ key: ["a", ""] }, "key[1]"],
    [{ key: ["a", 5] }, "key[1]"],
    [{ key: ["x".repeat(1_000_000)] }, "key[0]"],
    [{ key: { 0: "a", length: 1 } }, "key"],
    [{ keys: "a" }, "keys"],
    [{ keys: {} }, "keys"],
    [{ keys: { address: "" } }, "keys.address"],
    [{ key: "a", keys: { address: "b" } }, "keys"],
    [{ key: "" }, "key"],
    [{ cost: 0 }, "cost"],
    [{ cost: -1 }, "cost"],
    [{ cost: 1.5 }, "cost"],
    [{ cost: Number.NaN }, "cost"],
    [{ signal: {} }, "signal"],
    [null, "options"],
  ])("refuses %j by the name of the option", async (options, option) => {
    const { bucket } = createTestBucket({ rate: "1/s" });

    const refused = bucket.draw(options as DrawOptions);

    await expect(refused).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(refused).rejects.toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });

  it("refuses a cost above the burst at once", async () => {
    const { bucket } = createTestBucket({ rate: "1/s", burst: 3 });

    const refused = bucket.draw({ cost: 4 });

    await expect(refused).rejects.toBeInstanceOf(CostTooLargeError);
    await expect(refused).rejects.toMatchObject({ cost: 4, maxCost: 3 });
  });
});

describe("two processes that declare one bucket differently", () => {
  it("log that once, and both follow the newest", async () => {
    const store = createMemoryStore();
    const older = createTestBucket({ rate: "100/s" }, { store });
    const newer = createTestBucket({ rate: "50/s" }, { store });
    await older.bucket.draw();
    await vi.advanceTimersByTimeAsync(20);
    await newer.bucket.draw();

    const calls = Array.from({ length: 5 }, () => older.bucket.draw());
    await vi.advanceTimersByTimeAsync(200);
    const slots = await Promise.all(calls);

    const gapsMs = slots.slice(1).map((slot, index) => slot.atMs - slots[index]!.atMs);
    expect(gapsMs.map(Math.round)).toEqual([20, 20, 20, 20]);
    expect(older.warnings).toHaveLength(1);
    expect(older.warnings[0]!.message).toMatch(/100\/s.*50\/s/);
    expect(newer.warnings).toEqual([]);
  });

  it("do not log it again when a third one appears", async () => {
    const store = createMemoryStore();
    const oldest = createTestBucket({ rate: "100/s" }, { store });
    await oldest.bucket.tryDraw();
    for (const rate of ["50/s", "20/s"]) {
      await vi.advanceTimersByTimeAsync(100);
      await createTestBucket({ rate }, { store }).bucket.tryDraw();
      await oldest.bucket.tryDraw();
    }

    expect((await oldest.bucket.peek()).policy).toBe("20/s");
    expect(oldest.warnings).toHaveLength(1);
  });
});
