import { describe, expect, it } from "vitest";
import type { BucketOptions, ReachableEvent, UnreachableEvent } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const BREAKER = { failures: 2, coolMs: 50, maxCoolMs: 60_000 };
const OFTEN = { attempts: 1_000, backoff: { baseMs: 1, maxMs: 1 } };

/** A replica whose worker meets a downstream that is away for jobs whose data `away` has, and what is heard of it. */
function startReplica(away: ReadonlySet<string>, policy: Partial<BucketOptions> = {}) {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  const bucket = sluice.bucket("downstream", { rate: "1000/s", breaker: BREAKER, ...policy });
  const queue = sluice.queue<string>("jobs", { bucket });
  const heard: UnreachableEvent[] = [];
  const back: ReachableEvent[] = [];
  const byOldNames: object[] = [];
  bucket.on("unreachable", (event) => heard.push(event));
  bucket.on("reachable", (event) => back.push(event));
  bucket.on("away", (event) => byOldNames.push(event));
  bucket.on("back", (event) => byOldNames.push(event));
  const handler = ({ data }: { readonly data: string }): void => {
    if (!away.has(data)) return;
    throw Object.assign(new Error("refused"), { code: "ECONNREFUSED" });
  };
  return { bucket, queue, heard, back, byOldNames, worker: sluice.worker(queue, handler) };
}

/** Another process, that only looks. */
function open(policy: Partial<BucketOptions> = {}) {
  const sluice = sluices.open();
  const bucket = sluice.bucket("downstream", { rate: "1000/s", ...policy });
  return { bucket, queue: sluice.queue<string>("jobs", { bucket }) };
}

describe("while the downstream is unreachable", () => {
  it("no job has an expected start, every process sees the held bucket, and each new hold is an event", async () => {
    const away = new Set(["jobs"]);
    const { heard, back, byOldNames, worker, bucket } = startReplica(away);
    const other = open();
    const jobs = await other.queue.enqueueMany(
      Array.from({ length: 20 }, () => "jobs"),
      OFTEN,
    );
    const later = await other.queue.enqueue("jobs", { ...OFTEN, delayMs: 60_000 });
    // The cooldown of all calls, of 50 ms, is long over.
    await waitUntil(() => heard.length >= 6, "it was tried five times");

    const { coolingForMs, unreachableForMs, awayForMs } = await other.bucket.peek();
    const reason = "downstream away";
    expect({ coolingForMs, isAway: unreachableForMs > 0 }).toEqual({
      coolingForMs: 0,
      isAway: true,
    });
    expect(awayForMs).toBe(unreachableForMs);
    expect(worker.status().unreachableForMs).toBeGreaterThan(0);
    expect(worker.status().awayForMs).toBeGreaterThan(0);
    expect(await later.eta()).toMatchObject({ startsInMs: undefined, reason });
    expect(await jobs.at(-1)!.eta()).toMatchObject({ startsInMs: undefined, reason });
    expect(await other.queue.forecast()).toMatchObject({ emptyInMs: undefined, reason });
    expect(heard.slice(0, 6).map(({ key, forMs }) => ({ key, forMs }))).toEqual(
      [50, 100, 200, 400, 800, 1_600].map((forMs) => ({ key: undefined, forMs })),
    );
    expect(heard[0]!.reason).toBe("Error: refused");

    away.clear();
    await waitUntil(async () => (await other.queue.counts()).done === 20, "all are done");
    await waitUntil(
      async () => (await other.bucket.peek()).unreachableForMs === 0,
      "it is seen back",
    );

    expect(back).toEqual([{ key: undefined, keys: undefined }]);
    expect(byOldNames).toEqual([...heard, ...back]);
    expect(worker.status().unreachableForMs).toBe(0);
    expect((await bucket.peek()).unreachableForMs).toBe(0);
    expect((await later.eta())!.startsInMs).toBeGreaterThan(0);
  });

  it.each([
    ["a limit that all share", { rate: "1000/s" }],
    ["limits of its own", { perKey: { rate: "100/s" } }],
  ])("of one key with %s, that key is promised nothing, and others are", async (_what, policy) => {
    const away = new Set(["bad"]);
    const { heard } = startReplica(away, policy);
    const other = open(policy);
    const bad = await other.queue.enqueueMany(
      Array.from({ length: 10 }, () => "bad"),
      { ...OFTEN, key: "bad" },
    );
    await waitUntil(() => heard.length >= 6, "it was tried five times");
    await other.queue.pause({ key: "good", forMs: 60_000 });
    const good = await other.queue.enqueue("good", { key: "good" });

    const reason = "key away";
    expect(await other.queue.forecast({ key: "bad" })).toMatchObject({
      emptyInMs: undefined,
      reason,
    });
    expect(await other.queue.forecast()).toMatchObject({ emptyInMs: undefined, reason });
    expect((await other.queue.forecast({ key: "good" })).emptyInMs).toBeGreaterThan(0);
    expect((await good.eta())!.startsInMs).toBeGreaterThan(0);
    expect(await bad.at(-1)!.eta()).toMatchObject({ startsInMs: undefined, reason });
    const waitsForKey = async (): Promise<boolean> =>
      (await bad.at(-1)!.explain())?.waitsFor === reason;
    await waitUntil(waitsForKey, "none of its attempts is under way or to be repeated");
    expect((await other.bucket.peek({ key: "bad" })).unreachableForMs).toBeGreaterThan(0);
    expect((await other.bucket.peek({ key: "good" })).unreachableForMs).toBe(0);
    expect((await other.bucket.peek()).unreachableForMs).toBe(0);
    expect(new Set(heard.map(({ key }) => key))).toEqual(new Set(["bad"]));

    await other.queue.resume({ key: "good" });
    await good.finished();
    away.clear();
    await waitUntil(async () => (await other.queue.counts()).done === 11, "all are done");
    await waitUntil(
      async () => (await other.bucket.peek({ key: "bad" })).unreachableForMs === 0,
      "it is seen back",
    );
  });

  it("a worker that starts after the outage notices the end by its first job, and notifies all", async () => {
    const { heard, worker } = startReplica(new Set(["jobs"]));
    const other = open();
    await other.queue.enqueueMany(
      Array.from({ length: 3 }, () => "jobs"),
      OFTEN,
    );
    await waitUntil(() => heard.length >= 5, "it was tried four times");
    await worker.close();
    expect((await other.bucket.peek()).unreachableForMs).toBeGreaterThan(0);

    startReplica(new Set());
    await waitUntil(async () => (await other.queue.counts()).done === 3, "all are done");
    await waitUntil(
      async () => (await other.bucket.peek()).unreachableForMs === 0,
      "it is seen back",
    );

    expect(await other.queue.forecast()).toMatchObject({ emptyInMs: 0 });
  });
});
