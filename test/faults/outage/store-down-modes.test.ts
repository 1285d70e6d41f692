import { describe, expect, it } from "vitest";
import { StoreUnavailableError, WaitTooLongError, type Bucket } from "sluice";
import { outages } from "../../support/children/outages.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { drawSteadily, extraSlots, timesOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const { start } = outages();
const RATE = 200;
/** What a reply that is lost, or a horizon that is handed out twice, may come to. */
const HORIZON_CALLS = RATE / 10;

describe("a bucket that refuses while Redis is unreachable", () => {
  it("fails calls under load, and continues at its rate when Redis is back", async () => {
    const outage = await start();
    const replicas = [outage.open(), outage.open()];
    const buckets = replicas.map(({ sluice }) => sluice.bucket("b", { rate: `${RATE}/s` }));
    const calls = drawSteadily(buckets, { callers: 10 });
    await waitUntil(() => calls.slots.length > 100, "calls leave");

    outage.begin();
    await waitUntil(() => replicas.every(({ events }) => events.length > 0), "both have noticed");
    const before = calls.slots.length;
    await waitUntil(() => calls.errors.length > 200, "calls are refused");
    const leftMeanwhile = calls.slots.length - before;
    outage.end();
    await waitUntil(() => calls.slots.length > before + 400, "calls leave again");
    await calls.stop();

    expect(leftMeanwhile).toBe(0);
    expect(calls.errors.every((error) => error instanceof StoreUnavailableError)).toBe(true);
    const extra = extraSlots(timesOf(calls.slots), { perSecond: RATE });
    expect(extra).toBeLessThanOrEqual(HORIZON_CALLS);
  });
});

describe("a bucket whose callers wait while Redis is unreachable", () => {
  const policy = { rate: `${RATE}/s`, burst: 5, onStoreDown: "wait" } as const;

  it("loses no call, and starts the calls at its rate when Redis is back", async () => {
    const outage = await start();
    const replicas = [outage.open(), outage.open()];
    const buckets = replicas.map(({ sluice }) => sluice.bucket("b", policy));
    const calls = drawSteadily(buckets, { callers: 50 });
    await waitUntil(() => calls.slots.length > 100, "calls leave");

    outage.begin();
    await waitUntil(() => replicas.every(({ events }) => events.length > 0), "both have noticed");
    const before = calls.slots.length;
    outage.end();
    await waitUntil(() => calls.slots.length > before + 400, "calls leave again");
    await calls.stop();

    expect(calls.errors).toEqual([]);
    const extra = extraSlots(timesOf(calls.slots), { perSecond: RATE, burst: policy.burst });
    expect(extra).toBeLessThanOrEqual(HORIZON_CALLS);
  });

  it("lets maxWaitMs, a signal and the end of the sluice end the wait, and also makes tries wait", async () => {
    const outage = await start();
    const { sluice, events } = outage.open();
    const bucket = sluice.bucket("b", policy);
    await bucket.draw();
    outage.begin();
    const waiting = [bucket.draw(), bucket.tryDraw()];
    await waitUntil(() => events.length > 0, "the breaker has opened");

    const late = await rejectionOf(bucket.draw({ maxWaitMs: 50 }));
    const stopped = await rejectionOf(bucket.draw({ signal: AbortSignal.timeout(20) }));
    outage.end();
    await Promise.all(waiting);
    outage.begin();
    const ended = [rejectionOf(bucket.draw()), rejectionOf(bucket.tryDraw({ cost: 2 }))];
    await sluice.close();

    expect(late).toBeInstanceOf(WaitTooLongError);
    expect(late).toMatchObject({ limitedBy: expect.stringContaining("Redis") });
    expect(stopped).toMatchObject({ name: "TimeoutError" });
    for (const reason of await Promise.all(ended)) {
      expect(reason).toMatchObject({ name: "ClosedError" });
    }
  });
});

describe("a bucket that is open while Redis is unreachable", () => {
  const policy = { rate: "20/s", burst: 10, onStoreDown: "open" } as const;

  const outrun = async (bucket: Bucket, count: number): Promise<void> =>
    void (await Promise.all(Array.from({ length: count }, () => bucket.draw())));

  it("lets every call and try pass, and logs one error per outage", async () => {
    const outage = await start();
    const { sluice, logged, events } = outage.open();
    const bucket = sluice.bucket("b", policy);
    await bucket.draw();

    for (const round of [1, 2]) {
      outage.begin();
      // 500 calls at 20/s would take 25 s and more.
      await outrun(bucket, 500);
      await expect(bucket.tryDraw()).resolves.toMatchObject({ allowed: true });
      await waitUntil(async () => {
        await bucket.draw();
        return events.length === 2 * round - 1;
      }, "the breaker has opened");
      outage.end();
      await waitUntil(async () => {
        const decision = await bucket.tryDraw();
        return !decision.allowed;
      }, "the limit holds again");
    }

    const loud = logged.filter((line) => line.startsWith("error:"));
    expect(loud).toHaveLength(2);
    expect(loud[0]).toContain("WITHOUT ANY LIMIT");
  });

  it("allows no burst afterwards, because the calls of the outage were not counted", async () => {
    const outage = await start();
    const { sluice } = outage.open();
    const bucket = sluice.bucket("b", { rate: "1/min", burst: 50, onStoreDown: "open" });
    await bucket.draw();
    outage.begin();
    await outrun(bucket, 50);

    outage.end();
    await waitUntil(() => bucket.peek().then(Boolean, () => false), "Redis is back");
    let allowed = 0;
    await waitUntil(async () => {
      const decision = await bucket.tryDraw();
      if (decision.allowed) allowed += 1;
      return !decision.allowed;
    }, "the limit holds again");

    // What passes while the bucket finds out that Redis is back; without the debt, it would be 49 more.
    expect(allowed).toBeLessThan(10);
  });
});
