import { describe, expect, it, vi } from "vitest";
import { CostTooLargeError, InvalidOptionError } from "../../../../src/core/errors.ts";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  tokenBucket,
} from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { Store } from "../../../../src/core/store.ts";
import { rateLimitHeaders } from "../../../../src/throttle/try/rate-limit-headers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

/** A store in memory, and how often it was asked. */
function countedStore(): { store: Store; draws: () => number } {
  const store = createMemoryStore();
  const draw = vi.spyOn(store, "draw");
  return { store, draws: () => draw.mock.calls.length };
}

const fiveASecond = { limits: [fixedWindow(5, "1s")] };

describe("tryDraw", () => {
  it("allows what the limit holds and refuses the rest at once, with all that a caller has to know", async () => {
    const { bucket } = createTestBucket(fiveASecond);

    const decisions = await Promise.all(Array.from({ length: 7 }, () => bucket.tryDraw()));

    expect(decisions.map(({ allowed }) => allowed)).toEqual([1, 1, 1, 1, 1, 0, 0].map(Boolean));
    expect(decisions.map(({ remaining }) => remaining)).toEqual([4, 3, 2, 1, 0, 0, 0]);
    const refused = decisions.at(-1)!;
    expect(refused).toMatchObject({ limitedBy: "5 each 1s", slot: undefined });
    expect(refused.retryAfterMs).toBeGreaterThan(0);
    expect(refused.limits).toMatchObject([{ name: "5 each 1s", unit: "calls", scope: "bucket" }]);
    await bucket.close();
  });

  it("asks the store once for all who ask in one tick", async () => {
    const { store, draws } = countedStore();
    const { bucket } = createTestBucket({ rate: "1000/s", burst: 100 }, { store });

    await Promise.all(Array.from({ length: 100 }, () => bucket.tryDraw()));

    expect(draws()).toBe(1);
    await bucket.close();
  });

  it("remembers a refusal until it can change, and not a moment longer", async () => {
    const { store, draws } = countedStore();
    const { bucket } = createTestBucket({ rate: "1/s" }, { store });
    await bucket.tryDraw();
    const refused = await bucket.tryDraw();

    for (let call = 0; call < 50; call++) await bucket.tryDraw();
    const asked = draws();
    await vi.advanceTimersByTimeAsync(refused.retryAfterMs);
    const later = await bucket.tryDraw();

    expect(asked).toBe(2);
    expect(later.allowed).toBe(true);
    await bucket.close();
  });

  it("asks again after ten seconds, however long a refusal holds", async () => {
    const { store, draws } = countedStore();
    const { bucket } = createTestBucket({ rate: "1/h" }, { store });
    await bucket.tryDraw();
    await bucket.tryDraw();

    await vi.advanceTimersByTimeAsync(9_999);
    await bucket.tryDraw();
    const before = draws();
    await vi.advanceTimersByTimeAsync(1);
    await bucket.tryDraw();

    expect([before, draws()]).toEqual([2, 3]);
    await bucket.close();
  });

  it("counts down what it remembers", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    await bucket.tryDraw();
    const first = await bucket.tryDraw();
    await vi.advanceTimersByTimeAsync(400);

    const second = await bucket.tryDraw();

    expect(first.retryAfterMs - second.retryAfterMs).toBe(400);
    await bucket.close();
  });

  it("returns to rejected callers when the first of them may come, not the last", async () => {
    const { bucket } = createTestBucket({
      limits: [tokenBucket({ capacity: 10, refill: "1/s" })],
    });

    const decisions = await Promise.all(Array.from({ length: 30 }, () => bucket.tryDraw()));
    await vi.advanceTimersByTimeAsync(1_000);

    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(10);
    expect(decisions.at(-1)!.retryAfterMs).toBe(1_000);
    expect((await bucket.tryDraw()).allowed).toBe(true);
    await bucket.close();
  });

  it.each(["all keys", "one key"])(
    "lets a call pass once another turned out to have cost less, by a limit of %s",
    async (of) => {
      const limits = [tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" })];
      const { bucket } = createTestBucket(of === "all keys" ? { limits } : { perKey: { limits } });
      const slot = await bucket.draw({ key: "k", cost: { tokens: 1_000 } });
      const refused = await bucket.tryDraw({ key: "k", cost: { tokens: 100 } });

      await slot.settle({ tokens: 10 });

      expect(refused.allowed).toBe(false);
      expect((await bucket.tryDraw({ key: "k", cost: { tokens: 100 } })).allowed).toBe(true);
      await bucket.close();
    },
  );

  it("forgets its refusals when it learns of another policy by a draw", async () => {
    const store = createMemoryStore();
    const { bucket } = createTestBucket({ rate: "1/h" }, { store });
    const other = createTestBucket({ rate: "100/s" }, { store }).bucket;
    await bucket.tryDraw();
    const refused = await bucket.tryDraw();
    await vi.advanceTimersByTimeAsync(10);
    await other.tryDraw({ cost: 1 });

    const drawing = bucket.draw();
    await vi.advanceTimersByTimeAsync(100);
    await drawing;
    await vi.advanceTimersByTimeAsync(100);

    expect([refused.allowed, (await bucket.tryDraw()).allowed]).toEqual([false, true]);
    await Promise.all([bucket.close(), other.close()]);
  });

  it("takes no bucket for lost since the store kept nothing of a refusal", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", burst: 5 });
    const five = (): Promise<boolean[]> =>
      Promise.all(Array.from({ length: 5 }, async () => (await bucket.tryDraw()).allowed));
    await five();
    await vi.advanceTimersByTimeAsync(1);
    const { allowed } = await bucket.tryDraw();

    await vi.advanceTimersByTimeAsync(500);

    expect([allowed, ...(await five())]).toEqual([false, true, true, true, true, true]);
    await bucket.close();
  });

  it("asks for many keys in one request", async () => {
    const { store, draws } = countedStore();
    const { bucket } = createTestBucket({ perKey: { rate: "1/s" } }, { store });
    const keys = Array.from({ length: 30 }, (_, index) => `k${index}`);

    const decisions = await Promise.all([...keys, ...keys].map((key) => bucket.tryDraw({ key })));

    expect(draws()).toBe(1);
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(30);
    await bucket.close();
  });

  it("takes an IP address for a key", async () => {
    const { bucket } = createTestBucket({ perKey: { rate: "1/s" } });

    const both = await Promise.all(
      ["::1", "::ffff:127.0.0.1"].map((key) => bucket.tryDraw({ key })),
    );

    expect(both.map(({ allowed }) => allowed)).toEqual([true, true]);
    await bucket.close();
  });

  it("forgets its refusals when a change lets calls pass", async () => {
    const { bucket } = createTestBucket({ rate: "1/h" });
    await bucket.tryDraw();
    await bucket.tryDraw();

    await bucket.configure({ rate: "1000/s" });
    await vi.advanceTimersByTimeAsync(2);

    expect((await bucket.tryDraw()).allowed).toBe(true);
    await bucket.close();
  });

  it("forgets what it refused to other keys when a call cost less of what all share", async () => {
    const limits = [tokenBucket({ capacity: 100, refill: "1/min", unit: "tokens" })];
    const { bucket } = createTestBucket({ limits, perKey: { rate: "100/s" } });
    const { slot } = await bucket.tryDraw({ key: "b", cost: { tokens: 100 } });
    const cost = { tokens: 50 };
    expect((await bucket.tryDraw({ key: "a", cost })).allowed).toBe(false);

    await slot!.settle({ tokens: 10 });

    expect((await bucket.tryDraw({ key: "a", cost })).allowed).toBe(true);
    await bucket.close();
  });

  it("forgets what it refused to a key that has another tier by now", async () => {
    let limits = [fixedWindow(1, "1h")];
    const { bucket } = createTestBucket({ rate: "100/s", burst: 10, perKey: () => ({ limits }) });
    await bucket.tryDraw({ key: "a" });
    expect((await bucket.tryDraw({ key: "a" })).allowed).toBe(false);

    limits = [fixedWindow(1_000, "1h")];

    expect((await bucket.tryDraw({ key: "a" })).allowed).toBe(true);
    await bucket.close();
  });

  it("fails no other caller when a call can never pass under a policy of another replica", async () => {
    const store = createMemoryStore();
    const of = (capacity: number) => ({
      perKey: { limits: [tokenBucket({ capacity, refill: "1/s" })] },
    });
    const here = createTestBucket(of(10), { store }).bucket;
    const there = createTestBucket(of(10), { store }).bucket;
    await here.tryDraw({ key: "a" });
    await there.configure(of(5));

    const [large, small] = await Promise.allSettled([
      here.tryDraw({ key: "a", cost: 8 }),
      here.tryDraw({ key: "b", cost: 2 }),
    ]);

    expect(large).toMatchObject({ status: "rejected", reason: { code: "ERR_COST_TOO_LARGE" } });
    expect(small).toMatchObject({ status: "fulfilled", value: { allowed: true, remaining: 3 } });
    await Promise.all([here.close(), there.close()]);
  });

  it("keeps keys apart, and names the key's own limit", async () => {
    const { bucket } = createTestBucket({ rate: "100/s", burst: 10, perKey: { rate: "1/s" } });

    const [first, second, other] = await Promise.all(
      ["a", "a", "b"].map((key) => bucket.tryDraw({ key })),
    );

    expect([first!.allowed, second!.allowed, other!.allowed]).toEqual([true, false, true]);
    expect(second!.limits.map(({ scope }) => scope)).toEqual(["bucket", "key"]);
    expect(second!.limitedBy).toBe("1/s");
    await bucket.close();
  });

  it("refuses while a bucket is paused, and says for how long", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: 5_000 });

    const refused = await bucket.tryDraw();

    expect(refused).toMatchObject({ allowed: false, limitedBy: "a pause", remaining: 0 });
    expect(refused.retryAfterMs).toBeGreaterThan(4_900);
    await bucket.close();
  });

  it("says that nothing is left while a key is paused, whatever its limits have left", async () => {
    const { bucket } = createTestBucket({
      rate: "100/s",
      burst: 9,
      perKey: { rate: "3/s", burst: 3 },
    });
    await bucket.pause({ key: "a", forMs: 5_000 });

    const refused = await bucket.tryDraw({ key: "a" });
    const headers = rateLimitHeaders(refused);

    expect(refused).toMatchObject({ limitedBy: "a pause", remaining: 0, resetAfterMs: 5_000 });
    expect(refused.limits.map(({ remaining }) => remaining)).toEqual([0, 0]);
    expect(headers).toMatchObject({
      "X-RateLimit-Remaining": "0",
      "X-RateLimit-Reset": "5",
      "Retry-After": "5",
    });
    await bucket.close();
  });

  it("says of a rate that a refusal has slowed what holds calls back", async () => {
    const { bucket } = createTestBucket({ rate: "10/s", burst: 20 });
    const refuse = bucket.throttled(
      async () => new Response("", { status: 429, headers: { "retry-after-ms": "100" } }),
    );
    await refuse();
    await vi.advanceTimersByTimeAsync(160);

    const refused = await bucket.tryDraw();

    expect(refused).toMatchObject({ allowed: false, remaining: 0 });
    expect(refused.limitedBy).toBe("a rate that answers have slowed");
    await bucket.close();
  });

  it("hands out leases that are given back by the slot", async () => {
    const { bucket } = createTestBucket({ limits: [concurrency(1)] });
    const first = await bucket.tryDraw();
    const second = await bucket.tryDraw();

    first.slot!.release();
    await vi.advanceTimersByTimeAsync(1);
    const third = await bucket.tryDraw();

    expect([first.allowed, second.allowed, third.allowed]).toEqual([true, false, true]);
    third.slot!.release();
    await bucket.close();
  });

  it("gives each of those who ask together for different costs its own lease", async () => {
    const limits = [concurrency(2), leakyBucket("1000/s", { burst: 100 })];
    const { bucket } = createTestBucket({ limits });
    const both = async (): Promise<boolean[]> => {
      const decisions = await Promise.all([1, 2].map((cost) => bucket.tryDraw({ cost })));
      for (const { slot } of decisions) slot?.release();
      await vi.advanceTimersByTimeAsync(2);
      return decisions.map(({ allowed }) => allowed);
    };

    expect([...(await both()), ...(await both())]).toEqual([true, true, true, true]);
    await bucket.close();
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 53, {}, { tokens: 0 }, { calls: -1 }, [1], "1"])(
    "refuses the cost %j before it asks anybody",
    async (cost) => {
      const { store, draws } = countedStore();
      const { bucket } = createTestBucket({ rate: "1/s" }, { store });

      await expect(bucket.tryDraw({ cost: cost as never })).rejects.toBeInstanceOf(
        InvalidOptionError,
      );

      expect(draws()).toBe(0);
      await bucket.close();
    },
  );

  it("gives each caller a separate list of limits", async () => {
    const { bucket } = createTestBucket({ limits: [fixedWindow(1, "1min")] });

    const [taken, refused] = await Promise.all([bucket.tryDraw(), bucket.tryDraw()]);
    (taken.limits as unknown[]).length = 0;

    expect(refused.limits).toHaveLength(1);
    expect((await bucket.tryDraw()).limits).toHaveLength(1);
    await bucket.close();
  });

  it("refuses an unknown unit by its name, and a cost that no limit could ever give", async () => {
    const limits = [leakyBucket("500/s"), leakyBucket("90000/s", { unit: "tokens", burst: 4_000 })];
    const { bucket } = createTestBucket({ limits });

    await expect(bucket.tryDraw({ cost: { token: 5 } })).rejects.toThrow(
      "the units are calls, tokens",
    );
    const tooLarge = bucket.tryDraw({ cost: { tokens: 4_001 } });
    await expect(tooLarge).rejects.toMatchObject({
      unit: "tokens",
      cost: 4_001,
      maxCost: 4_000,
      limitedBy: "90000/s with a burst of 4000 tokens",
    });
    await expect(tooLarge).rejects.toBeInstanceOf(CostTooLargeError);
    await bucket.close();
  });
});
