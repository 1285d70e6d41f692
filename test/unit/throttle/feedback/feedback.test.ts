import { describe, expect, it, vi } from "vitest";
import { leakyBucket, tokenBucket } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { Cost } from "../../../../src/throttle/costs.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

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
  await bucket.outcomesReported();
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

  it.each([
    ["names no time, and the breaker is open by it", {}, true, 0],
    ["names no time", {}, undefined, 1_000],
    ["names a time, and the breaker is open", { "retry-after": "2" }, true, 2_000],
  ])("of a job that %s: cools as long as it has to", async (_what, headers, isSpared, coolsMs) => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    const slot = await bucket.draw();
    const refusal = Object.assign(new Error("unavailable"), { status: 503, headers });
    await bucket.report(refusal, { slot, cost: undefined, isSpared });
    await bucket.outcomesReported();
    const { coolingForMs } = await bucket.peek();
    await bucket.close();

    expect(coolingForMs).toBe(coolsMs);
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

  it.each([
    [60_000, {}],
    [30_000, { maxCooldownMs: 30_000 }],
  ])("that says by its quota alone when to come back cools for %i ms with %j", async (ms, more) => {
    const used = { ratelimit: '"day";r=0;t=60' };

    const state = await standsAfter({ rate: "100/s", ...more }, tooMany(used));

    expect(state.coolingForMs).toBe(ms);
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

  it("cuts the rate and cools the bucket in one step, so that no call can draw in between", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");
    const adaptive = { floor: 0.1, recoverMs: 60_000 };

    const state = await standsAfter({ rate: "100/s", adaptive }, tooMany(), { store });

    expect(steered).toHaveBeenCalledOnce();
    expect(state).toMatchObject({ rateFactor: 0.7, coolingForMs: 2_000 });
  });
});

describe("a function of one's own that answers with a promise", () => {
  it.each<[string, () => PromiseLike<unknown>]>([
    ["fails", () => Promise.reject(new Error("boom"))],
    ["cools", async () => ({ coolMs: 5_000 })],
  ])("that %s is named in one warning, and cools nothing", async (_what, promised) => {
    const read = vi.fn(promised);
    const feedback = read as never;
    const { bucket, warnings } = createTestBucket({ rate: "100/s", feedback });
    const call = bucket.throttled(async () => "ok");

    const calls = Promise.all([call(), call(), call()]);
    await vi.advanceTimersByTimeAsync(100);
    const results = await calls;

    expect(results).toEqual(["ok", "ok", "ok"]);
    expect(read).toHaveBeenCalledTimes(3);
    expect(warnings.map(({ message }) => message)).toEqual([
      expect.stringContaining("feedback() returned a promise"),
    ]);
    expect((await bucket.peek()).coolingForMs).toBe(0);
    await bucket.close();
  });
});

describe("a function of one's own", () => {
  /** What becomes of a bucket, and what is warned of, when a function answers so to three calls. */
  async function answeredThrice(answer: unknown): Promise<{
    readonly messages: readonly string[];
    readonly coolingForMs: number;
    readonly rateFactor: number;
  }> {
    const adaptive = { floor: 0.1, recoverMs: 60_000 };
    const feedback = (() => answer) as never;
    const { bucket, warnings } = createTestBucket({
      rate: "100/s",
      // All three leave at once, before the first answer.
      burst: 3,
      onStateLost: "full",
      feedback,
      adaptive,
    });
    const call = bucket.throttled(async () => "ok");
    const calls = Promise.all([call(), call(), call()]);
    await vi.advanceTimersByTimeAsync(100);
    expect(await calls).toEqual(["ok", "ok", "ok"]);
    await bucket.outcomesReported();
    const { coolingForMs, rateFactor } = await bucket.peek();
    await bucket.close();
    return { messages: warnings.map(({ message }) => message), coolingForMs, rateFactor };
  }

  const ANSWER = "return { coolMs }, the given answer or a changed copy of it, or undefined";
  const COOL_MS = "return the cooldown in ms, 0 or more";

  it.each<[unknown, string, string]>([
    [5, "5", ANSWER],
    [null, "null", ANSWER],
    [false, "false", ANSWER],
    [{}, "a coolMs of undefined", COOL_MS],
    [{ coolMs: Number.NaN }, "a coolMs of NaN", COOL_MS],
    [{ coolMs: -5 }, "a coolMs of -5", COOL_MS],
    [{ coolMs: "500" }, 'a coolMs of "500"', COOL_MS],
    [{ coolMs: 500, scope: "all" }, 'a scope of "all"', 'return "bucket" or "key"'],
  ])(
    "that answers with %j is named in one warning, and cools nothing",
    async (answer, what, do_) => {
      const { messages, coolingForMs, rateFactor } = await answeredThrice(answer);

      expect(messages).toEqual([expect.stringContaining(`feedback() returned ${what}`)]);
      expect(messages[0]).toContain(do_);
      expect({ coolingForMs, rateFactor }).toEqual({ coolingForMs: 0, rateFactor: 1 });
    },
  );

  it.each([
    [undefined, 0],
    [{ coolMs: 0 }, 0],
    [{ coolMs: 1_500.5, scope: undefined }, 1_501],
    [{ coolMs: 2_000, scope: "key" }, 2_000],
    [{ coolMs: Infinity, scope: "bucket" }, 900_000],
  ])("that answers with %j is not warned of", async (answer, coolMs) => {
    const { messages, coolingForMs } = await answeredThrice(answer);

    expect(messages).toEqual([]);
    expect(coolingForMs).toBeGreaterThanOrEqual(coolMs - 100);
    expect(coolingForMs).toBeLessThanOrEqual(coolMs);
  });
});

describe("headers that are paced by", () => {
  type Left = readonly [number, "requests" | "tokens"];

  /** How many of 200 calls leave within a second, and within ten, when each answer says that so much is left for 10 s. */
  async function leftInOneAndTen(
    [remaining, unit]: Left,
    options: BucketOptions = { rate: "100/s" },
    { cost, store = createMemoryStore() }: { readonly cost?: Cost; readonly store?: Store } = {},
  ): Promise<readonly [number, number]> {
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
    const inASecond = left;
    await vi.advanceTimersByTimeAsync(9_000);
    await bucket.close();
    await Promise.all(calls);
    return [inASecond, left];
  }
  const limits = [
    leakyBucket("100/s"),
    tokenBucket({ capacity: 1e6, refill: "100000/s", unit: "tokens" }),
  ];

  it("space calls so that what is left lasts until it is reset", async () => {
    const [inASecond, inTen] = await leftInOneAndTen([50, "requests"]);

    expect(inASecond).toBeLessThan(25);
    expect(inTen).toBeGreaterThanOrEqual(50);
  });

  it("space calls by what each of them costs", async () => {
    const cost = { tokens: 50 };
    const [inASecond, inTen] = await leftInOneAndTen([500, "tokens"], { limits }, { cost });

    expect(inASecond).toBeLessThan(20);
    expect(inTen).toBeGreaterThanOrEqual(10);
  });

  it("have no effect on calls whose cost they do not count", async () => {
    const [inASecond] = await leftInOneAndTen([5, "tokens"], { limits });

    expect(inASecond).toBeGreaterThan(95);
  });

  it("steer the bucket a few times a second at most, however many answers carry them", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");

    const options = { rate: "1000/s", burst: 100 };
    const [inASecond] = await leftInOneAndTen([1, "requests"], options, { store });

    expect(inASecond).toBeGreaterThanOrEqual(75);
    // Once for the first hundred answers, and once for those that come when that gap has ended.
    expect(steered.mock.calls.length).toBeLessThanOrEqual(2);
  });

  it("steer each key by its own, however many keys answer at once", async () => {
    const store = createMemoryStore();
    const steered = vi.spyOn(store, "steer");
    const perKey = { rate: "20/s" };
    const { bucket } = createTestBucket({ rate: "1000/s", perKey, pace: "headers" }, { store });
    const headers = { "x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "8s" };
    const call = bucket.throttled(async (_key: string) => ({ status: 200, headers }), {
      key: (key) => key,
    });
    const keys = Array.from({ length: 20 }, (_, index) => `k${index}`);

    const calls = Promise.all(keys.map((key) => call(key)));
    await vi.advanceTimersByTimeAsync(100);
    await calls;

    expect(new Set(steered.mock.calls.map(([{ scope }]) => scope?.key))).toEqual(new Set(keys));
    await bucket.close();
  });

  it("never make a bucket faster, nor slow one down that would not run out", async () => {
    const [inASecond] = await leftInOneAndTen([1_000, "requests"]);

    expect(inASecond).toBeGreaterThan(95);
  });
});
