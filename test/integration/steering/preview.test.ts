import { beforeEach, describe, expect, it } from "vitest";
import { leakyBucket, tokenBucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
beforeEach(() => pretendWorker(sluices.prefix(), "jobs"));

const INVALID = "ERR_INVALID_OPTION";

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}

function openQueue() {
  const sluice = sluices.open();
  const bucket = sluice.bucket("api", { rate: "10/s" });
  return { sluice, bucket, queue: sluice.queue<number>("jobs", { bucket }) };
}

describe("a preview of a queue", () => {
  it("shows when the backlog ends at another rate, and the same after that change", async () => {
    const { bucket, queue } = openQueue();
    await queue.enqueueMany(numbers(300));

    const { now, after } = await queue.preview({ rate: "100/s" });

    expect(now.emptyInMs).toBeGreaterThan(28_000);
    expect(now.emptyInMs).toBeLessThan(32_000);
    expect(after).toMatchObject({ waiting: 300, workers: 1 });
    expect(after.emptyInMs).toBeGreaterThan(2_800);
    expect(after.emptyInMs).toBeLessThan(3_200);
    expect(await bucket.peek()).toMatchObject({ policy: "10/s", policyFrom: "code" });
    await bucket.configure({ rate: "100/s" });
    const { emptyInMs } = await queue.forecast();
    expect(Math.abs(emptyInMs! - after.emptyInMs!)).toBeLessThan(200);
  });

  it("names the jobs that would miss their deadlines", async () => {
    const { queue } = openQueue();
    const jobs = await queue.enqueueMany(numbers(50), { key: "acme", maxWaitMs: 10_000 });

    const { now, after } = await queue.preview({ rate: "2/s" });

    expect(now.missed).toEqual([]);
    const missed = after.missed.map(({ id }) => id);
    expect(missed).toContain(jobs[49]!.id);
    expect(missed).not.toContain(jobs[0]!.id);
    expect(missed.length).toBeGreaterThan(25);
    expect(missed.length).toBeLessThan(35);
  });

  it.each([
    ["for a time", 60_000, 20, { emptyInMs: expect.any(Number) as number }],
    ["without an end", Infinity, 0, { emptyInMs: undefined, reason: "bucket paused" }],
  ])("shows the effect of a pause %s", async (_name, pausedForMs, missed, expected) => {
    const { bucket, queue } = openQueue();
    await queue.enqueueMany(numbers(20), { key: "acme", maxWaitMs: 30_000 });

    const { after } = await queue.preview({ pausedForMs });

    expect(after).toMatchObject(expected);
    expect(after.emptyInMs ?? Infinity).toBeGreaterThan(60_000);
    expect(after.missed).toHaveLength(missed);
    expect((await bucket.peek()).pausedForMs).toBe(0);
  });

  it("shows the effect of the end of a pause, and of key limits", async () => {
    const { bucket, queue } = openQueue();
    await queue.enqueueMany(numbers(30), { key: "acme" });
    await bucket.pause();

    const resumed = await queue.preview({ pausedForMs: 0 });
    const slower = await queue.preview({ pausedForMs: 0, perKey: { rate: "1/s" } });

    expect(resumed.now.reason).toBe("bucket paused");
    expect(resumed.after.emptyInMs).toBeLessThan(4_000);
    expect(slower.after.emptyInMs).toBeGreaterThan(25_000);
  });
});

describe("a preview of a bucket", () => {
  it("shows when its pending calls end", async () => {
    const { bucket, sluice } = openQueue();
    await bucket.draw();
    await bucket.pause({ forMs: 3_600_000 });
    const waiting = numbers(20).map(() => bucket.draw());
    await waitUntil(async () => (await bucket.status()).waiting.total === 20, "all are told of");

    const { now, after } = await bucket.preview({ rate: "2/s", pausedForMs: 0 });
    const endless = await bucket.preview({ pausedForMs: Infinity });

    expect(now).toMatchObject({ policy: "10/s", capPerSecond: 10, waiting: 20 });
    expect(now.emptyInMs).toBeGreaterThan(3_000_000);
    const expected = { policy: "2/s", capPerSecond: 2, pausedForMs: 0, emptyInMs: 9_500 };
    expect(after).toEqual({ ...expected, waiting: 20, goneInMs: 9_500 });
    expect(JSON.parse(JSON.stringify(endless.after))).toMatchObject({ emptyInMs: "forever" });
    expect(await bucket.status()).toMatchObject({ policy: "10/s", waiting: { total: 20 } });
    expect(await sluice.changes()).toHaveLength(1);
    await bucket.resume();
    await Promise.all(waiting);
  });

  it.each([
    ["nothing", {}],
    ["an unknown option", { rats: "1/s" }],
    ["a rate that cannot be read", { rate: "fast" }],
    ["a function of keys", { perKey: () => ({ rate: "1/s" }) }],
    ["a negative pause", { pausedForMs: -1 }],
    ["a pause that is no number", { pausedForMs: "1m" }],
    ["no object", null],
  ])("refuses %s, as configure does", async (_name, change) => {
    const { bucket, queue } = openQueue();

    for (const previewing of [bucket.preview(change as never), queue.preview(change as never)]) {
      expect(await rejectionOf(previewing)).toMatchObject({ code: INVALID });
    }
  });

  it("keeps the usage of a limit whose kind stays", async () => {
    const sluice = sluices.open();
    const limits = [
      leakyBucket("100/s", { burst: 50 }),
      tokenBucket({ capacity: 60, refill: "60/min" }),
    ];
    const bucket = sluice.bucket("b", { limits });
    const queue = sluice.queue<number>("jobs", { bucket });
    await Promise.all(numbers(40).map(() => bucket.draw()));
    await queue.enqueueMany(numbers(30));

    const more = tokenBucket({ capacity: 120, refill: "240/min" });
    const { now, after } = await queue.preview({
      limits: [leakyBucket("100/s", { burst: 50 }), more],
    });

    expect(now.emptyInMs).toBeGreaterThan(7_000);
    expect(after.emptyInMs).toBeLessThan(now.emptyInMs! / 2);
  });
});
