import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { leakyBucket, tokenBucket } from "../../../src/core/limit-makers.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import type { OwnedBucket } from "../../../src/throttle/owned-bucket.ts";
import type { BucketOptions } from "../../../src/throttle/bucket-options.ts";
import type { Cost } from "../../../src/throttle/costs.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

function tooMany(headers: object = { "retry-after": "2" }): Error {
  return Object.assign(new Error("too many"), { status: 429, headers });
}

/** How a bucket stands once a call of a key has come to this. */
async function standsAfter(
  options: BucketOptions,
  result: object,
  {
    key = "k",
    peeked,
    store,
  }: { readonly key?: string; readonly peeked?: string; readonly store?: Store } = {},
): Promise<Awaited<ReturnType<OwnedBucket["peek"]>>> {
  const { bucket } = createTestBucket(options, store && { store });
  const call = bucket.throttled(() => Promise.reject(result), { key });
  const calling = call().catch(() => undefined);
  await vi.advanceTimersByTimeAsync(0);
  await calling;
  await bucket.heard();
  const state = await bucket.peek({ key: peeked });
  await bucket.close();
  return state;
}

describe("a refusal", () => {
  const perKey = (key: string) => (key === "free" ? {} : { rate: "10/s" });

  it("of a key with limits of its own cools that key alone", async () => {
    const options: BucketOptions = { rate: "100/s", perKey };

    const ofAll = await standsAfter(options, tooMany());
    const ofKey = await standsAfter(options, tooMany(), { peeked: "k" });

    expect(ofAll.coolingForMs).toBe(0);
    expect(ofKey.coolingForMs).toBe(2_000);
  });

  it("of a key without limits of its own cools the bucket", async () => {
    const state = await standsAfter({ rate: "100/s", perKey }, tooMany(), { key: "free" });

    expect(state.coolingForMs).toBe(2_000);
  });

  it("of a key lets no call of that key leave on a slot from before", async () => {
    const { bucket } = createTestBucket({ perKey: { rate: "100/s" } });
    const leftAtMs: number[] = [];
    const call = bucket.throttled(
      async () => {
        leftAtMs.push(performance.now());
        throw tooMany();
      },
      { key: "k" },
    );

    const calls = Promise.allSettled(Array.from({ length: 6 }, () => call()));
    await vi.advanceTimersByTimeAsync(1_900);
    const before = leftAtMs.length;
    await vi.advanceTimersByTimeAsync(60_000);
    await calls;

    expect(before).toBe(1);
    await bucket.close();
  });

  it("that names no time cools for a second", async () => {
    const state = await standsAfter({ rate: "100/s" }, tooMany({}));

    expect(state.coolingForMs).toBe(1_000);
  });

  it("lets the rate grow back from a quarter when its cooldown is over", async () => {
    const state = await standsAfter({ rate: "100/s" }, tooMany());

    expect(state.rateFactor).toBe(0.25);
  });

  it("that says to come back at once steers nothing", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");

    await standsAfter({ rate: "100/s" }, tooMany({ "retry-after": "0" }), { store });

    expect(steered).not.toHaveBeenCalled();
  });

  it("never cools for longer than maxCooldownMs", async () => {
    const state = await standsAfter({ rate: "100/s", maxCooldownMs: 500 }, tooMany());

    expect(state.coolingForMs).toBe(500);
  });

  it("cuts the rate to its floor at least, when that is asked for", async () => {
    const adaptive = { floor: 0.9, recoverMs: 60_000 };

    const state = await standsAfter({ rate: "100/s", adaptive }, tooMany({ "retry-after": "0" }));

    expect(state.rateFactor).toBe(0.9);
  });

  it("cuts the rate and cools the bucket in one change, between which nobody can draw", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");
    const adaptive = { floor: 0.1, recoverMs: 60_000 };

    const state = await standsAfter({ rate: "100/s", adaptive }, tooMany(), { store });

    expect(steered).toHaveBeenCalledOnce();
    expect(state).toMatchObject({ rateFactor: 0.7, coolingForMs: 2_000 });
  });
});

describe("headers that are paced by", () => {
  /** How many of 200 calls leave within a second, when each answer says that so much is left for 10 s. */
  async function leftInASecond(
    [remaining, unit]: readonly [number, "requests" | "tokens"],
    options: BucketOptions = { rate: "100/s" },
    { cost, store = createMemoryStore() }: { readonly cost?: Cost; readonly store?: Store } = {},
  ): Promise<number> {
    const { bucket } = createTestBucket({ ...options, pace: "headers" }, { store });
    const headers = {
      [`x-ratelimit-limit-${unit}`]: "1000",
      [`x-ratelimit-remaining-${unit}`]: String(remaining),
      [`x-ratelimit-reset-${unit}`]: "10s",
    };
    let left = 0;
    const answer = async (): Promise<object> => {
      left += 1;
      return { status: 200, headers };
    };
    const call = bucket.throttled(answer, { cost });
    const calls = Array.from({ length: 200 }, () => call().catch(() => undefined));
    await vi.advanceTimersByTimeAsync(1_000);
    await bucket.close();
    await Promise.all(calls);
    return left;
  }
  const limits = [
    leakyBucket("100/s"),
    tokenBucket({ capacity: 1e6, refill: "100000/s", unit: "tokens" }),
  ];

  it("space calls so that what is left lasts until it is reset", async () => {
    expect(await leftInASecond([50, "requests"])).toBeLessThan(25);
  });

  it("space calls by what each of them costs", async () => {
    const left = await leftInASecond([500, "tokens"], { limits }, { cost: { tokens: 50 } });

    expect(left).toBeLessThan(20);
  });

  it("tell nothing of what calls do not cost", async () => {
    expect(await leftInASecond([5, "tokens"], { limits })).toBeGreaterThan(95);
  });

  it("steer the bucket a few times a second at most, however many answers carry them", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");

    const left = await leftInASecond([1, "requests"], { rate: "1000/s", burst: 100 }, { store });

    expect(left).toBeGreaterThanOrEqual(75);
    expect(steered).toHaveBeenCalledTimes(1);
  });

  it("never make a bucket faster, nor slow one down that would not run out", async () => {
    expect(await leftInASecond([1_000, "requests"])).toBeGreaterThan(95);
  });
});
