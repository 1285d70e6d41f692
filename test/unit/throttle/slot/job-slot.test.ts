import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { CostTooLargeError, WaitTooLongError } from "../../../../src/core/errors.ts";
import { concurrency, fixedWindow, leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import type { DrawOptions } from "../../../../src/throttle/call-options.ts";
import { jobSlotOf, runWithJobSlot, type JobCall } from "../../../../src/throttle/slot/job-slot.ts";
import type { DrawnSlot, Slot } from "../../../../src/throttle/slot/slot.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Windows show exactly what is booked. */
const COUNTED = [fixedWindow(100, "1h"), fixedWindow(10_000, "1h", { unit: "tokens" })];

interface Started {
  readonly bucket: OwnedBucket;
  readonly slot: DrawnSlot;
  /** Runs code as the job's handler. */
  readonly run: <T>(handler: () => T) => T;
}

/** A job that has its slot. */
async function start(options: BucketOptions, job: JobCall = {}): Promise<Started> {
  const { bucket } = createTestBucket(options);
  const drawing = bucket.drawForJob(job, new Set());
  await vi.advanceTimersByTimeAsync(100);
  const slot = (await drawing) as DrawnSlot;
  const hand = jobSlotOf({ bucket, slot }, job);
  return { bucket, slot, run: (handler) => runWithJobSlot(hand, handler) };
}

/** What is booked under each limit, the bucket's before the key's. */
async function booked(bucket: OwnedBucket, key?: string): Promise<number[]> {
  await vi.advanceTimersByTimeAsync(10);
  const { limits } = await bucket.peek({ key });
  return limits.map(({ capacity, remaining }) => capacity - remaining);
}

/** Draws in the handler of a job; resolves with what is booked then. */
async function bookedWith(
  options: BucketOptions,
  job: JobCall,
  call: DrawOptions,
): Promise<{ readonly booked: readonly number[]; readonly slot: Slot }> {
  const { bucket, run } = await start(options, job);
  const drawing = run(() => bucket.draw(call));
  await vi.advanceTimersByTimeAsync(500);
  const slot = await drawing;
  return { slot, booked: await booked(bucket, (call.key as string | undefined) ?? job.key) };
}

describe("the first call of a handler", () => {
  it.each<[string, JobCall, DrawOptions, number[]]>([
    ["with nothing named", {}, {}, [1, 0]],
    ["with a cost by unit, of a job without one", {}, { cost: { tokens: 600 } }, [1, 600]],
    ["with the cost of its job", { cost: { tokens: 500 } }, { cost: { tokens: 500 } }, [1, 500]],
    ["that names no cost", { cost: { tokens: 500 } }, {}, [1, 500]],
    ["that costs more", { cost: { tokens: 500 } }, { cost: { tokens: 812 } }, [1, 812]],
    ["that costs less", { cost: { tokens: 500 } }, { cost: { tokens: 200 } }, [1, 200]],
    ["that costs several calls", { cost: 2 }, { cost: 5 }, [5, 0]],
    ["that costs fewer calls", { cost: 5 }, { cost: 2 }, [2, 0]],
    ["of another unit", { cost: { calls: 2 } }, { cost: { tokens: 7 } }, [2, 7]],
    ["of a key without limits of its own", {}, { key: "acme" }, [1, 0]],
    ["of another priority", { priority: "low" }, { priority: "critical" }, [1, 0]],
  ])("is charged once with its job: %s", async (_which, job, call, expected) => {
    const { booked: all } = await bookedWith({ limits: COUNTED }, job, call);

    expect(all).toEqual(expected);
  });

  const perKey = { limits: [fixedWindow(100, "1h"), fixedWindow(900, "1h", { unit: "tokens" })] };

  it.each<[string, JobCall, DrawOptions, number[]]>([
    ["of a job without a key", {}, { key: "b" }, [1, 0, 1, 0]],
    ["of a job of the same key", { key: "b" }, { key: "b" }, [1, 0, 1, 0]],
    ["of a job with another key", { key: "a" }, { key: "b" }, [1, 0, 1, 0]],
    ["without a key", { key: "b" }, {}, [1, 0, 1, 0]],
    [
      "that costs more, of a job with another key",
      { key: "a", cost: { tokens: 100 } },
      { key: "b", cost: { tokens: 300 } },
      [1, 300, 1, 300],
    ],
  ])("takes what its key's own limits lack: %s", async (_which, job, call, expected) => {
    const { booked: all, slot } = await bookedWith({ limits: COUNTED, perKey }, job, call);

    expect(all).toEqual(expected);
    expect(slot.key).toBe("b");
  });

  it("leaves nothing booked under its job's key if it is for another", async () => {
    const { bucket, run } = await start({ limits: COUNTED, perKey }, { key: "a" });

    const drawing = run(() => bucket.draw({ key: "b" }));
    await vi.advanceTimersByTimeAsync(100);
    await drawing;

    expect(await booked(bucket, "a")).toEqual([1, 0, 0, 0]);
  });

  it("waits for what its key's limits lack", async () => {
    const { bucket, run } = await start({ rate: "100/s", perKey: { rate: "1/s" } });
    await bucket.draw({ key: "b" });

    const drawing = run(() => bucket.draw({ key: "b", maxWaitMs: 50 }));
    const refused = rejectionOf(drawing);
    await vi.advanceTimersByTimeAsync(200);

    expect(await refused).toBeInstanceOf(WaitTooLongError);
  });

  it("waits for tokens that are not left, and then counts one call", async () => {
    const limits = [
      fixedWindow(100, "1h"),
      leakyBucket("100/s", { unit: "tokens", burst: 100 }),
    ] as const;
    const { bucket, run } = await start({ limits: [...limits] });
    await bucket.draw({ cost: { tokens: 100 } });
    let hasLeft = false;

    const drawing = run(() => bucket.draw({ cost: { tokens: 60 } })).then(() => (hasLeft = true));
    await vi.advanceTimersByTimeAsync(500);
    const before = hasLeft;
    await vi.advanceTimersByTimeAsync(200);
    await drawing;

    expect([before, hasLeft]).toEqual([false, true]);
    expect((await booked(bucket))[0]).toBe(2);
  });

  it("that could never pass is refused as any other", async () => {
    const { bucket, run } = await start({ limits: COUNTED }, { cost: { tokens: 9_000 } });

    const refused = await rejectionOf(run(() => bucket.draw({ cost: { tokens: 10_001 } })));

    expect(refused).toBeInstanceOf(CostTooLargeError);
  });

  it("whose wait ends early leaves the slot to the next one", async () => {
    const limits = [...COUNTED, leakyBucket("1/s", { unit: "tokens", burst: 100 })];
    const { bucket, run } = await start({ limits });
    await bucket.draw({ cost: { tokens: 100 } });

    const refused = rejectionOf(run(() => bucket.draw({ cost: { tokens: 50 }, maxWaitMs: 20 })));
    await vi.advanceTimersByTimeAsync(30);
    await refused;
    await run(() => bucket.draw());

    expect((await booked(bucket)).slice(0, 2)).toEqual([2, 100]);
  });

  it("draws by itself once the slot is older than a horizon, and the slot's quota goes back", async () => {
    const { bucket, slot, run } = await start({ limits: COUNTED }, { cost: { tokens: 500 } });

    await vi.advanceTimersByTimeAsync(100);
    const own = await run(() => bucket.draw({ cost: { tokens: 600 } }));
    await slot.settle({ tokens: 812 });

    expect(own).not.toBe(slot);
    expect(await booked(bucket)).toEqual([1, 812]);
  });

  it("is settled by its own slot or by its job's, whichever comes first", async () => {
    const { bucket, slot, run } = await start({ limits: COUNTED }, { cost: { tokens: 500 } });

    const own = await run(() => bucket.draw({ cost: { tokens: 600 } }));
    await own.settle({ tokens: 50 });
    await slot.settle({ tokens: 9_000 });

    expect(await booked(bucket)).toEqual([1, 50]);
  });

  it("is charged what its handler settled before, if it names no cost", async () => {
    const { bucket, slot, run } = await start({ limits: COUNTED }, { cost: { tokens: 500 } });

    await slot.settle({ tokens: 700 });
    await run(() => bucket.draw());

    expect(await booked(bucket)).toEqual([1, 700]);
  });

  it("is charged the difference to what its handler settled before", async () => {
    const { bucket, slot, run } = await start({ limits: COUNTED }, { cost: { tokens: 500 } });

    await slot.settle({ tokens: 700 });
    await run(() => bucket.draw({ cost: { tokens: 900 } }));

    expect(await booked(bucket)).toEqual([1, 900]);
  });
});

describe("a second call of a handler", () => {
  it("draws its own slot", async () => {
    const { bucket, run } = await start({ limits: COUNTED }, { cost: { tokens: 500 } });

    await run(() => Promise.all([bucket.draw(), bucket.draw({ cost: { tokens: 300 } })]));

    expect(await booked(bucket)).toEqual([2, 800]);
  });
});

describe("a job that holds the only lease", () => {
  const leased = { limits: [...COUNTED, concurrency(1)] };

  it.each<[string, BucketOptions, JobCall, DrawOptions]>([
    ["with a cost", leased, {}, { cost: { tokens: 10 } }],
    ["with a key", leased, {}, { key: "b" }],
    ["with a key that has a rate", { ...leased, perKey: { rate: "9/s" } }, {}, { key: "b" }],
    ["with a key that has leases", { ...leased, perKey: { concurrency: 1 } }, {}, { key: "b" }],
    [
      "with another key than its job, where each has leases",
      { ...leased, perKey: { concurrency: 1 } },
      { key: "a" },
      { key: "b" },
    ],
    [
      "with a cost, where keys alone have leases",
      { limits: COUNTED, perKey: { concurrency: 1 } },
      { key: "a" },
      { cost: { tokens: 10 } },
    ],
  ])("does not wait for another one: its call %s", async (_which, options, job, call) => {
    const { bucket, slot, run } = await start(options, job);
    // Another call waits for the lease before the handler's own call does.
    const other = bucket.draw({ key: job.key, priority: "critical" });

    const drawing = run(() => bucket.draw(call));
    await vi.advanceTimersByTimeAsync(1_000);
    const own = slot.hasLease ? await drawing : undefined;
    own?.release();
    slot.release();
    await vi.advanceTimersByTimeAsync(1_000);
    (await other).release();
    await vi.advanceTimersByTimeAsync(1_000);
    (await drawing).release();

    expect((await booked(bucket))[0]).toBe(2);
  });

  it("does not wait for it behind a call that has the only place of its throttled function", async () => {
    const { bucket, run } = await start(leased);
    const call = bucket.throttled(async () => "done", { concurrency: 1 });
    const other = call();

    const own = run(() => call());
    await vi.advanceTimersByTimeAsync(1_000);

    expect(await Promise.all([other, own])).toEqual(["done", "done"]);
    expect(await booked(bucket)).toEqual([2, 0, 0]);
  });

  it("keeps that lease while its call runs, and no second one", async () => {
    const { bucket, slot, run } = await start({ limits: [...COUNTED, concurrency(2)] });

    const drawing = run(() => bucket.draw({ cost: { tokens: 10 } }));
    await vi.advanceTimersByTimeAsync(100);
    const own = await drawing;
    const during = await booked(bucket);
    own.release();

    expect(during).toEqual([1, 10, 1]);
    expect(await booked(bucket)).toEqual([1, 10, 0]);
    expect(slot.hasLease).toBe(false);
  });

  it("draws another for its call if it gave that back before", async () => {
    const { bucket, slot, run } = await start(leased);

    slot.release();
    const own = await run(() => bucket.draw());

    expect(own.hasLease).toBe(true);
    expect(await booked(bucket)).toEqual([1, 0, 1]);
    own.release();
  });
});
