import { describe, expect, it, vi } from "vitest";
import { leakyBucket, slidingLog } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { NoRoomYet } from "../../../../src/throttle/waiting/waiting-call.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { atOnce, MINUTE_MS, refusalOf, refusedIn, told } from "../../../support/async/refusals.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers();

/** One call of each key waits, without a bound, for what all keys share; returns what ends that. */
async function crowd(bucket: OwnedBucket, keys: number): Promise<() => Promise<unknown>> {
  await bucket.draw({ key: "first" });
  const leaving = new AbortController();
  const { signal } = leaving;
  const waiting = Array.from({ length: keys }, (_, index) =>
    bucket.draw({ key: `other ${index}`, signal }),
  );
  const ended = Promise.allSettled(waiting);
  await advance(50);
  return async () => {
    leaving.abort();
    await ended;
    await bucket.close();
  };
}

/** How a key, and its limit, come to hold back calls for a minute. */
const closing: [string, BucketOptions, (bucket: OwnedBucket) => Promise<unknown>][] = [
  [
    "a pause",
    { rate: "2/s", perKey: { rate: "1/s" } },
    (bucket) => bucket.pause({ key: "k", forMs: MINUTE_MS }),
  ],
  [
    "a cooldown",
    { rate: "2/s", burst: 2, perKey: { rate: "1/s" } },
    (bucket) =>
      bucket
        .run(
          () => {
            throw Object.assign(new Error("Too Many Requests"), { status: 429, retryAfter: 60 });
          },
          { key: "k" },
        )
        .catch(() => {}),
  ],
  [
    "1/min",
    { rate: "2/s", burst: 2, perKey: { rate: "1/min" } },
    (bucket) => bucket.draw({ key: "k" }),
  ],
];

describe("a call of a key that cannot go in time, behind calls of other keys", () => {
  it.each(closing)("is refused at once: %s (%o)", async (limitedBy, options, close) => {
    const { bucket } = createTestBucket(options);
    await close(bucket);
    const end = await crowd(bucket, 8);

    const refusal = await refusedIn(bucket, { key: "k" });

    expect(refusal.limitedBy).toBe(limitedBy);
    expect(refusal.afterMs).toBeLessThanOrEqual(10);
    expect(refusal.retryAfterMs).toBeGreaterThan(MINUTE_MS / 2);
    await end();
  });

  it("is refused at once behind more of them than one request asks for", async () => {
    const { bucket } = createTestBucket({ rate: "2/s", perKey: { rate: "1/s" } });
    await bucket.pause({ key: "k", forMs: MINUTE_MS });
    const end = await crowd(bucket, 50);

    const refusal = await refusedIn(bucket, { key: "k" });

    expect(refusal).toMatchObject({ limitedBy: "a pause" });
    expect(refusal.afterMs).toBeLessThanOrEqual(10);
    await end();
  });

  it("is refused soon after its key is paused while it waits", async () => {
    const { bucket } = createTestBucket({ rate: "2/s", perKey: { rate: "1/s" } });
    const end = await crowd(bucket, 30);
    const refused = rejectionOf(bucket.draw({ key: "k", maxWaitMs: 30_000 }));
    await advance(300);
    const others = bucket.waiting - 1;

    await bucket.pause({ key: "k", forMs: MINUTE_MS });
    await advance(10);

    expect(bucket.waiting).toBe(others);
    expect(await refused).toMatchObject({ limitedBy: "a pause" });
    await end();
  });

  it("waits if its key lets it pass, whatever was reported about another key", async () => {
    const { bucket } = createTestBucket({ rate: "2/s", perKey: { rate: "1/s" } });
    await bucket.pause({ key: "k", forMs: MINUTE_MS });
    const end = await crowd(bucket, 1);
    const slot = bucket.draw({ key: "free", maxWaitMs: 2_000 });
    await refusedIn(bucket, { key: "k" });
    await advance(1_000);

    expect((await slot).bucket).toBe("test");
    await end();
  });

  it("asks about no key but those that are served where no call has a bound", async () => {
    const store = createMemoryStore();
    const draw = vi.spyOn(store, "draw");
    const { bucket } = createTestBucket({ rate: "2/s", perKey: { rate: "1/s" } }, { store });
    const end = await crowd(bucket, 30);
    await advance(5_000);

    const slotRequests = draw.mock.calls.flatMap(([request]) => request.slotRequests);

    expect(slotRequests.filter(({ isBounded, wanted }) => isBounded || wanted === 0)).toEqual([]);
    await end();
  });
});

describe("a call whose bucket and key are both closed", () => {
  it("gets the later of the two times, though only the bucket's was known", async () => {
    const { bucket } = createTestBucket({ rate: "5/s", perKey: { rate: "5/s" } });
    await bucket.pause({ key: "k", forMs: MINUTE_MS });
    await bucket.pause({ forMs: 5_000 });
    const other = rejectionOf(bucket.draw({ key: "other", maxWaitMs: 1_000 }));
    await advance(10);
    await other;

    const refusal = await refusedIn(bucket, { key: "k" });

    expect(told(refusal, MINUTE_MS - 10)).toEqual(atOnce("a pause"));
    await bucket.close();
  });

  it("gets the later of the two times behind a call that waits", async () => {
    const { bucket } = createTestBucket({ rate: "5/s", perKey: { rate: "5/s" } });
    await bucket.pause({ key: "k", forMs: MINUTE_MS });
    await bucket.pause({ forMs: 5_000 });
    const leaving = new AbortController();
    const other = rejectionOf(bucket.draw({ key: "other", signal: leaving.signal }));

    const refusal = await refusedIn(bucket, { key: "k" });

    expect(told(refusal, MINUTE_MS)).toEqual(atOnce("a pause"));
    leaving.abort();
    await other;
    await bucket.close();
  });
});

describe("a call that comes while slots are held here", () => {
  it("is refused once they have been used, if there is no room after them", async () => {
    const { bucket } = createTestBucket({ limits: [leakyBucket("20/s"), slidingLog(3, "1h")] });
    const three = [bucket.draw(), bucket.draw(), bucket.draw()];
    const leaving = new AbortController();
    const unbounded = rejectionOf(bucket.draw({ signal: leaving.signal }));
    await advance(20);
    const refused = rejectionOf(bucket.draw({ maxWaitMs: MINUTE_MS }));
    await advance(90);

    expect(bucket.waiting).toBe(1);
    expect(await refused).toMatchObject({ limitedBy: "3 in any 1h" });
    await Promise.all(three);
    leaving.abort();
    await unbounded;
    await bucket.close();
  });

  it("is refused at once for a limit of which those slots take nothing", async () => {
    const limits = [leakyBucket("20/s"), leakyBucket("1/h", { unit: "large" })];
    const { bucket } = createTestBucket({ limits });
    const large = { large: 1 };
    await bucket.draw({ cost: large });
    const small = [1, 2].map(() => bucket.draw());
    await advance(1);
    const refused = rejectionOf(bucket.draw({ cost: large, maxWaitMs: 1_000 }));
    await advance(15);

    expect(bucket.waiting).toBe(2);
    expect(await refused).toMatchObject({ limitedBy: "1/h large" });
    await advance(100);
    await Promise.all(small);
    await bucket.close();
  });
});

it("is refused soon though another key's notification arrives during its own draw", async () => {
  const store = createMemoryStore();
  const asking: (() => void)[] = [];
  let isSlow = false;
  const draw: typeof store.draw = async (request) => {
    const reply = await store.draw(request);
    if (isSlow) await new Promise<void>((resolve) => asking.push(resolve));
    return reply;
  };
  const options = { rate: "1000/s", perKey: { rate: "1/s" } };
  const { bucket } = createTestBucket(options, { store: { ...store, draw } });
  await bucket.pause({ key: "k", forMs: MINUTE_MS });
  isSlow = true;
  const refused = rejectionOf(bucket.draw({ key: "k", maxWaitMs: MINUTE_MS / 2 }));
  await advance(1);
  bucket.redraw("another");
  isSlow = false;
  asking.shift()!();
  await advance(10);

  expect(bucket.waiting).toBe(0);
  expect(await refused).toMatchObject({ limitedBy: "a pause" });
  await bucket.close();
});

describe("a job that cannot start in time", () => {
  it.each<[string, BucketOptions, (bucket: OwnedBucket) => Promise<unknown>]>([
    [
      "a pause",
      { rate: "100/s", perKey: { rate: "10/s" } },
      (bucket) => bucket.pause({ key: "k", forMs: MINUTE_MS }),
    ],
    ["1/min", { perKey: { rate: "1/min" } }, (bucket) => bucket.draw({ key: "k" })],
    ["1/min", { rate: "100/s", perKey: { rate: "1/min" } }, (bucket) => bucket.draw({ key: "k" })],
  ])("is refused instead of making way: %s (%o)", async (limitedBy, options, close) => {
    const { bucket } = createTestBucket(options);
    await close(bucket);
    const draw = () =>
      bucket.drawForJob({ key: "k", patienceMs: 100, maxWaitMs: 8_000 }, new Set());

    expect(told(await refusalOf(draw), MINUTE_MS)).toEqual(atOnce(limitedBy));
    expect(told(await refusalOf(draw), MINUTE_MS - 1_000)).toEqual(atOnce(limitedBy));
    await bucket.close();
  });

  it("makes way as before if it may start in time", async () => {
    const { bucket } = createTestBucket({ rate: "100/s", perKey: { rate: "1/5s" } });
    await bucket.draw({ key: "k" });
    const draw = () =>
      bucket.drawForJob({ key: "k", patienceMs: 100, maxWaitMs: 8_000 }, new Set());

    const first = draw();
    await advance(50);
    expect(await first).toBeInstanceOf(NoRoomYet);
    const second = draw();
    await advance(1);
    expect(await second).toBeInstanceOf(NoRoomYet);
    await bucket.close();
  });
});
