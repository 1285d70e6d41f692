import { getEventListeners } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { Wait } from "../../../../src/throttle/waiting/wait.ts";
import { deferred } from "../../../support/async/deferred.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const SMALL = { rate: "1000/s", burst: 10 };
const LARGE = { rate: "1000/s", burst: 50 };
const TOKENS = { limits: [leakyBucket("1000/s"), leakyBucket("1000/s", { unit: "tokens" })] };

/** A bucket of two replicas. */
function openTwo(here: BucketOptions, there: BucketOptions) {
  const store = createMemoryStore();
  const open = (options: BucketOptions) => createTestBucket(options, { store }).bucket;
  return [open(here), open(there)] as const;
}

const tooLarge = { code: "ERR_COST_TOO_LARGE" };

it("a call that a policy made impossible starts once the policy allows it again", async () => {
  const { bucket } = createTestBucket(LARGE);
  await bucket.draw({ cost: 40 });
  await bucket.configure(SMALL);

  const refusals = [
    await rejectionOf(bucket.draw({ cost: 40 })),
    await rejectionOf(bucket.tryDraw({ cost: 40 })),
  ];
  await bucket.configure("code");
  const { allowed } = await bucket.tryDraw({ cost: 40 });

  expect(refusals).toMatchObject([tooLarge, tooLarge]);
  expect(typeof allowed).toBe("boolean");
  expect((await bucket.draw({ cost: 40 })).bucket).toBe("test");
  expect(await bucket.throttled(async () => "ran", { cost: 40 })()).toBe("ran");
});

it("uses the override of another replica before its own first draw", async () => {
  const [here, there] = openTwo(SMALL, SMALL);
  await there.configure(LARGE);

  expect((await here.draw({ cost: 40 })).bucket).toBe("test");
});

it("uses its own policy if the active one comes from older code", async () => {
  const [here, there] = openTwo(SMALL, LARGE);
  await there.draw({ cost: 40 });

  expect(await rejectionOf(here.draw({ cost: 40 }))).toMatchObject(tooLarge);
});

it("a unit that is counted since a live change may be named at once", async () => {
  const [here, there] = openTwo({ rate: "1000/s" }, { rate: "1000/s" });
  await here.draw();
  await there.configure(TOKENS);

  expect((await here.draw({ cost: { tokens: 1 } })).bucket).toBe("test");
});

it("a unit that is counted no more since a live change costs nothing, in line or later", async () => {
  const { bucket } = createTestBucket({
    limits: [leakyBucket("1/h"), leakyBucket("1000/s", { unit: "tokens" })],
  });
  await bucket.draw();
  const inLine = bucket.draw({ cost: { tokens: 1 } });
  await bucket.configure({ rate: "1000/s" });
  const later = await bucket.draw({ cost: { tokens: 1 } });

  expect((await inLine).bucket).toBe("test");
  await later.settle({ tokens: 2 });
});

it("a unit that only other tiers count costs nothing; one that nothing counts is refused", async () => {
  const tiers = { free: TOKENS, pro: {} };
  const perKey = { tiers, tierOf: (key: string) => key as "free" | "pro" };
  const { bucket } = createTestBucket({ rate: "1000/s", perKey });

  expect((await bucket.draw({ key: "pro", cost: { tokens: 1 } })).key).toBe("pro");
  const refusal = await rejectionOf(bucket.tryDraw({ key: "pro", cost: { token: 1 } }));
  expect(refusal).toMatchObject({ code: "ERR_INVALID_OPTION", option: "cost.token" });
  expect(String(refusal)).toMatch(
    /^InvalidOptionError: tryDraw\(\): .*the units are calls, tokens\./,
  );
});

it("a unit that a function of keys may count some day is settled as it was drawn", async () => {
  const { bucket } = createTestBucket({ rate: "1000/s", perKey: () => ({}) });
  const slot = await bucket.draw({ key: "k", cost: { tokens: 1 } });

  await slot.settle({ tokens: 2 });

  const refusal = await rejectionOf(bucket.draw({ cost: { tokens: 1 } }));
  expect(refusal).toMatchObject({ code: "ERR_INVALID_OPTION", option: "cost.tokens" });
});

it("asks the store once for calls that are refused together", async () => {
  const store = createMemoryStore();
  let looks = 0;
  const peek = store.peek.bind(store);
  const counted = { ...store, peek: (request: never) => ((looks += 1), peek(request)) };
  const { bucket } = createTestBucket(SMALL, { store: counted });

  const calls = [40, 40, 50].map((cost) => rejectionOf(bucket.draw({ cost })));

  expect(await Promise.all(calls)).toMatchObject([tooLarge, tooLarge, tooLarge]);
  expect(looks).toBe(1);
});

/** A bucket under whose policy in force a call passes at once, but one an hour; what looks it up waits for `answer`. */
async function openLooking() {
  const store = createMemoryStore();
  await createTestBucket(SMALL, { store }).bucket.configure({ rate: "1/h", burst: 50 });
  const { promise: isAnswered, resolve: answer } = deferred();
  const peek = async (request: never) => {
    await isAnswered;
    return store.peek(request);
  };
  const { bucket } = createTestBucket(SMALL, { store: { ...store, peek } });
  return { bucket, answer };
}

describe("a call that waits for the look", () => {
  const advance = fakeTimers();

  it("is left when its signal is aborted, and does not enter the line either", async () => {
    const { bucket, answer } = await openLooking();
    const stop = new AbortController();

    const left = rejectionOf(bucket.draw({ cost: 40, maxWaitMs: 50, signal: stop.signal }));
    stop.abort("stopped");
    expect(await left).toBe("stopped");
    expect(vi.getTimerCount()).toBe(0);
    answer();
    await bucket.draw({ cost: 40 });

    expect(bucket.waiting).toBe(0);
  });

  it("fails at once where its signal was aborted before", async () => {
    const { bucket } = await openLooking();
    const signal = AbortSignal.abort("stopped");

    expect(await rejectionOf(bucket.draw({ cost: { tokens: 1 }, signal }))).toBe("stopped");
  });

  it("fails once it has waited as long as it may", async () => {
    const { bucket, answer } = await openLooking();
    let isSettled = false;

    const failed = rejectionOf(bucket.draw({ key: "k", cost: 40, maxWaitMs: 50 }));
    void failed.then(() => (isSettled = true));
    await advance(49);
    expect(isSettled).toBe(false);
    await advance(1);
    expect(isSettled).toBe(true);
    answer();

    expect(await failed).toMatchObject({
      code: "ERR_WAIT_TOO_LONG",
      bucket: "test",
      key: "k",
      limitedBy: "Redis, which has not answered yet",
    });
  });

  it("has waited since it came, and not since the look", async () => {
    const { bucket, answer } = await openLooking();
    let isSettled = false;
    const { signal } = new AbortController();

    const first = bucket.draw({ cost: 30, signal });
    // The next one has to save up: what there is left is not for those behind it.
    bucket.draw({ cost: 41 }).catch(() => {});
    const failed = rejectionOf(bucket.draw({ cost: 11, maxWaitMs: 50 }));
    void failed.then(() => (isSettled = true));
    await advance(30);
    answer();
    await advance(19);
    expect(isSettled).toBe(false);
    await advance(1);
    expect(isSettled).toBe(true);

    expect(await failed).toMatchObject({
      code: "ERR_WAIT_TOO_LONG",
      limitedBy: "1/h with a burst of 50",
    });
    expect(getEventListeners(signal, "abort")).toEqual([]);
    expect((await first).waitedMs).toBeGreaterThanOrEqual(30);
  });
});

describe("the look of a job", () => {
  const reason = "the worker is closed";

  it("is left when its worker closes, and the job does not enter the line either", async () => {
    const { bucket, answer } = await openLooking();
    const waits = new Set<Wait>();

    const left = rejectionOf(bucket.drawForJob({ cost: 40 }, waits));
    for (const wait of waits) wait.cancel(reason);
    expect(waits.size).toBe(0);
    expect(await left).toBe(reason);
    answer();
    // It comes after the look that was left.
    await bucket.draw({ cost: 40 });

    expect(waits.size).toBe(0);
    expect(bucket.waiting).toBe(0);
  });

  it("can be ended by the closing worker at every moment", async () => {
    const { bucket, answer } = await openLooking();
    const waits = new (class extends Set<Wait> {
      override delete(wait: Wait): boolean {
        queueMicrotask(() => {
          for (const each of this) each.cancel(reason);
        });
        return super.delete(wait);
      }
    })();

    const left = rejectionOf(bucket.drawForJob({ cost: 40 }, waits));
    answer();

    expect(await left).toBe(reason);
    expect(waits.size).toBe(0);
  });

  it("fails the job if it throws, as a logger may", async () => {
    const peek = () => Promise.reject(new Error("away"));
    const warn = (): never => {
      throw new Error("logger broke");
    };
    const logger = { warn, error: warn };
    const { bucket } = createTestBucket(SMALL, { store: { ...createMemoryStore(), peek }, logger });
    const waits = new Set<Wait>();

    const refusal = await rejectionOf(bucket.drawForJob({ cost: 40 }, waits));

    expect(String(refusal)).toContain("logger broke");
    expect(waits.size).toBe(0);
  });
});
