import { beforeEach, describe, expect, it } from "vitest";
import { fixedWindow, leakyBucket, tokenBucket } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { etaOf, forecastOf, pretendWorker } from "../../support/jobs/outlook.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
beforeEach(() => pretendWorker(sluices.prefix(), "jobs", "windows", "bursts"));
const RATE = 100;

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}

/** It cuts the rate, and cools nothing. */
function refusal(): Response {
  return new Response("", { status: 429, headers: { "retry-after": "0" } });
}

describe("the forecast for a steady backlog", () => {
  it("is right within a tenth, for each tenant by its weight", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    const queue = sluice.queue<number>("jobs", { bucket, weights: { large: 3 } });
    const large = await queue.enqueueMany(numbers(500), { key: "large" });
    const small = await queue.enqueueMany(numbers(200), { key: "small" });
    const started: { readonly id: string; readonly atMs: number }[] = [];
    sluice.worker(queue, async ({ id }, { slot }) => {
      started.push({ id, atMs: slot.atMs });
    });
    await waitUntil(() => started.length >= 50, "the backlog drains");

    const watched = [large[200]!, large[400]!, small[80]!, small[120]!];
    const from = started.length;
    const etas = await Promise.all(watched.map(etaOf));
    const forecast = await forecastOf(queue);
    const until = started.length;
    await waitUntil(() => started.length === 700, "all jobs have started");

    for (const [index, job] of watched.entries()) {
      const { position, startsInMs } = etas[index]!;
      const at = started.findIndex(({ id }) => id === job.id);
      // Jobs go on starting while the answers are read: each counts from one of the meantime.
      const tolerance = Math.max(10, position / 10);
      expect(at - position).toBeGreaterThanOrEqual(from - tolerance);
      expect(at - position).toBeLessThanOrEqual(until + tolerance);
      // Slots are spaced on the clock of Redis, so a busy machine can only make it later.
      expect(started[at]!.atMs - started[from]!.atMs).toBeGreaterThan(startsInMs * 0.85);
    }
    expect(forecast.waiting).toBeLessThanOrEqual(700 - from + 60);
    expect(forecast.waiting).toBeGreaterThanOrEqual(700 - until - 60);
    expect(forecast.emptyInMs).toBeGreaterThan((700 - until) * (1_000 / RATE) * 0.9);
    expect(forecast.missed).toEqual([]);
    expect(await large[0]!.eta()).toBeUndefined();
  });

  it("lists the deadlines that will be missed, and no others", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueueMany(numbers(100), { key: "k" });
    const late = await queue.enqueue(0, { key: "k", maxWaitMs: 3_000 });
    const inTime = await queue.enqueue(0, { key: "k", priority: "high", maxWaitMs: 3_000 });

    const { missed, emptyInMs, waiting } = await forecastOf(queue);

    expect(waiting).toBe(102);
    expect(emptyInMs).toBeGreaterThan(9_000);
    expect(missed.map(({ id }) => id)).toEqual([late.id]);
    expect((await etaOf(late)).startsInMs).toBeGreaterThan(9_000);
    expect((await etaOf(inTime)).startsInMs).toBeLessThan(3_000);
  });

  it("includes the run of a recurring job that will be too late", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "500/s", perKey: { rate: "1/s" } });
    const queue = sluice.queue<number>("jobs", { bucket });
    await queue.enqueueMany(numbers(100), { key: "k" });
    // A run whose time has come joins its lane as a worker fetches it.
    sluice.worker(queue, async () => {}, { patienceMs: 0 });

    const recurring = { every: 3_600_000, dedupeId: "sync", key: "k" };
    const run = await queue.enqueue(0, { ...recurring, maxWaitMs: 60_000 });

    const late: string[] = [];
    await waitUntil(async () => {
      late.push(...(await forecastOf(queue)).missed.map(({ id }) => id));
      return late.length > 0;
    }, "one is told");

    expect(late).toEqual([run.id]);
  });

  it("counts a pause, and the separate limits of a key", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s", perKey: { rate: "2/s" } });
    const queue = sluice.queue<number>("jobs", { bucket });
    const [, second, , fourth] = await queue.enqueueMany(numbers(4), { key: "slow" });
    const other = await queue.enqueue(0, { key: "other" });
    const unlike = await queue.enqueue(0);

    expect((await etaOf(fourth!)).startsInMs - (await etaOf(second!)).startsInMs).toBe(1_000);
    expect((await etaOf(other)).startsInMs).toBeLessThan(500);
    expect((await etaOf(unlike)).position).toBe(0);
    await bucket.pause({ forMs: 60_000 });
    expect((await etaOf(other)).startsInMs).toBeGreaterThan(50_000);
    await bucket.pause();
    expect(await other.eta()).toMatchObject({ startsInMs: undefined, reason: "bucket paused" });
  });

  it("follows the limits in force, whether from code, rules or an operator", async () => {
    const [here, elsewhere] = [sluices.open(), sluices.open()];
    const [queue, other] = [here, elsewhere].map((sluice) =>
      sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "5000/s" }) }),
    );
    await queue!.enqueueMany(numbers(100), { key: "k" });
    const last = await queue!.enqueue(0, { key: "k" });

    await queue!.bucket.configure({ rate: "10/s" });

    const seen = await other!.job(last.id);
    for (const job of [last, seen!]) expect((await etaOf(job)).startsInMs).toBeGreaterThan(9_000);
    expect((await forecastOf(other!)).emptyInMs).toBeGreaterThan(9_000);
  });

  it("counts whole jobs", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "150/s" }) });
    await queue.enqueueMany(numbers(60));
    const { promise, resolve } = deferred();
    let started = 0;
    const hold = async (): Promise<void> => {
      started += 1;
      await promise;
    };
    sluice.worker(queue, hold, { concurrency: 50 });
    await waitUntil(() => started === 50, "the worker runs what it may");

    const { waiting } = await forecastOf(queue);
    resolve();

    expect(waiting).toBe(Math.round(waiting));
  });

  it.each([undefined, "k"])("counts each job with its cost, of key %s", async (key) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s", burst: 10 });
    const queue = sluice.queue<number>("jobs", { bucket });
    await queue.enqueueMany(numbers(100), { key });
    const costly = await queue.enqueueMany(numbers(30), { key, cost: 10 });
    const last = await queue.enqueue(0, { key, maxWaitMs: 3_000 });

    const [first, end] = [await etaOf(costly[0]!), await etaOf(last)];

    expect([first.position, end.position]).toEqual([100, 130]);
    expect(Math.abs(first.startsInMs - 1_000)).toBeLessThanOrEqual(100);
    expect(Math.abs(end.startsInMs - 4_000)).toBeLessThanOrEqual(400);
    const { waiting, emptyInMs, missed } = await forecastOf(queue);
    expect(waiting).toBe(131);
    expect(Math.abs(emptyInMs - 4_000)).toBeLessThanOrEqual(400);
    expect(missed.map(({ id }) => id)).toEqual(key === undefined ? [] : [last.id]);
  });

  it("counts the current room of limits that allow a burst", async () => {
    const sluice = sluices.open();
    const daily = sluice.bucket("daily", { limits: [fixedWindow(1_000, "1d")] });
    const windows = sluice.queue<number>("windows", { bucket: daily });
    const tokens = sluice.bucket("tokens", {
      limits: [tokenBucket({ capacity: 100, refill: "10/s" })],
    });
    const bursts = sluice.queue<number>("bursts", { bucket: tokens });
    const inWindow = await windows.enqueueMany(numbers(201), { key: "k" });
    const inBurst = await bursts.enqueueMany(numbers(201), { key: "k" });

    const now = await etaOf(inWindow[200]!);
    const [next, later] = [await etaOf(inBurst[90]!), await etaOf(inBurst[200]!)];
    await daily.tryDraw({ cost: 1_000 });
    const thenAll =
      (await etaOf(inWindow[200]!)).startsInMs - (await etaOf(inWindow[0]!)).startsInMs;

    expect(now.position).toBe(200);
    expect([now, next].map(({ startsInMs }) => startsInMs < 100)).toEqual([true, true]);
    expect(Math.abs(later.startsInMs - 10_000)).toBeLessThanOrEqual(1_000);
    expect(Math.abs(thenAll)).toBeLessThan(1_000);
  });

  it("applies several limits, each from the time at which it delays the others", async () => {
    const sluice = sluices.open();
    const limits = [leakyBucket("100/s"), tokenBucket({ capacity: 100, refill: "10/s" })];
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { limits }) });
    const jobs = await queue.enqueueMany(numbers(201), { key: "k" });

    const [soon, late] = [await etaOf(jobs[90]!), await etaOf(jobs[200]!)];

    expect(Math.abs(soon.startsInMs - 900)).toBeLessThanOrEqual(90);
    expect(Math.abs(late.startsInMs - 10_000)).toBeLessThanOrEqual(1_000);
  });

  it.each([
    [undefined, 0],
    ["k", 19],
  ])(
    "follows a limit that plain calls do not use, whatever burst they have, of key %s",
    async (key, late) => {
      const sluice = sluices.open();
      const limits = [leakyBucket("20/s", { burst: 100 }), leakyBucket("10/s", { unit: "tokens" })];
      const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { limits }) });
      const options = { key, cost: { tokens: 1 }, maxWaitMs: 3_050 };
      const jobs = await queue.enqueueMany(numbers(50), options);

      const { startsInMs } = await etaOf(jobs[49]!);
      const { emptyInMs, missed } = await forecastOf(queue);

      expect(Math.abs(startsInMs - 4_900)).toBeLessThanOrEqual(490);
      expect(Math.abs(emptyInMs - 4_900)).toBeLessThanOrEqual(490);
      expect(Math.abs(missed.length - late)).toBeLessThanOrEqual(2);
    },
  );

  it("lets jobs with a higher cost use the burst", async () => {
    const sluice = sluices.open();
    const limits = [
      leakyBucket("100/s", { burst: 2 }),
      tokenBucket({ capacity: 100, refill: "10/s" }),
    ];
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { limits }) });
    const jobs = await queue.enqueueMany(numbers(100), { key: "k", cost: 2 });

    const { startsInMs } = await etaOf(jobs[45]!);

    expect(Math.abs(startsInMs - 900)).toBeLessThanOrEqual(90);
  });

  it.each([
    ["stays cut for the whole of it", 1_000_000, 200, 2_850],
    ["is whole again long before its end", 10_000, 2_000, 20_450],
  ])("follows a rate that was cut and %s", async (_title, recoverMs, count, expectedMs) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s", adaptive: { floor: 0.1, recoverMs } });
    const queue = sluice.queue<number>("jobs", { bucket });
    const jobs = await queue.enqueueMany(numbers(count + 1), { key: "k" });
    await bucket.throttled(async () => refusal())();
    await waitUntil(async () => (await bucket.peek()).rateFactor < 1, "the rate is cut");

    const { startsInMs } = await etaOf(jobs[count]!);

    expect(Math.abs(startsInMs - expectedMs)).toBeLessThanOrEqual(expectedMs / 10);
  });

  it.each([
    ["for the whole of it", 5, 50_000],
    ["until there is more", 20, 100_100],
  ])("follows the distance that responses ask for, %s", async (_title, count, expectedMs) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s", pace: "headers" });
    const queue = sluice.queue<number>("jobs", { bucket });
    const jobs = await queue.enqueueMany(numbers(count + 1), { key: "k" });
    const headers = { "x-ratelimit-remaining": "10", "x-ratelimit-reset": "100" };
    await bucket.throttled(async () => new Response("", { headers }))();

    await waitUntil(async () => (await etaOf(jobs[count]!)).startsInMs > 5_000, "it is heard");
    const { startsInMs } = await etaOf(jobs[count]!);

    expect(Math.abs(startsInMs - expectedMs)).toBeLessThanOrEqual(expectedMs / 10);
  });

  it("applies a slower limit once it allows less than the one before", async () => {
    const sluice = sluices.open();
    const limits = [
      tokenBucket({ capacity: 100, refill: "50/s" }),
      tokenBucket({ capacity: 300, refill: "10/s" }),
    ];
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { limits }) });
    const jobs = await queue.enqueueMany(numbers(401), { key: "k" });

    const [before, after] = [await etaOf(jobs[300]!), await etaOf(jobs[400]!)];

    expect(Math.abs(before.startsInMs - 4_000)).toBeLessThanOrEqual(400);
    expect(Math.abs(after.startsInMs - 10_000)).toBeLessThanOrEqual(1_000);
  });

  it("uses the cost of the job in question where plain calls cost nothing", async () => {
    const sluice = sluices.open();
    const limits = [leakyBucket("1000/s", { unit: "tokens", burst: 100 })];
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { limits }) });
    const jobs = await queue.enqueueMany(numbers(101), { key: "k", cost: { tokens: 100 } });

    const { startsInMs } = await etaOf(jobs[100]!);

    expect(Math.abs(startsInMs - 10_000)).toBeLessThanOrEqual(1_000);
  });

  it("makes each of very many keys wait for the turns of all others", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const jobs = await queue.enqueueMany(numbers(1_800), (number) => ({ key: `k${number % 600}` }));

    const etas = await Promise.all(numbers(60).map((number) => etaOf(jobs[1_200 + 10 * number]!)));

    for (const { position, startsInMs } of etas) {
      expect(Math.abs(position - 1_200)).toBeLessThanOrEqual(120);
      expect(Math.abs(startsInMs - 12_000)).toBeLessThanOrEqual(1_200);
    }
  });

  it.each([
    ["its one call", {}, [0, 1, 2, 3, 4, 5]],
    ["a burst", { burst: 3 }, [0, 0, 0, 1, 2, 3]],
  ])("starts %s at once, and the others one by one", async (_which, more, minutes) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "1/min", ...more });
    const queue = sluice.queue<number>("jobs", { bucket });
    const jobs = await queue.enqueueMany(numbers(6));

    const etas = await Promise.all(jobs.map((job) => etaOf(job)));
    const { emptyInMs } = await forecastOf(queue);

    expect(etas.map(({ startsInMs }) => startsInMs / 60_000)).toEqual(minutes);
    expect(emptyInMs).toBe(60_000 * minutes.at(-1)!);
  });

  it("starts the last job when its backlog is gone, if there is no room", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "1/min" });
    const queue = sluice.queue<number>("jobs", { bucket });
    const jobs = await queue.enqueueMany(numbers(6));
    await bucket.draw();

    const { emptyInMs } = await forecastOf(queue);
    const { startsInMs } = await etaOf(jobs[5]!);

    expect(Math.abs(emptyInMs - 6 * 60_000)).toBeLessThan(30_000);
    expect(Math.abs(emptyInMs - startsInMs)).toBeLessThan(30_000);
  });

  it("counts a pause of the queue", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    const job = await queue.enqueue(0);
    await queue.pause();

    const reason = "queue paused";
    expect(await job.eta()).toEqual({ position: 0, startsInMs: undefined, reason });
    expect(await queue.forecast()).toMatchObject({ waiting: 1, emptyInMs: undefined, reason });
    await queue.resume();
    expect((await etaOf(job)).startsInMs).toBeLessThan(1_000);
  });

  it("starts a delayed job when it is due, behind those of its key", async () => {
    const sluice = sluices.open();
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });
    await queue.enqueueMany(numbers(100), { key: "k" });
    const soon = await queue.enqueue(0, { key: "k", delayMs: 1_000 });
    const late = await queue.enqueue(0, { key: "k", delayMs: 100_000 });

    expect((await etaOf(soon)).startsInMs).toBeGreaterThan(9_000);
    expect((await etaOf(late)).startsInMs).toBeGreaterThan(95_000);
  });
});
