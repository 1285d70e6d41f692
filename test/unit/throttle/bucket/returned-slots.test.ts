import { afterEach, describe, expect, it, vi } from "vitest";
import { createBuckets } from "../../../../src/sluice/buckets.ts";
import { StoreUnavailableError, type SluiceError } from "../../../../src/core/errors.ts";
import { leakyBucket, slidingLog } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryInsight } from "../../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { DrawOptions } from "../../../../src/throttle/call-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";

const pass = fakeTimers();
afterEach(() => void vi.restoreAllMocks());

/** From now on it is so much later: nothing ran meanwhile. */
function standStill(ms: number): void {
  const now = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => now() + ms);
}

/** A store in memory of which giving back, settling and drawing take a while, there and back. */
function createSlowStore(eachWayMs: number): Store {
  const memory = createMemoryStore();
  const slowly = async <T>(work: () => Promise<T>): Promise<T> => {
    await simulateLatency(eachWayMs);
    const reply = await work();
    await simulateLatency(eachWayMs);
    return reply;
  };
  return {
    ...memory,
    draw: (request) => {
      const sentAtMs = performance.now();
      return slowly(async () => ({ ...(await memory.draw(request)), sentAtMs }));
    },
    giveBack: (request) => slowly(() => memory.giveBack(request)),
    settle: (request) => slowly(() => memory.settle(request)),
  };
}

async function within10Ms<T>(waiting: Promise<T>): Promise<T> {
  await pass(10);
  return waiting;
}

async function close(bucket: OwnedBucket): Promise<void> {
  const closed = bucket.close();
  await pass(100);
  await closed;
}

/** `"went"`, or the code of the error. */
async function endOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return "went";
  } catch (error) {
    return (error as SluiceError).code;
  }
}

const stores: [string, () => Store][] = [
  ["memory", () => createMemoryStore()],
  ["a store that is 2 ms away", () => createSlowStore(2)],
];

describe.each(stores)("a slot that is returned to %s", (_, openStore) => {
  const ofKeys: BucketOptions = {
    fair: false,
    limits: [leakyBucket("20/s"), slidingLog(3, "1h")],
    perKey: { rate: "1000/s" },
  };

  /** A bucket of which the last slot for an hour, 100 ms off, is held by a call that `leave` ends. */
  function holdLast() {
    const { bucket } = createTestBucket(ofKeys, { store: openStore() });
    const two = [bucket.draw({ key: "a" }), bucket.draw({ key: "a" })];
    const leaving = new AbortController();
    const left = rejectionOf(bucket.draw({ key: "a", signal: leaving.signal }));
    const leave = async (): Promise<void> => {
      leaving.abort();
      await left;
      await pass(0);
    };
    return { bucket, two, leave };
  }

  it("from a cancelled call goes to a waiting call", async () => {
    const { bucket, two, leave } = holdLast();
    await pass(1);
    const waiting = endOf(bucket.draw({ key: "b", maxWaitMs: 10_000 }));
    await pass(55);

    await leave();
    // Whoever comes has this process look at who waits in vain.
    const last = endOf(bucket.draw({ key: "c" }));
    await pass(200);
    await Promise.all([...two, close(bucket)]);

    expect([await waiting, await last]).toEqual(["went", "ERR_CLOSED"]);
  });

  it("from a cancelled call goes to a call that arrives at that moment", async () => {
    const { bucket, two, leave } = holdLast();
    await pass(1);
    const waiting = endOf(bucket.draw({ key: "b" }));
    await pass(55);

    await leave();
    const next = endOf(bucket.draw({ key: "c", maxWaitMs: 10_000, priority: "high" }));
    await pass(200);
    await Promise.all([...two, close(bucket)]);

    expect([await waiting, await next]).toEqual(["ERR_CLOSED", "went"]);
  });

  const quota = slidingLog(1_000, "1min", { unit: "tokens" });
  const ofQuotas: [string, BucketOptions, string | undefined][] = [
    ["the bucket", { limits: [leakyBucket("20/s"), quota] }, undefined],
    ["a key", { rate: "20/s", perKey: { limits: [quota] } }, "a"],
  ];

  /** A bucket with a call for whose slot, the last for a minute, this process comes too late; and one behind it. */
  async function comeLate(options: BucketOptions, key: string | undefined, stillMs: number) {
    const { bucket } = createTestBucket(options, { store: openStore() });
    const draw = (more: DrawOptions): Promise<string> =>
      endOf(bucket.draw({ key, cost: { tokens: 1 }, ...more }));
    await within10Ms(bucket.draw({ key, cost: { tokens: 998 } }));
    await pass(200);
    const first = draw({});
    const late = draw({ maxWaitMs: 10_000 });
    const third = draw({});
    await within10Ms(first);
    standStill(stillMs);
    return { bucket, draw, late, third };
  }

  it.each(ofQuotas)(
    "from a slot that came too late is taken by its own call, of %s",
    async (...given) => {
      const [, options, key] = given;
      const { bucket, late, third } = await comeLate(options, key, 40);

      await pass(400);
      await close(bucket);

      expect([await late, await third]).toEqual(["went", "ERR_CLOSED"]);
    },
  );

  it.each(ofQuotas)(
    "from a slot that came too late is taken by a call that comes as the standstill ends, of %s",
    async (...given) => {
      const [, options, key] = given;
      const { bucket, draw, late, third } = await comeLate(options, key, 80);

      const next = draw({ maxWaitMs: 10_000, priority: "high" });
      await pass(400);
      await close(bucket);

      expect(await next).toBe("went");
      expect([await late, await third]).toEqual(["ERR_WAIT_TOO_LONG", "ERR_CLOSED"]);
    },
  );

  it("by a settle that is under way is taken by the call that comes right after it", async () => {
    const ofTokens = { unit: "tokens", burst: 10 };
    const both = [leakyBucket("1000/s"), leakyBucket("10/min", ofTokens)];
    const { bucket } = createTestBucket({ limits: both }, { store: openStore() });
    const slot = await within10Ms(bucket.draw({ cost: { tokens: 10 } }));
    const refused = rejectionOf(bucket.draw({ cost: { tokens: 5 }, maxWaitMs: 1_000 }));
    await pass(10);
    expect(await refused).toMatchObject({ code: "ERR_WAIT_TOO_LONG" });

    const settling = slot.settle({ tokens: 1 });
    const next = endOf(bucket.draw({ cost: { tokens: 5 }, maxWaitMs: 1_000 }));
    await pass(200);

    expect(await next).toBe("went");
    await settling;
    await close(bucket);
  });
});

describe("a call that may go in time", () => {
  it("goes when the rate has grown back after a cooldown", async () => {
    const { bucket } = createTestBucket({ rate: "1/s" });
    await within10Ms(rejectionOf(bucket.run(() => refuse(3))));
    const first = bucket.draw();
    await pass(3_500);
    await first;

    // At the rate as it is now, it would have to wait for more than two seconds.
    const next = endOf(bucket.draw({ maxWaitMs: 1_500 }));
    await pass(1_500);

    expect(await next).toBe("went");
    await close(bucket);
  });

  it("waits for Redis to come back, whatever is known of its part of the limits until then", async () => {
    const { bucket, away } = openStandingIn({ rate: "2/s", onStoreDown: { local: 0.2 } });
    await within10Ms(bucket.draw());
    await pass(1_500);
    away.is = true;
    const slot = endOf(bucket.draw({ maxWaitMs: 2_400 }));
    await pass(500);
    away.is = false;
    await pass(1_500);

    expect(await slot).toBe("went");
    await close(bucket);
  });

  it("waits for Redis to come back, where a cooldown is known only here until then", async () => {
    const { bucket, away } = openStandingIn({ rate: "100/s", onStoreDown: { local: 1 } });
    await within10Ms(bucket.draw());
    away.is = true;
    await within10Ms(rejectionOf(bucket.run(() => refuse(60))));
    await pass(500);
    const slot = endOf(bucket.draw({ maxWaitMs: 3_000 }));
    await pass(500);
    away.is = false;
    await pass(2_000);

    expect(await slot).toBe("went");
    await close(bucket);
  });
});

function refuse(retryAfter: number): never {
  throw Object.assign(new Error("Too Many Requests"), { status: 429, retryAfter });
}

/** A bucket whose store can be taken away. */
function openStandingIn(options: BucketOptions) {
  const memory = createMemoryStore();
  const away = { is: false };
  const guard = async <T>(work: () => Promise<T>): Promise<T> => {
    if (away.is) throw new StoreUnavailableError("away");
    return work();
  };
  const store: Store = {
    ...memory,
    draw: (request) => guard(() => memory.draw(request)),
    steer: (request) => guard(() => memory.steer(request)),
    peek: (request) => guard(() => memory.peek(request)),
  };
  const logger = { warn() {}, error() {} };
  const buckets = createBuckets({
    store,
    insight: createMemoryInsight(),
    logger,
    isRemote: true,
    isCluster: false,
  });
  return { bucket: buckets.open("here", "test", options), away };
}
