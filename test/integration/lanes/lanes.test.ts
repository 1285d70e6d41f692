import { Job as StoredJob } from "bullmq";
import { afterEach, describe, expect, it, vi } from "vitest";
import { leakyBucket, tokenBucket, type Job } from "sluice";
import type { OwnedBucket } from "../../../src/throttle/bucket.ts";
import { deferred } from "../../support/async/deferred.ts";
import {
  FETCHED_AT_ONCE,
  farthestFromPlace,
  openLanes,
  upTo,
  whileOthersWork,
} from "../../support/jobs/open-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const lanes = openLanes();
afterEach(() => {
  vi.restoreAllMocks();
});

/** Limits of a key: on its calls, and on the tokens of each. */
function policyOf(rate: string, capacity: number) {
  return { limits: [leakyBucket(rate), tokenBucket({ capacity, refill: "1/s", unit: "tokens" })] };
}

describe("a key that an operator paused", () => {
  it("starts none of its jobs at any worker until it is resumed by any process, while others pass", async () => {
    const policy = { rate: "500/s", perKey: { rate: "400/s" } };
    const [here, there] = [lanes.open(policy), lanes.open(policy)];
    const done: string[] = [];
    for (const { sluice, queue } of [here, there]) {
      sluice.worker(queue, async ({ key }) => void done.push(key as string), { concurrency: 3 });
    }
    await here.queue.bucket.pause({ key: "held" });

    await here.queue.enqueueMany(upTo(50), { key: "held" });
    await here.queue.enqueueMany(upTo(100), { key: "free" });
    await waitUntil(() => done.length >= 100, "those of the other key are done");
    const doneMeanwhile = new Set(done);
    await there.queue.bucket.resume({ key: "held" });
    await waitUntil(() => done.length === 150, "all are done");

    expect([...doneMeanwhile]).toEqual(["free"]);
    expect(await here.queue.counts()).toMatchObject({ failed: 0, waiting: 0, delayed: 0 });
  });
});

describe("a key that was resumed while no worker listened", () => {
  it("continues, because skipped lanes are tried from time to time", async () => {
    const { sluice, queue } = lanes.open({ rate: "500/s", perKey: { rate: "400/s" } });
    const done: number[] = [];
    const work = async ({ data }: { data: number }): Promise<void> => void done.push(data);
    await queue.bucket.pause({ key: "held" });
    await queue.enqueueMany(upTo(5), { key: "held" });
    const first = sluice.worker(queue, work, { patienceMs: 0 });
    const blocked = `${lanes.prefix}:{jobs}:lanes:blocked`;
    const untilMs = async (): Promise<number> => Number(await lanes.redis.zscore(blocked, "held"));
    await waitUntil(async () => (await untilMs()) > Date.now() + 60_000, "its lane stands aside");
    await first.close();

    await queue.bucket.resume({ key: "held" });
    await lanes.redis.hset(`${lanes.prefix}:{jobs}:lanes:state`, "lookedAt", 0);
    sluice.worker(queue, work);

    await waitUntil(() => done.length === 5, "all are done");

    expect(done.toSorted((a, b) => a - b)).toEqual(upTo(5));
  });
});

describe("a key that has no room", () => {
  it("is passed by jobs of other keys, and takes none of their room", async () => {
    const opened = lanes.open({
      rate: "500/s",
      perKey: (key) => ({ rate: key === "slow" ? "1/min" : "400/s" }),
    });
    const { sluice, queue } = opened;
    const done: string[] = [];
    await queue.enqueueMany(upTo(300), { key: "slow" });
    sluice.worker(queue, async ({ key }) => void done.push(key as string), { concurrency: 3 });
    await waitUntil(() => done.length > 0, "the first of the slow key has started");

    await queue.enqueueMany(upTo(100), { key: "fast" });
    await waitUntil(() => done.filter((key) => key === "fast").length === 100, "the fast are done");

    expect(done.filter((key) => key === "slow").length).toBeLessThanOrEqual(2);
  });

  it("is also skipped when its limit is on calls at once, and continues when one ends", async () => {
    const { sluice, queue } = lanes.open({ rate: "500/s", perKey: { concurrency: 2 } });
    const mayEnd = deferred();
    const done: string[] = [];
    let running = 0;
    let most = 0;
    await queue.enqueueMany(upTo(40), { key: "long" });
    const handler = async ({ key }: Pick<Job<number>, "key">): Promise<void> => {
      if (key === "long") {
        most = Math.max(most, (running += 1));
        await mayEnd.promise;
        running -= 1;
      }
      done.push(key as string);
    };
    sluice.worker(queue, handler, { concurrency: 6 });
    await waitUntil(() => running === 2, "two of the long key run");

    await queue.enqueueMany(upTo(60), { key: "short" });
    await waitUntil(() => done.length === 60, "all of the other key are done");
    const doneMeanwhile = new Set(done);
    mayEnd.resolve();
    await waitUntil(() => done.length === 100, "all are done");

    expect([...doneMeanwhile]).toEqual(["short"]);
    expect(most).toBe(2);
  });

  it("keeps the order of its jobs, the urgent before the others", async () => {
    const { sluice, queue } = lanes.open({ rate: "500/s", perKey: { rate: "40/s" } });
    const started: { readonly n: number; readonly priority: string }[] = [];
    await queue.enqueueMany(upTo(40), { key: "slow" });
    const urgent = upTo(20).map((n) => 100 + n);
    sluice.worker(queue, async ({ data, priority }) => void started.push({ n: data, priority }));
    await waitUntil(() => started.length >= 5, "some have started");
    await queue.bucket.pause();
    await queue.enqueueMany(urgent, { key: "slow", priority: "high" });
    await queue.bucket.resume();
    await waitUntil(() => started.length === 60, "all have started");

    const inOrder = (priority: string): number[] =>
      started.filter((each) => each.priority === priority).map(({ n }) => n);
    expect(inOrder("normal").toSorted((a, b) => a - b)).toEqual(upTo(40));
    expect(inOrder("high").toSorted((a, b) => a - b)).toEqual(urgent);
    expect(farthestFromPlace(inOrder("normal"))).toBeLessThanOrEqual(FETCHED_AT_ONCE);
    expect(farthestFromPlace(inOrder("high"))).toBeLessThanOrEqual(FETCHED_AT_ONCE);
    const lastUrgent = started.findLastIndex(({ priority }) => priority === "high");
    const normalAfter = started.slice(lastUrgent).filter(({ priority }) => priority === "normal");
    // What was with the worker already goes before them.
    expect(normalAfter.length).toBeGreaterThan(10);
  });

  it("continues with its next job when the job that was tried alone can never have a slot", async () => {
    const opened = lanes.open({ rate: "500/s", perKey: policyOf("1/h", 10) });
    const { sluice, queue } = opened;
    const started: number[] = [];
    const costOf = (n: number) => ({ key: "slow", ...(n === 1 && { cost: { tokens: 10 } }) });
    await queue.enqueueMany([0, 1, 2], costOf);
    sluice.worker(queue, async ({ data }) => void started.push(data));
    await waitUntil(async () => (await queue.counts()).waiting === 2, "one has started");
    await waitUntil(async () => (await lanes.keys()).includes("blocked"), "its lane stands aside");

    await queue.bucket.configure({ rate: "500/s", perKey: policyOf("400/s", 5) });
    await waitUntil(async () => (await queue.counts()).failed === 1, "the costly one has failed");
    await whileOthersWork(opened, 60);

    expect(started).toEqual([0, 2]);
  });

  it("starts its jobs immediately when a higher limit is configured", async () => {
    const { sluice, queue } = lanes.open({ rate: "500/s", perKey: { rate: "1/h" } });
    let started = 0;
    await queue.enqueueMany(upTo(50), { key: "slow" });
    sluice.worker(queue, async () => void (started += 1));
    await waitUntil(() => started === 1, "the first has started");
    await waitUntil(async () => (await lanes.keys()).includes("blocked"), "its lane stands aside");

    await queue.bucket.configure({ rate: "500/s", perKey: { rate: "400/s" } });

    await waitUntil(() => started === 50, "all have started, an hour apart by the old limit");
    const { done, active } = await queue.counts();
    expect(done + active).toBe(50);
  });

  it("starts its job immediately when a higher limit is configured while the job is on its way back", async () => {
    const { sluice, queue } = lanes.open({ rate: "500/s", perKey: { rate: "1/h" } });
    const started: (string | undefined)[] = [];
    const moveToDelayed = vi.spyOn(StoredJob.prototype, "moveToDelayed");
    moveToDelayed.mockImplementationOnce(async function (this: StoredJob, ...way) {
      const isHeard = deferred();
      (queue.bucket as OwnedBucket).onChange(() => isHeard.resolve());
      await queue.bucket.configure({ rate: "500/s", perKey: { rate: "400/s" } });
      await isHeard.promise;
      // One of another key tells that the lanes have been woken.
      await queue.enqueue(0, { key: "other" });
      await waitUntil(() => started.includes("other"), "the other has started");
      return moveToDelayed.apply(this, way);
    });
    await queue.enqueueMany(upTo(2), { key: "slow" });

    sluice.worker(queue, async ({ key }) => void started.push(key as string));
    await waitUntil(() => started.length === 3, "all have started, an hour apart by the old limit");

    expect(started.filter((key) => key === "slow")).toHaveLength(2);
  });

  it("starts its jobs when its bucket is resumed, though a pause had sent them back to their lane", async () => {
    // Where each key stands for itself, a pause is a key's own lack of room.
    const { sluice, queue } = lanes.open({ perKey: { rate: "400/s" } });
    const own = `${lanes.prefix}:{jobs}:lanes:`;
    let started = 0;
    await queue.bucket.pause();
    for (const key of ["a", "b"]) await queue.enqueueMany(upTo(25), { key });
    sluice.worker(queue, async () => void (started += 1));
    await waitUntil(async () => {
      const areAllBack = (await lanes.redis.hget(`${own}state`, "parked")) === "50";
      return areAllBack && (await lanes.redis.zcard(`${own}blocked`)) === 2;
    }, "both lanes stand aside, with all of their jobs");
    const before = started;

    await queue.bucket.resume();

    await waitUntil(() => started === 50, "all have started");
    expect(before).toBe(0);
  });
});
