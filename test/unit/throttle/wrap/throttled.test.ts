import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ClosedError, InvalidOptionError, WaitTooLongError } from "../../../../src/core/errors.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { jobSlotOf, runWithJobSlot } from "../../../../src/throttle/slot/job-slot.ts";
import type { DrawnSlot } from "../../../../src/throttle/slot/slot.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** A function that runs until it is told to end. */
function manualTask() {
  const ends: (() => void)[] = [];
  const run = vi.fn(() => new Promise<void>((resolve) => ends.push(resolve)));
  return { run, endFirst: () => ends.shift()!() };
}

describe("a throttled function", () => {
  it("passes this, arguments and result through", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const account = {
      name: "acme",
      describe: bucket.throttled(function (this: { name: string }, a: number, b: number) {
        return `${this.name} ${a + b}`;
      }),
    };

    await expect(account.describe(1, 2)).resolves.toBe("acme 3");
  });

  it("has the name of the function, and takes as many arguments", () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    function charge(cents: number, currency: string): string {
      return `${cents} ${currency}`;
    }

    const { name, length } = bucket.throttled(charge).with({ priority: "high" });

    expect({ name, length }).toEqual({ name: "charge", length: 2 });
  });

  it("takes one signal for many calls, also where few may run at once", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const warnings: string[] = [];
    const note = ({ name }: Error): void => void warnings.push(name);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));
    const leaving = new AbortController();
    const call = bucket
      .throttled(async () => {}, { concurrency: 1 })
      .with({ signal: leaving.signal });

    const calls = Promise.allSettled(Array.from({ length: 20 }, () => call()));
    leaving.abort();
    await calls;
    await new Promise((resolve) => process.nextTick(resolve));

    expect(warnings).toEqual([]);
  });

  it("rejects with what the function throws at once", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const failure = new TypeError("no such account");
    const fail = bucket.throttled((): string => {
      throw failure;
    });

    await expect(fail()).rejects.toBe(failure);
  });

  it("runs the function only when its slot has come", async () => {
    const { bucket } = createTestBucket({ rate: "10/s" });
    const fn = vi.fn(async () => performance.now());
    const paced = bucket.throttled(fn);
    const startMs = performance.now();

    const calls = [paced(), paced(), paced()];
    await vi.advanceTimersByTimeAsync(50);
    expect(fn).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(300);
    const [, second, third] = await Promise.all(calls);

    expect(second! - startMs).toBeGreaterThanOrEqual(100);
    expect(third! - startMs).toBeGreaterThanOrEqual(200);
  });

  it("takes key and cost from the arguments", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", burst: 5 });
    const draw = vi.spyOn(bucket, "drawByHand");
    const send = bucket.throttled(async (tenant: string, lines: number) => tenant.length + lines, {
      key: (tenant) => tenant,
      cost: (_tenant, lines) => lines,
      priority: "high",
    });

    await send("acme", 3);

    expect(draw).toHaveBeenCalledWith({ key: "acme", cost: 3, priority: "high" });
  });

  it("draws with other options through with()", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const call = bucket.throttled(async () => "done", { priority: "low" });
    await call();

    const refused = rejectionOf(call.with({ maxWaitMs: 100 })());
    await vi.advanceTimersByTimeAsync(100);

    expect(await refused).toBeInstanceOf(WaitTooLongError);
    await bucket.close();
  });

  it("keeps key and cost when with() is given undefined for them", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", burst: 5 });
    const draw = vi.spyOn(bucket, "drawByHand");
    const send = bucket.throttled(async (_tenant: string) => {}, {
      key: (tenant) => tenant,
      cost: () => 3,
    });

    await send.with({ key: undefined, cost: undefined, priority: "high" })("acme");

    expect(draw).toHaveBeenCalledWith({ key: "acme", cost: 3, priority: "high" });
  });

  it("bounds how many calls run at once, and lets urgent ones have the next place", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const { run, endFirst } = manualTask();
    const started: string[] = [];
    const call = bucket.throttled(
      (name: string) => {
        started.push(name);
        return run();
      },
      { concurrency: 2 },
    );

    const calls = [call("a"), call("b"), call("c"), call.with({ priority: "critical" })("d")];
    await vi.advanceTimersByTimeAsync(50);
    expect(started).toEqual(["a", "b"]);
    endFirst();
    await vi.advanceTimersByTimeAsync(50);
    expect(started).toEqual(["a", "b", "d"]);
    for (let ended = 0; ended < 3; ended++) {
      endFirst();
      await vi.advanceTimersByTimeAsync(50);
    }

    await Promise.all(calls);
    expect(run).toHaveBeenCalledTimes(4);
  });

  it("counts the wait for a place towards maxWaitMs, and an abort ends it", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const { run, endFirst } = manualTask();
    const call = bucket.throttled(run, { concurrency: 1 });
    const controller = new AbortController();
    const first = call();
    await vi.advanceTimersByTimeAsync(10);

    const expired = rejectionOf(call.with({ maxWaitMs: 30 })());
    const aborted = rejectionOf(call.with({ signal: controller.signal })());
    controller.abort("gone");
    await vi.advanceTimersByTimeAsync(30);

    expect(await expired).toBeInstanceOf(WaitTooLongError);
    expect(await aborted).toBe("gone");
    endFirst();
    await first;
    expect(run).toHaveBeenCalledTimes(1);
  });

  it("keeps one deadline over the wait for a place and the wait for a slot", async () => {
    const store = createMemoryStore();
    const { bucket } = createTestBucket({ rate: "5/s" }, { store });
    const { bucket: other } = createTestBucket({ rate: "5/s" }, { store });
    const { run, endFirst } = manualTask();
    const call = bucket.throttled(run, { concurrency: 1 });
    const first = call();
    await vi.advanceTimersByTimeAsync(10);
    const second = rejectionOf(call.with({ maxWaitMs: 350 })());

    // Another process takes the slot just before the place comes free: the next one is after the deadline.
    await vi.advanceTimersByTimeAsync(235);
    await other.tryDraw();
    endFirst();
    await first;
    await vi.advanceTimersByTimeAsync(1_000);

    expect(run).toHaveBeenCalledTimes(1);
    expect(await second).toBeInstanceOf(WaitTooLongError);
    await Promise.all([bucket.close(), other.close()]);
  });

  it("fails calls that wait for a place when the bucket is closed", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const { run, endFirst } = manualTask();
    const call = bucket.throttled(run, { concurrency: 1 });
    const first = call();
    const second = rejectionOf(call());
    await vi.advanceTimersByTimeAsync(10);

    await bucket.close();

    expect(await second).toBeInstanceOf(ClosedError);
    endFirst();
    await first;
  });

  it("keeps each call's async context when places are handed on", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const context = new AsyncLocalStorage<string>();
    const call = bucket.throttled(async () => context.getStore(), { concurrency: 1 });

    const calls = ["a", "b", "c"].map((name) => context.run(name, () => call()));
    await vi.advanceTimersByTimeAsync(100);

    await expect(Promise.all(calls)).resolves.toEqual(["a", "b", "c"]);
  });

  it("leaves on the slot in hand once, so that a job is not charged twice", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const call = bucket.throttled(async () => "done");
    const slot = (await bucket.draw()) as DrawnSlot;

    const inHand = runWithJobSlot(jobSlotOf({ bucket, slot }, {}), async () => {
      await call();
      const second = call.with({ maxWaitMs: 100 })();
      return second.catch((error: Error) => error);
    });
    await vi.advanceTimersByTimeAsync(100);

    await expect(inHand).resolves.toBeInstanceOf(WaitTooLongError);
    await bucket.close();
  });

  it("reads a rejection on the slot in hand for the key that the slot was drawn for", async () => {
    const { bucket } = createTestBucket({ rate: "100/s", perKey: { rate: "100/s" } });
    const call = bucket.throttled(async () => ({ status: 429, headers: { "retry-after": "9" } }));
    const slot = (await bucket.draw({ key: "acme" })) as DrawnSlot;

    await runWithJobSlot(jobSlotOf({ bucket, slot }, { key: "acme" }), () => call());
    await bucket.outcomesReported();

    expect((await bucket.peek({ key: "acme" })).coolingForMs).toBeGreaterThan(0);
    expect((await bucket.peek({ key: "globex" })).coolingForMs).toBe(0);
    await bucket.close();
  });

  it.each([
    ["throttled", (bucket: OwnedBucket) => bucket.throttled(() => 1)],
    ["fetch", (bucket: OwnedBucket) => bucket.fetch],
  ] as const)("has its bucket know that it is called by hand, as %s", async (_name, take) => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const before = bucket.isCalledByHand;

    take(bucket);

    expect([before, bucket.isCalledByHand]).toEqual([false, true]);
    await bucket.close();
  });

  it.each([
    ["not a function", {}, "fn"],
    [() => 1, { concurrency: 0 }, "concurrency"],
    [() => 1, { concurency: 2 }, "concurency"],
    [() => 1, { key: 5 }, "key"],
  ])("refuses %s with %j", (fn, options, option) => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    const wrap = (): unknown => bucket.throttled(fn as () => number, options as object);

    expect(wrap).toThrow(InvalidOptionError);
    expect(wrap).toThrow(`"${option}"`);
  });
});
