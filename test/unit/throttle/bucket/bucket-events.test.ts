import { describe, expect, it, vi } from "vitest";
import {
  CostTooLargeError,
  InvalidOptionError,
  LineFullError,
  StoreUnavailableError,
  WaitTooLongError,
} from "../../../../src/core/errors.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketEvents } from "../../../../src/throttle/bucket/bucket-events.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers({ leavesNone: true });

/** All events of one name from now on. */
function heardBy<Name extends keyof BucketEvents>(
  bucket: OwnedBucket,
  name: Name,
): BucketEvents[Name][] {
  const events: BucketEvents[Name][] = [];
  bucket.on(name, (event) => events.push(event));
  return events;
}

describe.each([
  ["a bucket", false],
  ["a bucket whose keys are spread over a cluster", true],
])("the events of %s", (_what, isSpread) => {
  const limits = isSpread ? { perKey: { rate: "100/s" } } : { rate: "100/s" };
  const key = "acme";

  it("report each slot: the waiting call, its limit, and how long it waited", async () => {
    const { bucket } = createTestBucket(limits, { isSpread });
    const slots = heardBy(bucket, "slot");

    const drawing = Promise.all([bucket.draw({ key }), bucket.draw({ key, priority: "low" })]);
    await advance(100);
    const [first] = await drawing;

    expect(slots).toEqual([
      {
        key,
        priority: "normal",
        waitedMs: first.waitedMs,
        atMs: first.atMs,
        limitedBy: undefined,
      },
      {
        key,
        priority: "low",
        waitedMs: expect.closeTo(10, 0) as number,
        atMs: expect.closeTo(first.atMs + 10, 0) as number,
        limitedBy: "100/s",
      },
    ]);
    await bucket.close();
  });

  it("report tries: slots and rejections", async () => {
    const { bucket } = createTestBucket(limits, { isSpread });
    const slots = heardBy(bucket, "slot");
    const refusals = heardBy(bucket, "refused");

    await bucket.tryDraw({ key });
    const { retryAfterMs } = await bucket.tryDraw({ key });

    expect(slots).toHaveLength(1);
    const about = { key, priority: "normal", error: undefined };
    expect(refusals).toEqual([{ ...about, retryAfterMs, limitedBy: "100/s" }]);
    await bucket.close();
  });

  it("report a cooldown that a response has caused, and the change", async () => {
    const { bucket } = createTestBucket(limits, { isSpread });
    const cooldowns = heardBy(bucket, "cooldown");
    const changes = heardBy(bucket, "change");

    await bucket.run(() => ({ status: 429, headers: { "retry-after": "30" } }), { key });
    await advance(1);

    const cooled = isSpread ? key : undefined;
    expect(cooldowns).toEqual([{ key: cooled, forMs: 30_000 }]);
    expect(changes).toEqual([{ key: cooled }]);
    await bucket.close();
  });

  it("report a change of the whole bucket once, and one of another replica", async () => {
    const store = createMemoryStore();
    const [here, there] = [1, 2].map(() => createTestBucket(limits, { isSpread, store }).bucket);
    const changes = heardBy(there!, "change");

    await here!.pause();
    await here!.configure(isSpread ? { perKey: { rate: "5/s" } } : { rate: "5/s" });

    expect(changes).toEqual([{ key: undefined }, { key: undefined }]);
    await Promise.all([here!.close(), there!.close()]);
  });
});

describe("the refusals of a bucket", () => {
  it("have their error, what refused them and when to come again", async () => {
    const { bucket } = createTestBucket({ rate: "1/h", burst: 2, maxWaiting: 1 });
    await bucket.draw({ cost: 2 });
    const refusals = heardBy(bucket, "refused");

    const late = rejectionOf(bucket.draw({ key: "a", maxWaitMs: 50 }));
    const full = rejectionOf(bucket.draw({ key: "b", priority: "low" }));
    const large = rejectionOf(bucket.run(() => {}, { key: "c", cost: 3 }));
    await advance(60);

    await Promise.all([late, full, large]);
    expect(refusals.map(({ key, error }) => [key, error?.constructor])).toEqual([
      ["b", LineFullError],
      ["a", WaitTooLongError],
      ["c", CostTooLargeError],
    ]);
    expect(refusals[0]).toMatchObject({ priority: "low", limitedBy: undefined });
    expect(refusals[2]).toMatchObject({ retryAfterMs: undefined });
    const { retryAfterMs, limitedBy } = (await late) as WaitTooLongError;
    expect(refusals[1]).toMatchObject({ retryAfterMs, limitedBy });
    await bucket.close();
  });

  it("are no wrong options, no aborted waits and no closed buckets", async () => {
    const { bucket } = createTestBucket({ rate: "1/h" });
    await bucket.draw();
    const refusals = heardBy(bucket, "refused");

    await rejectionOf(bucket.draw({ cost: -1 }));
    await rejectionOf(bucket.draw({ signal: AbortSignal.abort() }));
    const waiting = rejectionOf(bucket.draw());
    await bucket.close();
    await waiting;

    expect(refusals).toEqual([]);
  });

  it("are calls that Redis did not answer, too", async () => {
    const store = createMemoryStore();
    vi.spyOn(store, "draw").mockRejectedValue(new StoreUnavailableError("Redis is away."));
    const { bucket } = createTestBucket({ rate: "1/h" }, { store });
    const refusals = heardBy(bucket, "refused");

    await rejectionOf(bucket.draw());

    expect(refusals).toMatchObject([{ error: { code: "ERR_STORE_UNAVAILABLE" } }]);
    await bucket.close();
  });
});

describe("listeners of a bucket", () => {
  it.each([
    ["throw", broken],
    ["reject", () => Promise.reject(new Error("broken"))],
  ])("that %s stop no call, and are logged once", async (_how, listener) => {
    const { bucket, warnings } = createTestBucket({ rate: "1000/s", burst: 10 });
    bucket.on("slot", listener);

    const results = await Promise.all([1, 2, 3].map((each) => bucket.run(() => each)));
    await advance(1);

    expect(results).toEqual([1, 2, 3]);
    const message = 'A listener to "slot" of bucket "test" failed: Error: broken';
    expect(warnings).toEqual([{ facts: expect.anything() as object, message }]);
    await bucket.close();
  });

  it("get no more events once they are removed, in three ways", async () => {
    const { bucket } = createTestBucket({ rate: "1000/s", burst: 10 });
    const listening = new AbortController();
    const listener = vi.fn();
    const stop = bucket.on("slot", () => listener("stop"));
    bucket.on("slot", () => listener("signal"), { signal: listening.signal });
    bucket.on("slot", listener);

    stop();
    listening.abort();
    bucket.off("slot", listener);
    await bucket.draw();

    expect(listener).not.toHaveBeenCalled();
    await bucket.close();
  });

  it("are rejected with the list of existing events", () => {
    const { bucket } = createTestBucket({ rate: "1000/s" });
    const listen = (): unknown => bucket.on("slots" as "slot", () => {});

    expect(listen).toThrow(InvalidOptionError);
    expect(listen).toThrow(
      "the events are slot, refused, cooldown, slowed, unreachable, reachable, budget, concurrency, change, away, back",
    );
  });
});

describe("a bucket that answers slow down", () => {
  it("reports each cut of its rate", async () => {
    const adaptive = { floor: 0.1, recoverMs: 60_000 };
    const { bucket } = createTestBucket({ rate: "100/s", adaptive });
    const slowed = heardBy(bucket, "slowed");

    await bucket.run(() => ({ status: 429, headers: {} }));
    await advance(1);

    expect(slowed).toEqual([{ key: undefined, factor: 0.7, gapMs: undefined, forMs: 1_000 }]);
    await bucket.close();
  });
});

function broken(): never {
  throw new Error("broken");
}
