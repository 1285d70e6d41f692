import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { InvalidOptionError, type WaitTooLongError } from "../../../../src/core/errors.ts";
import { leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { CallOptions } from "../../../../src/throttle/call-options.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

fakeTimers({ leavesNone: true });

describe("a call that gives up", () => {
  it.each<[string, BucketOptions]>([
    ["the bucket", { rate: "10/s", burst: 20 }],
    ["its key", { perKey: { rate: "10/s", burst: 20 } }],
  ])("leaves what %s was saving up for it to those behind it, at once", async (_whose, options) => {
    const { bucket } = createTestBucket(options);
    await bucket.draw({ key: "k", cost: 20 });
    const leaving = new AbortController();
    const large = rejectionOf(bucket.draw({ key: "k", cost: 20, signal: leaving.signal }));
    await vi.advanceTimersByTimeAsync(20);
    let hasGone = false;
    const small = bucket.draw({ key: "k" }).then(() => (hasGone = true));
    await vi.advanceTimersByTimeAsync(200);
    const hadGone = hasGone;

    leaving.abort();
    await vi.advanceTimersByTimeAsync(20);

    expect([hadGone, hasGone]).toEqual([false, true]);
    await Promise.all([large, small, bucket.close(), vi.advanceTimersByTimeAsync(100)]);
  });
});

describe("a bucket", () => {
  it("hands a whole burst out at once", async () => {
    const { bucket } = createTestBucket({ rate: "1/s", burst: 1_000 });

    const calls = Promise.all(Array.from({ length: 1_000 }, () => bucket.draw({ maxWaitMs: 200 })));
    await vi.advanceTimersByTimeAsync(200);

    await expect(calls).resolves.toHaveLength(1_000);
    await bucket.close();
  });

  it("fails only one call when the limits of its key cannot be computed", async () => {
    const { bucket } = createTestBucket({
      rate: "100/s",
      perKey: (key) => {
        if (key === "lost") throw new Error("no such tenant");
        return { rate: "50/s" };
      },
    });

    const lost = rejectionOf(bucket.draw({ key: "lost" }));
    const other = bucket.draw({ key: "acme" });
    await vi.advanceTimersByTimeAsync(100);

    expect(await lost).toMatchObject({ message: "no such tenant" });
    await expect(other).resolves.toMatchObject({ key: "acme" });
    await bucket.close();
  });

  it("asks for one tier of a key at a time, when the key has changed its tier", async () => {
    const store = createMemoryStore();
    const draw = vi.spyOn(store, "draw");
    let tier = "slow";
    const tiers = { slow: { rate: "1/h" }, fast: { rate: "10/s" } };
    const perKey = { tiers, tierOf: () => tier };
    const { bucket } = createTestBucket({ rate: "1000/s", perKey }, { store });
    await bucket.draw({ key: "a" });
    const slow = bucket.draw({ key: "a", maxWaitMs: 5_000 });
    tier = "fast";

    const both = Promise.allSettled([slow, bucket.draw({ key: "a" })]);
    await vi.advanceTimersByTimeAsync(5_000);
    await both;

    const mixed = draw.mock.calls.filter(
      ([{ slotRequests }]) => new Set(slotRequests.map(({ scopes }) => scopes[0]?.limits)).size > 1,
    );
    expect(mixed).toEqual([]);
    await bucket.close();
  });

  it("says how long a cooldown lasts to those who will not wait for it", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: 60_000 });

    const refused = rejectionOf(bucket.draw({ maxWaitMs: 50 }));
    await vi.advanceTimersByTimeAsync(50);

    const error = (await refused) as WaitTooLongError;
    expect(error.limitedBy).toBe("a pause");
    expect(error.retryAfterMs).toBeGreaterThan(59_000);
    await bucket.close();
  });

  it("returns when the first waiting call may start, and counts an interval for each of the others", async () => {
    const { bucket } = createTestBucket({ rate: "1/5s" });
    await bucket.draw();
    await vi.advanceTimersByTimeAsync(2_000);

    const refused = async (): Promise<number> => {
      const error = await rejectionOf(bucket.draw({ maxWaitMs: 100 }));
      return (error as WaitTooLongError).retryAfterMs;
    };
    const together = await Promise.all([refused(), refused()]);
    const leaving = new AbortController();
    const waiting = rejectionOf(bucket.draw({ signal: leaving.signal }));
    await vi.advanceTimersByTimeAsync(100);
    const behind = await refused();
    leaving.abort();
    await waiting;
    const alone = await refused();

    expect(together).toEqual([3_000, 3_000]);
    expect(behind).toBe(2_900 + 5_000);
    expect(alone).toBe(2_900);
    await bucket.close();
  });

  it("reports that Redis has not responded to calls that wait for nothing else", async () => {
    const store: Store = { ...createMemoryStore(), draw: () => new Promise<never>(() => {}) };
    const { bucket } = createTestBucket({ rate: "100/s" }, { store });

    const atOnce = rejectionOf(bucket.draw({ maxWaitMs: 1 }));
    const late = rejectionOf(bucket.draw({ maxWaitMs: 60 }));
    await vi.advanceTimersByTimeAsync(60);

    expect(((await atOnce) as WaitTooLongError).limitedBy).toMatch("Redis");
    expect(await late).toMatchObject({
      limitedBy: "Redis, which has not answered yet",
      retryAfterMs: 1_000,
    });
  });

  it("takes units by any name, and answers of promises for no limits", async () => {
    const limits = [leakyBucket("10/s", { unit: "constructor", burst: 5 })];
    const { bucket } = createTestBucket({ limits });

    await expect(bucket.draw()).resolves.toMatchObject({ bucket: "test" });
    const perKey = (async () => ({ rate: "1/s" })) as never;
    const other = createTestBucket({ rate: "10/s", perKey }).bucket;
    await expect(other.draw({ key: "a" })).rejects.toBeInstanceOf(InvalidOptionError);
    await Promise.all([bucket.close(), other.close()]);
  });

  const fails = (async () => {
    throw new Error("no such tenant");
  }) as never;
  const tiers = { free: { rate: "1/s" } };
  it.each<[string, BucketOptions, CallOptions]>([
    ["perKey", { rate: "10/s", perKey: fails }, { key: "a" }],
    ["perKey.tierOf()", { rate: "10/s", perKey: { tiers, tierOf: fails } }, { key: "a" }],
    ["key", { rate: "10/s" }, { key: fails }],
  ])(
    "refuses an async %s by name, and its rejection ends no process",
    async (option, options, how) => {
      const unhandled = vi.fn();
      process.on("unhandledRejection", unhandled);
      const { bucket } = createTestBucket(options);

      const refused = rejectionOf(bucket.throttled(async () => "ok", how)());
      await vi.advanceTimersByTimeAsync(100);

      expect(await refused).toMatchObject({ code: "ERR_INVALID_OPTION", option });
      await nextTurn();
      expect(unhandled).not.toHaveBeenCalled();
      process.off("unhandledRejection", unhandled);
      await bucket.close();
    },
  );
});
