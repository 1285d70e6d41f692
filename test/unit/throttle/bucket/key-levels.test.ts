import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Key } from "../../../../src/core/key-path.ts";
import { fixedWindow } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { rateLimitHeaders } from "../../../../src/throttle/try/rate-limit-headers.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const E1 = ["acme", "e1"];
const E2 = ["acme", "e2"];
const CUSTOMERS: BucketOptions = {
  limits: [fixedWindow(6, "1h")],
  perKey: [{ limits: [fixedWindow(3, "1h")] }, { limits: [fixedWindow(2, "1h")] }],
};

beforeEach(() => {
  vi.useFakeTimers();
  vi.setSystemTime(3_600_000 * 500_000);
});
afterEach(() => {
  vi.useRealTimers();
});

describe("limits by level", () => {
  it("apply to a customer and to each of its endpoints, and the reply names the tightest one", async () => {
    const { bucket } = createTestBucket(CUSTOMERS);

    const first = await bucket.tryDraw({ key: E1 });
    await bucket.tryDraw({ key: E1 });
    const endpointFull = await bucket.tryDraw({ key: E1 });
    const otherEndpoint = await bucket.tryDraw({ key: E2 });
    const customerFull = await bucket.tryDraw({ key: ["acme", "e3"] });
    const otherCustomer = await bucket.tryDraw({ key: ["globex", "e1"] });

    expect(first.limits).toMatchObject([
      { name: "6 each 1h", scope: "bucket", level: undefined, remaining: 5 },
      { name: "3 each 1h (level 0)", scope: "key", level: 0, remaining: 2 },
      { name: "2 each 1h (level 1)", scope: "key", level: 1, remaining: 1 },
    ]);
    expect(endpointFull).toMatchObject({ allowed: false, limitedBy: "2 each 1h (level 1)" });
    expect(otherEndpoint.allowed).toBe(true);
    expect(customerFull).toMatchObject({ allowed: false, limitedBy: "3 each 1h (level 0)" });
    expect(otherCustomer.allowed).toBe(true);
    await bucket.close();
  });

  it("book a call in all levels or in none", async () => {
    const { bucket } = createTestBucket(CUSTOMERS);
    for (let tries = 0; tries < 20; tries++) await bucket.tryDraw({ key: E1 });

    const { limits } = await bucket.peek({ key: E2 });

    expect(limits.map(({ level, keyLevel }) => [level, keyLevel])).toEqual([
      [2, undefined],
      [2, 0],
      [0, 1],
    ]);
    await bucket.close();
  });

  it("appear in headers under different names", async () => {
    const { bucket } = createTestBucket({
      limits: [fixedWindow(2, "1h")],
      perKey: [{ limits: [fixedWindow(2, "1h")] }, { limits: [fixedWindow(2, "1h")] }],
    });

    const headers = rateLimitHeaders(await bucket.tryDraw({ key: E1 }));

    expect(headers["RateLimit"]!.replaceAll(/t=\d+/g, "t=1")).toBe(
      '"2 each 1h";r=1;t=1, "2 each 1h (level 0)";r=1;t=1, "2 each 1h (level 1)";r=1;t=1',
    );
    await bucket.close();
  });

  it("make calls wait for the level that binds, and for no other", async () => {
    const { bucket } = createTestBucket({
      rate: "1000/s",
      perKey: [{ rate: "10/s" }, { rate: "1/s" }],
    });
    const times = new Map<string, number>();
    const call = async (name: string, key: string[]): Promise<void> => {
      const slot = await bucket.draw({ key });
      times.set(name, slot.waitedMs);
    };

    const calls = [
      call("first", E1),
      call("its endpoint", E1),
      call("its customer", E2),
      call("another", ["globex", "e1"]),
    ];
    const refusing = rejectionOf(bucket.draw({ key: E1, maxWaitMs: 500 }));
    await vi.advanceTimersByTimeAsync(1_500);
    const refused = await refusing;
    await Promise.all(calls);

    expect(refused).toMatchObject({ limitedBy: "1/s (level 1)", key: E1 });
    expect(times.get("first")).toBeLessThan(50);
    expect(times.get("another")).toBeLessThan(50);
    expect(times.get("its customer")).toBeGreaterThanOrEqual(99);
    expect(times.get("its customer")).toBeLessThan(300);
    expect(times.get("its endpoint")).toBeGreaterThanOrEqual(999);
    await bucket.close();
  });

  it("keep no booking of a customer for the call of an endpoint that gave up", async () => {
    const { bucket } = createTestBucket({
      perKey: [
        { rate: "1/s", burst: 5 },
        { rate: "1000/s", burst: 5 },
      ],
      onStateLost: "full",
    });
    const others = Array.from({ length: 400 }, (_, index) => [`customer-${index}`, "e1"]);
    await Promise.all([E1, ...others].map((key) => bucket.draw({ key, cost: 5 })));
    const waiting = Promise.allSettled(others.map((key) => bucket.draw({ key, cost: 5 })));
    const leaving = new AbortController();
    const { signal } = leaving;
    const large = rejectionOf(bucket.draw({ key: E1, cost: 5, signal }));
    const small = bucket.draw({ key: E2 });
    await vi.advanceTimersByTimeAsync(200);

    leaving.abort(new Error("left"));
    await vi.advanceTimersByTimeAsync(6_000);

    expect((await large) as Error).toMatchObject({ message: "left" });
    expect((await small).waitedMs).toBeLessThan(1_100);
    await Promise.all([bucket.close(), waiting]);
  });

  it("let functions and tiers see the path up to their level", async () => {
    const seen: unknown[] = [];
    const { bucket } = createTestBucket({
      perKey: [
        (path) => {
          seen.push(path);
          return path[0] === "big" ? { limits: [fixedWindow(100, "1h")] } : {};
        },
        {
          tiers: {
            few: { limits: [fixedWindow(1, "1h")] },
            many: { limits: [fixedWindow(9, "1h")] },
          },
          tierOf: (path) => {
            seen.push(path);
            return path[1] === "vip" ? "many" : "few";
          },
        },
      ],
    });

    const vip = await bucket.tryDraw({ key: ["big", "vip", "label"] });
    const plain = await bucket.tryDraw({ key: ["small", "x"] });
    const bare = await rejectionOf(bucket.tryDraw({ key: "small" }));

    expect(seen.slice(0, 2)).toEqual([["big"], ["big", "vip"]]);
    expect(vip.limits.map(({ capacity, level }) => [capacity, level])).toEqual([
      [100, 0],
      [9, 1],
    ]);
    expect(plain.limits.map(({ capacity, level }) => [capacity, level])).toEqual([[1, 1]]);
    expect(bare).toMatchObject({ code: "ERR_INVALID_OPTION", option: "key", value: "small" });
    await bucket.close();
  });

  it("take a name below the last level for a label", async () => {
    const { bucket } = createTestBucket(CUSTOMERS);

    await bucket.tryDraw({ key: [...E1, "a"] });
    await bucket.tryDraw({ key: [...E1, "b"] });
    const third = await bucket.tryDraw({ key: [...E1, "c"] });

    expect(third.limitedBy).toBe("2 each 1h (level 1)");
    await bucket.close();
  });

  it("pause, resume and peek at each level", async () => {
    const { bucket } = createTestBucket({
      perKey: [
        { rate: "100/s", burst: 9 },
        { rate: "9/s", burst: 9 },
      ],
    });
    const limitedBy = async (key: Key): Promise<string | undefined> =>
      (await bucket.tryDraw({ key })).limitedBy;
    const allowed = async (): Promise<boolean[]> => {
      const keys = [E1, E2, ["globex", "e1"]];
      const tried = [];
      for (const key of keys) tried.push((await bucket.tryDraw({ key })).allowed);
      return tried;
    };

    await bucket.pause({ key: E1 });
    expect(await allowed()).toEqual([false, true, true]);
    expect(await limitedBy(E1)).toBe("a pause (level 1)");
    await bucket.pause({ key: "acme" });
    expect(await allowed()).toEqual([false, false, true]);
    await bucket.resume({ key: E1 });
    expect(await allowed()).toEqual([false, false, true]);
    expect(await limitedBy(E2)).toBe("a pause (level 0)");
    expect((await bucket.peek({ key: E2 })).pausedForMs).toBe(Infinity);
    expect((await bucket.peek({ key: "globex" })).pausedForMs).toBe(0);
    await bucket.resume({ key: "acme" });
    expect(await allowed()).toEqual([true, true, true]);
    await bucket.close();
  });

  it.each([
    ["the endpoint of its call by default", undefined, [true, false, false]],
    ["the customer where feedback says so", 0, [true, true, false]],
    ["the endpoint where feedback says so", 1, [true, false, false]],
    ["the nearest level with limits where it names a lower one", 2, [true, false, false]],
  ])("cool down %s", async (_what, level, cooled) => {
    const refusal = Object.assign(new Error("429"), { status: 429 });
    const { bucket } = createTestBucket({
      perKey: [
        { rate: "100/s", burst: 9 },
        { rate: "9/s", burst: 9 },
      ],
      feedback: () => ({ coolMs: 5_000, level }),
    });

    await rejectionOf(bucket.run(() => Promise.reject(refusal), { key: E1 }));
    await vi.advanceTimersByTimeAsync(1);

    const keys = [E1, E2, ["globex", "e1"]];
    const states = await Promise.all(keys.map((key) => bucket.peek({ key })));
    expect(states.map(({ coolingForMs }) => coolingForMs > 0)).toEqual(cooled);
    await bucket.close();
  });

  it("of a newer declaration apply to all replicas, which log that once", async () => {
    const store = createMemoryStore();
    const first = createTestBucket({ rate: "100/s", perKey: { rate: "50/s" } }, { store });
    await first.bucket.tryDraw({ key: E1 });
    await vi.advanceTimersByTimeAsync(10);
    const second = createTestBucket(CUSTOMERS, { store, replica: "other" });
    await second.bucket.tryDraw({ key: E1 });

    await first.bucket.tryDraw({ key: E1 });
    const third = await first.bucket.tryDraw({ key: E1 });
    await first.bucket.tryDraw({ key: E2 });

    expect(third.limitedBy).toBe("2 each 1h (level 1)");
    expect(first.warnings.map(({ message }) => message)).toEqual([
      expect.stringContaining("6 each 1h; per key 3 each 1h (level 0), 2 each 1h (level 1)"),
    ]);
    expect(second.warnings).toEqual([]);
    await Promise.all([first.bucket.close(), second.bucket.close()]);
  });

  it("are changed live, and by level", async () => {
    const { bucket } = createTestBucket(CUSTOMERS);

    await bucket.configure({ perKey: [{}, { limits: [fixedWindow(1, "1h")] }] });
    await bucket.tryDraw({ key: E1 });
    const second = await bucket.tryDraw({ key: E1 });

    expect(second.limitedBy).toBe("1 each 1h (level 1)");
    expect(await bucket.peek()).toMatchObject({
      policy: "6 each 1h; per key 1 each 1h (level 1)",
      policyFrom: "configured",
    });
    const local = await rejectionOf(bucket.configure({ perKey: [{}, () => ({ rate: "1/s" })] }));
    expect(local).toMatchObject({ option: "perKey[1]" });
    const named = await rejectionOf(bucket.configure({ perKey: { address: { rate: "1/s" } } }));
    expect(named).toMatchObject({ option: "perKey" });
    await bucket.close();
  });
});
