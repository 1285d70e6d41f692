import { describe, expect, it, vi } from "vitest";
import { leakyBucket, slidingLog } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import type { DrawOptions } from "../../../../src/throttle/call-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { atOnce, MINUTE_MS, refusalOf, refusedIn, told } from "../../../support/async/refusals.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

fakeTimers();

/** How a bucket comes to hold its calls back for a minute. */
const closing: [string, BucketOptions, DrawOptions, (bucket: OwnedBucket) => Promise<unknown>][] = [
  ["a pause", { rate: "100/s" }, {}, (bucket) => bucket.pause({ forMs: MINUTE_MS })],
  [
    "a pause",
    { rate: "100/s", perKey: { rate: "10/s" } },
    { key: "a" },
    (bucket) => bucket.pause({ forMs: MINUTE_MS }),
  ],
  [
    "a pause",
    { rate: "100/s", perKey: { rate: "10/s" } },
    { key: "a" },
    (bucket) => bucket.pause({ key: "a", forMs: MINUTE_MS }),
  ],
  [
    "a pause",
    { perKey: { rate: "10/s" } },
    { key: "a" },
    (bucket) => bucket.pause({ key: "a", forMs: MINUTE_MS }),
  ],
  [
    "a pause",
    { perKey: { rate: "10/s" } },
    { key: "a" },
    (bucket) => bucket.pause({ forMs: MINUTE_MS }),
  ],
  [
    "a cooldown",
    { rate: "100/s" },
    {},
    async (bucket) =>
      bucket
        .run(() => {
          throw Object.assign(new Error("Too Many Requests"), { status: 429, retryAfter: 60 });
        })
        .catch(() => {}),
  ],
  ["1/min", { rate: "1/min" }, {}, (bucket) => bucket.draw()],
  ["1/min", { perKey: { rate: "1/min" } }, { key: "a" }, (bucket) => bucket.draw({ key: "a" })],
  [
    "1/min",
    { rate: "100/s", perKey: { rate: "1/min" } },
    { key: "a" },
    (bucket) => bucket.draw({ key: "a" }),
  ],
  [
    "1/min",
    { rate: "1/min", perKey: { rate: "100/s" } },
    { key: "b" },
    (bucket) => bucket.draw({ key: "a" }),
  ],
  [
    "10 tokens/min",
    { limits: [leakyBucket("100/s"), leakyBucket("10/min", { unit: "tokens", burst: 10 })] },
    { cost: { tokens: 10 } },
    (bucket) => bucket.draw({ cost: { tokens: 10 } }),
  ],
];

describe.each([
  ["a bucket", false],
  ["a bucket that is spread over a cluster", true],
])("%s", (_, isSpread) => {
  const cases = closing.filter(
    ([, options]) => !isSpread || Object.keys(options).join() === "perKey",
  );

  it.each(cases)("refuses at once what cannot go in time: %s (%o, %o)", async (...given) => {
    const [limitedBy, options, call, close] = given;
    const { bucket } = createTestBucket(options, { isSpread });
    await close(bucket);

    const name =
      limitedBy === "10 tokens/min" ? (await refusedIn(bucket, call)).limitedBy : limitedBy;
    const passedMs = limitedBy === "10 tokens/min" ? 1_000 : 0;
    expect(told(await refusedIn(bucket, call), MINUTE_MS - passedMs)).toEqual(atOnce(name));
    expect(told(await refusedIn(bucket, call), MINUTE_MS - passedMs - 1_000)).toEqual(atOnce(name));
    expect(bucket.waiting).toBe(0);
    await bucket.close();
  });
});

describe("a call that cannot go in time", () => {
  it("is refused at once by whatever way it comes", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: MINUTE_MS });
    const with1s = { maxWaitMs: 1_000 };

    const ways = [
      () => bucket.draw(with1s),
      () => bucket.throttled(async () => "ran", with1s)(),
      () => bucket.run(async () => "ran", with1s),
      () => bucket.fetch.with(with1s)("http://127.0.0.1:1/"),
    ];
    for (const [index, way] of ways.entries()) {
      expect(told(await refusalOf(way), MINUTE_MS - index * 1_000)).toEqual(atOnce("a pause"));
    }
    await bucket.close();
  });

  it("is refused at once though it would wait for a place in its process first", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: MINUTE_MS });
    const call = bucket.throttled(async () => "ran", { concurrency: 1 });
    const first = call();
    await vi.advanceTimersByTimeAsync(1);

    const refusal = await refusalOf(() => call.with({ maxWaitMs: 1_000 })());
    expect(refusal).toMatchObject({ afterMs: 0, limitedBy: "a pause" });
    expect(refusal.retryAfterMs - MINUTE_MS).toBeCloseTo(0, -2);
    await bucket.resume();
    await vi.advanceTimersByTimeAsync(100);
    expect(await first).toBe("ran");
    await bucket.close();
  });

  it.each([{ rate: "100/s" }, { rate: "100/s", perKey: { rate: "1/s" } }])(
    "is refused soon when a key's notification arrived during the draw (%o)",
    async (options) => {
      const store = createMemoryStore();
      const asking: (() => void)[] = [];
      const draw: typeof store.draw = async (request) => {
        const reply = await store.draw(request);
        await new Promise<void>((resolve) => asking.push(resolve));
        return reply;
      };
      const { bucket } = createTestBucket(options, { store: { ...store, draw } });
      await bucket.pause({ forMs: MINUTE_MS });
      const refused = rejectionOf(bucket.draw({ key: "a", maxWaitMs: MINUTE_MS / 2 }));
      await vi.advanceTimersByTimeAsync(1);
      bucket.redraw("a");
      asking.shift()!();
      await vi.advanceTimersByTimeAsync(10);
      asking.shift()!();
      await vi.advanceTimersByTimeAsync(1);

      expect(bucket.waiting).toBe(0);
      expect(await refused).toMatchObject({ limitedBy: "a pause" });
      await bucket.close();
    },
  );

  it("is refused at once beside others that wait", async () => {
    const { bucket } = createTestBucket({ rate: "100/s" });
    await bucket.pause({ forMs: MINUTE_MS });
    const waiting = Array.from({ length: 3 }, () => bucket.draw());
    const patient = bucket.draw({ maxWaitMs: 2 * MINUTE_MS });
    await vi.advanceTimersByTimeAsync(20_250);

    const { afterMs, limitedBy, retryAfterMs } = await refusedIn(bucket);
    expect({ afterMs, limitedBy }).toEqual({ afterMs: 0, limitedBy: "a pause" });
    // Four others wait, for 10 ms each.
    expect(retryAfterMs - (MINUTE_MS - 20_250 + 40)).toBeCloseTo(0, -2);
    await vi.advanceTimersByTimeAsync(MINUTE_MS);
    await Promise.all([...waiting, patient]);
    await bucket.close();
  });

  it("is refused as soon as a pause begins that it waits through", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    await bucket.draw();
    const refused = rejectionOf(bucket.draw({ maxWaitMs: 2_000 }));
    await vi.advanceTimersByTimeAsync(300);
    expect(bucket.waiting).toBe(1);
    await bucket.pause({ forMs: MINUTE_MS });
    await vi.advanceTimersByTimeAsync(10);

    expect(bucket.waiting).toBe(0);
    expect(await refused).toMatchObject({ limitedBy: "a pause" });
    await bucket.close();
  });

  it("is refused of every key at once when the bucket is paused", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s", perKey: { rate: "10/s" } });
    await bucket.pause({ forMs: MINUTE_MS });

    const refused = Array.from({ length: 100 }, (_, index) =>
      rejectionOf(bucket.draw({ key: `key ${index}`, maxWaitMs: 1_000 })),
    );
    const sinceMs = performance.now();
    await vi.advanceTimersByTimeAsync(10);
    await Promise.all(refused);

    expect(performance.now() - sinceMs).toBeLessThanOrEqual(10);
    await bucket.close();
  });

  it.each<[string, (index: number) => DrawOptions]>([
    ["keys", (index) => ({ key: `key ${index}` })],
    ["costs", (index) => ({ cost: index + 1 })],
    ["keys and costs", (index) => ({ key: `key ${index}`, cost: 100 - index })],
  ])("is refused with all the others that came then, of many %s", async (_, callOf) => {
    const { bucket } = createTestBucket({
      rate: "1/min",
      burst: 100,
      perKey: { rate: "100/s", burst: 100 },
    });
    await bucket.draw({ key: "large", cost: 100 });
    const refused = Array.from({ length: 100 }, (__, index) =>
      rejectionOf(bucket.draw({ key: "a", ...callOf(index), maxWaitMs: 30_000 })),
    );
    await vi.advanceTimersByTimeAsync(100);

    expect(bucket.waiting).toBe(0);
    await Promise.all(refused);
    await bucket.close();
  });

  it("gets the latest of all times that delay it", async () => {
    const { bucket } = createTestBucket({
      rate: "100/s",
      perKey: { rate: "10/s", concurrency: 1 },
    });
    const key = "a";
    const running = await bucket.draw({ key });
    await vi.advanceTimersByTimeAsync(1_000);
    await bucket.pause({ key, forMs: 20_000 });
    expect(told(await refusedIn(bucket, { key }), 20_000)).toEqual(atOnce("a pause"));
    await bucket.pause({ forMs: MINUTE_MS });
    expect(told(await refusedIn(bucket, { key }), MINUTE_MS)).toEqual(atOnce("a pause"));
    await bucket.pause({ forMs: 2_000 });
    expect(told(await refusedIn(bucket, { key }), 18_000)).toEqual(atOnce("a pause"));
    running.release();
    await bucket.close();
  });

  it("gets the end of a pause where all leases are out too", async () => {
    const { bucket } = createTestBucket({ concurrency: 1 });
    const running = await bucket.draw();
    await bucket.pause({ forMs: MINUTE_MS });

    expect(told(await refusedIn(bucket), MINUTE_MS)).toEqual(atOnce("a pause"));
    running.release();
    expect(told(await refusedIn(bucket), MINUTE_MS - 1_000)).toEqual(atOnce("a pause"));
    await bucket.close();
  });

  it("gets the time of a rate that it surely waits for, where all leases are out too", async () => {
    const { bucket } = createTestBucket({ rate: "1/min", concurrency: 1 });
    const running = await bucket.draw();

    expect(told(await refusedIn(bucket), MINUTE_MS)).toEqual(atOnce("1/min"));
    running.release();
    await bucket.close();
  });

  it("gets the time of a limit that lasts longer than a pause", async () => {
    // No fixed window, which may be about to end.
    const { bucket } = createTestBucket({ limits: [slidingLog(1, "1d")] });
    await bucket.draw();
    await bucket.pause({ forMs: 5_000 });

    const { afterMs, limitedBy, retryAfterMs } = await refusedIn(bucket);
    expect(afterMs).toBeLessThanOrEqual(10);
    expect(limitedBy).toBe("1 in any 1d");
    expect(retryAfterMs).toBeGreaterThan(MINUTE_MS);
    await bucket.close();
  });

  it.each<[BucketOptions]>([
    [{ rate: "6/min" }],
    [{ perKey: { rate: "6/min" } }],
    [{ rate: "100/s", perKey: { rate: "6/min" } }],
  ])(
    "gets the time of the next start though calls of other replicas have yet to start (%o)",
    async (options) => {
      const store = { ...createMemoryStore(), giveBack: () => new Promise<never>(() => {}) };
      const buckets = Array.from({ length: 4 }, () => createTestBucket(options, { store }).bucket);
      const key = "a";
      await buckets[0]!.draw({ key });

      for (const [index, bucket] of buckets.entries()) {
        const leftMs = 10_000 - index * 1_000;
        expect(told(await refusedIn(bucket, { key }), leftMs)).toEqual(atOnce("6/min"));
      }
    },
  );

  it("gets the time of the next start though a caller has just given up", async () => {
    const { bucket } = createTestBucket({ rate: "6/min" });
    await bucket.draw();
    const leaving = new AbortController();
    const left = rejectionOf(bucket.draw({ signal: leaving.signal }));
    await vi.advanceTimersByTimeAsync(500);
    leaving.abort();
    await left;

    expect(told(await refusedIn(bucket), 9_500)).toEqual(atOnce("6/min"));
    await bucket.close();
  });
});
