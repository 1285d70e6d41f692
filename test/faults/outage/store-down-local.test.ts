import { describe, expect, it } from "vitest";
import {
  StoreUnavailableError,
  concurrency,
  leakyBucket,
  type Bucket,
  type BucketState,
} from "sluice";
import { startFakeDownstream, worstWindow, type FakeDownstream } from "sluice/testing";
import { outages } from "../../support/children/outages.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const { start } = outages();
const RATE = 200;
/** How much later than another a call may come to the downstream, on a machine that is busy. */
const JITTER_MS = 50;

/** The most calls of two replicas, each at a quarter of the cap. */
function mostOfTwo(windowMs: number): number {
  return 2 * Math.ceil((RATE / 4) * ((windowMs + JITTER_MS) / 1_000));
}

/** Callers that call the downstream through these buckets until they are stopped. */
function callThrough(buckets: readonly Bucket[], downstream: FakeDownstream) {
  let isStopped = false;
  const errors: unknown[] = [];
  const running = buckets.flatMap((bucket) => {
    const call = bucket.throttled(async () => void (await (await fetch(downstream.url)).text()));
    return Array.from({ length: 15 }, async () => {
      while (!isStopped) await call().catch((error: unknown) => errors.push(error));
    });
  });
  const stop = async (): Promise<void> => {
    isStopped = true;
    await Promise.all(running);
  };
  return { errors, stop };
}

describe("two replicas that continue locally at half their part while Redis is unreachable", () => {
  it("never exceed half the cap in any second, lose no call, and send no burst afterwards", async () => {
    const outage = await start();
    const downstream = await startFakeDownstream();
    const replicas = [outage.open(), outage.open()];
    const policy = { rate: `${RATE}/s`, onStoreDown: { local: 0.5 } };
    const buckets = replicas.map(({ sluice }) => sluice.bucket("b", policy));
    const calls = callThrough(buckets, downstream);
    const { arrivals } = downstream;
    await waitUntil(() => arrivals.length > 2 * RATE, "both replicas draw");

    outage.begin();
    const beganMs = performance.now();
    await waitUntil(() => replicas.every(({ logged }) => logged.length > 0), "both have noticed");
    const localMs = performance.now();
    const before = arrivals.length;
    await waitUntil(() => arrivals.length > before + RATE, "calls go on");
    const endedMs = performance.now();
    outage.end();
    await waitUntil(() => replicas.every(({ events }) => events.length > 1), "Redis is back");
    const backMs = performance.now();
    await waitUntil(() => arrivals.at(-1)!.atMs > backMs + 2_000, "calls leave at the cap again");
    await calls.stop();
    await downstream.close();

    const atMs = arrivals.map((arrival) => arrival.atMs);
    const during = atMs.filter((at) => at >= localMs && at <= endedMs);
    const after = atMs.filter((at) => at >= endedMs);
    const figures = {
      noticedMs: localMs - beganMs,
      worstSecond: worstWindow(during, 1_000),
      recoveryMs: backMs - endedMs,
      worst100MsAfter: worstWindow(after, 100),
    };
    reportFigures("Redis gives no answer, two replicas go on locally at half their part", {
      recoveryMs: figures.recoveryMs,
      "ms until both have noticed": figures.noticedMs,
      [`calls in the worst second, of ${RATE / 2}`]: figures.worstSecond,
      [`calls in the worst 100 ms after it, of ${RATE / 10}`]: figures.worst100MsAfter,
    });
    expect(calls.errors).toEqual([]);
    for (const windowMs of [100, 1_000, 2_000]) {
      expect(worstWindow(during, windowMs)).toBeLessThanOrEqual(mostOfTwo(windowMs));
    }
    const atTheCap = Math.ceil(RATE * ((100 + JITTER_MS) / 1_000));
    expect(figures.worst100MsAfter).toBeLessThanOrEqual(atTheCap + mostOfTwo(0));
  });
});

function isFull({ limits }: BucketState): boolean {
  return limits[0]!.remaining === limits[0]!.capacity;
}

describe("a bucket that continues locally", () => {
  it("settles, releases, tries and cools down without Redis", async () => {
    const outage = await start();
    const { sluice, logged } = outage.open();
    const limits = [leakyBucket("100/s", { unit: "tokens", burst: 50 }), concurrency(4)];
    const bucket = sluice.bucket("b", { limits, onStoreDown: { local: 0.5 } });
    (await bucket.draw()).release();
    outage.begin();

    const slot = await bucket.draw({ cost: { tokens: 5 } });
    await slot.settle({ tokens: 6 });
    const second = await bucket.draw();
    const third = await bucket.tryDraw();
    slot.release();
    second.release();
    const fourth = await bucket.draw();

    expect(third).toMatchObject({ allowed: false, limitedBy: "4 at once" });
    expect(fourth.hasLease).toBe(true);
    expect(
      logged.filter((line) => line.includes("continues in this process at 50 % of its limits")),
    ).toHaveLength(1);
  });

  it("lets calls wait for a lease while it runs all calls of its share", async () => {
    const outage = await start();
    const { sluice } = outage.open();
    const bucket = sluice.bucket("b", { concurrency: 4, onStoreDown: { local: 0.5 } });
    const running = [await bucket.draw(), await bucket.draw()];
    outage.begin();

    const tried = await bucket.tryDraw();
    const waiting = bucket.draw();
    for (const slot of running) slot.release();
    const started = await waiting;

    expect(tried).toMatchObject({ allowed: false, limitedBy: "4 at once" });
    expect(started.hasLease).toBe(true);
  });

  it("starts without a burst on Redis, so that local calls are not granted again", async () => {
    const outage = await start();
    const { sluice } = outage.open();
    const bucket = sluice.bucket("b", { rate: "10/s", burst: 50, onStoreDown: { local: 1 } });
    await bucket.draw();
    outage.begin();
    for (let each = 0; each < 3; each++) await bucket.draw();

    outage.end();
    await waitUntil(() => bucket.peek().then(isFull, () => false), "Redis is back, and full");
    await waitUntil(async () => {
      await bucket.tryDraw();
      return !isFull(await bucket.peek());
    }, "Redis is drawn from again");

    // Some may have come back since; without the debt, it would be 49.
    expect((await bucket.peek()).limits[0]!.remaining).toBeLessThan(40);
  });

  it("rejects calls that exceed its share, and starts the others", async () => {
    const outage = await start();
    const { sluice } = outage.open();
    const bucket = sluice.bucket("b", { rate: "100/s", burst: 10, onStoreDown: { local: 0.5 } });
    await bucket.draw();
    outage.begin();

    const [large, small] = [rejectionOf(bucket.draw({ cost: 8 })), bucket.draw()];

    expect(await large).toBeInstanceOf(StoreUnavailableError);
    expect(await small).toMatchObject({ bucket: "b" });
    expect(await rejectionOf(bucket.tryDraw({ cost: 8 }))).toBeInstanceOf(StoreUnavailableError);
  });

  it("rejects calls of a process that has never reached Redis, because its share is unknown", async () => {
    const outage = await start();
    outage.begin();
    const { sluice } = outage.open();
    const bucket = sluice.bucket("b", { rate: "100/s", onStoreDown: { local: 0.5 } });

    expect(await rejectionOf(bucket.draw())).toBeInstanceOf(StoreUnavailableError);
  });
});
