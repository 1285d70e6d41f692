import type { Job } from "bullmq";
import { describe, expect, it } from "vitest";
import type { TakenJob } from "../../../src/stores/redis/scripts/queue/lanes.ts";
import { storedJobOf } from "../../../src/queue/bullmq/stored-worker.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { HOUR_MS, NO_KEY, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();
const { keyOf, store, enqueue, take, takeIds, takeKeys, putBack } = byHand;

const count = (keys: string, key: string): number => keys.split(key).length - 1;

describe("jobs without a key", () => {
  it.each([
    ["every other turn beside one lane", ["a"], 12, 6],
    ["a third of the turns beside two", ["a", "b"], 12, 4],
  ])("take %s", async (_what, keys, turns, expected) => {
    await enqueue(NO_KEY, 12);
    for (const key of keys) await enqueue(key, 12);

    const together = (await takeIds(turns)).map((id) => id.split("-")[0]).join("");
    const oneByOne = await takeKeys(turns);

    expect(count(together, NO_KEY)).toBe(expected);
    expect(count(oneByOne, NO_KEY)).toBe(expected);
  });

  it("count for as many calls as they equal", async () => {
    await enqueue(NO_KEY, 12, { share: 3 });
    await enqueue("a", 12);

    expect(count(await takeKeys(12), NO_KEY)).toBe(3);
  });

  it("earn no credit while there are none, and have no debt for what they took alone", async () => {
    await enqueue("a", 20);
    await takeIds(10);
    await enqueue(NO_KEY, 10);
    const beside = await takeKeys(12);
    await takeIds(100);
    await enqueue(NO_KEY, 20);
    await takeIds(10);
    await enqueue("b", 10);

    const after = await takeKeys(12);

    // Who comes later may begin with the turn that the other has just had.
    for (const keys of [beside, after]) {
      expect(Math.abs(count(keys, NO_KEY) - 6)).toBeLessThanOrEqual(1);
    }
  });

  it("are taken by priority, and in order of arrival", async () => {
    const low = await enqueue(NO_KEY, 2, { priority: 4 });
    const normal = await enqueue(NO_KEY, 2);
    const critical = await enqueue(NO_KEY, 2, { priority: 1 });

    expect(await takeIds(6)).toEqual([...critical, ...normal, ...low]);
  });

  it("are taken first when a worker had lost them", async () => {
    const ids = await enqueue(NO_KEY, 3);
    await byHand.redis.zrem(keyOf("prioritized"), ids[2]!);
    await byHand.redis.rpush(keyOf("wait"), ids[2]!);

    expect(await takeIds(3)).toEqual([ids[2], ids[0], ids[1]]);
  });
});

describe("jobs that BullMQ itself has removed", () => {
  it.each<[string, (ids: readonly string[]) => Promise<unknown>]>([
    ["one by one", (ids) => Promise.all(ids.map((id) => byHand.stored.remove(id)))],
    ["by drain", () => byHand.stored.drain(true)],
    ["by clean", () => byHand.stored.clean(0, 0, "delayed")],
    ["by obliterate", () => byHand.stored.obliterate()],
  ])("block no other job: %s", async (_how, remove) => {
    await remove(await enqueue("a", 50, { share: 5, weight: 2, startByMs: Date.now() + HOUR_MS }));
    const before = await enqueue("b", 2);
    const after = await enqueue("a", 2);

    const ids = await takeIds(10);

    expect(ids.toSorted()).toEqual([...before, ...after].toSorted());
    expect(await byHand.parked()).toBe(0);
    expect(await byHand.kept()).toEqual(["lanes:state"]);
  });

  it("block no other job in a lane that is tried with one job at a time", async () => {
    const [first, second] = await enqueue("a", 3);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await byHand.stored.remove(first!);
    await byHand.stored.remove(second!);

    const { jobs } = await take({ most: 5, woken: ["a"] });

    expect(jobs).toHaveLength(1);
    expect(jobs[0]).toMatchObject({ arrival: "probe" });
  });

  it("use up no turn of their key", async () => {
    const removed = await enqueue("a", 3, { share: 5 });
    for (const id of removed) await byHand.stored.remove(id);
    await enqueue("a", 2);
    await enqueue("b", 2);

    expect((await takeKeys(2)).split("").toSorted().join("")).toBe("ab");
  });

  it("are skipped up to a thousand by a request, and the next request continues", async () => {
    await enqueue("a", 1_500);
    await byHand.stored.drain(true);
    await enqueue("a", 1);

    const first = await take({ most: 1 });
    const second = await take({ most: 1 });

    expect([first.jobs.length, first.nextMs]).toEqual([0, 0]);
    expect(second.jobs).toHaveLength(1);
    expect(second.parked).toBe(0);
  });

  it("are skipped also without a key, or with an expired deadline", async () => {
    await byHand.redis.lpush(keyOf("wait"), "gone");
    const [removed] = await enqueue("a", 1, { startByMs: 1 });
    await byHand.stored.remove(removed!);
    await enqueue(NO_KEY, 1);

    const { jobs, isMoreDue } = await take({ most: 5, mostExpired: 5 });

    expect(jobs.map(({ id }) => id.split("-")[0])).toEqual([NO_KEY]);
    expect(isMoreDue).toBe(false);
  });
});

describe("jobs with a key in the place where BullMQ fetches", () => {
  it.each<[string, (ids: readonly string[]) => Promise<unknown>]>([
    [
      "a tool has promoted them",
      async (ids) => {
        for (const id of ids) await (await byHand.stored.getJob(id))!.promote();
      },
    ],
    [
      "a tool has promoted them, and they have no priority",
      async (ids) => {
        await byHand.redis.zrem(keyOf("delayed"), ...ids);
        await byHand.redis.lpush(keyOf("wait"), ...ids);
      },
    ],
  ])("take their turns in their lanes, once %s", async (_how, promote) => {
    const ids = await enqueue("a", 6);
    await enqueue("b", 6);
    await promote(ids);
    await enqueue(NO_KEY, 6);

    const keys = await takeKeys(9);

    expect(["a", "b", NO_KEY].map((key) => count(keys, key))).toEqual([3, 3, 3]);
    expect(await byHand.parked()).toBe(6);
  });

  it("join their lane at the latest when BullMQ would fetch them", async () => {
    await enqueue(NO_KEY, 3);
    const urgent = await store("a", 1, { priority: 1 });
    const last = await store("a", 1);

    const ids = await takeIds(10);

    expect(ids).toHaveLength(5);
    expect(ids.slice(0, 2)).toContain(urgent[0]);
    expect(ids[4]).toBe(last[0]);
  });

  it("are taken by the first request that finds them", async () => {
    const ids = await store("a", 2);

    expect(await takeIds(5)).toEqual(ids);
  });

  it("join their lane all, when there are many", async () => {
    const ids = await enqueue("a", 700);
    await byHand.redis.zrem(keyOf("delayed"), ...ids);
    await byHand.redis.lpush(keyOf("wait"), ...ids);
    await enqueue("b", 400);

    const keys = [...(await takeIds(400)), ...(await takeIds(400))];

    const ofA = keys.filter((id) => id.startsWith("a")).length;
    expect([ofA, keys.length - ofA]).toEqual([400, 400]);
  });

  it("are reported as remaining, when one request does not move all", async () => {
    const ids = await enqueue("a", 400);
    await byHand.redis.zrem(keyOf("delayed"), ...ids);
    await byHand.redis.lpush(keyOf("wait"), ...ids);

    const { jobs, nextMs } = await take({ most: 350 });

    expect(jobs).toHaveLength(300);
    expect(nextMs).toBe(0);
  });

  it("return to their position in their lane, when their worker was lost", async () => {
    const ids = await enqueue("a", 3);
    await takeIds(1);
    await byHand.redis.lrem(keyOf("active"), 1, ids[0]!);
    await byHand.redis.rpush(keyOf("wait"), ids[0]!);

    expect(await takeIds(3)).toEqual(ids);
  });
});

describe("delayed jobs", () => {
  /** Has all jobs come due that are delayed. */
  async function comeDue(ids: readonly string[]): Promise<void> {
    const members = ids.flatMap((id) => [Date.now() * 4_096, id]);
    await byHand.redis.zadd(keyOf("delayed"), ...members);
  }

  it("join their lanes when they are due, and those without a key BullMQ's queue", async () => {
    const keyed = await store("a", 3, { delayMs: HOUR_MS });
    const keyless = await store(NO_KEY, 3, { delayMs: HOUR_MS });
    const before = await takeIds(10);
    await comeDue([...keyed, ...keyless]);

    const keys = await takeKeys(4);

    expect(before).toEqual([]);
    expect([count(keys, "a"), count(keys, NO_KEY)]).toEqual([2, 2]);
    expect(await byHand.parked()).toBe(1);
    expect(await byHand.redis.zcard(keyOf("prioritized"))).toBe(1);
  });

  it("have the priority that they were given", async () => {
    const normal = await enqueue(NO_KEY, 1);
    const urgent = await store(NO_KEY, 1, { delayMs: HOUR_MS, priority: 1 });
    const low = await store(NO_KEY, 1, { delayMs: HOUR_MS, priority: 4 });
    await comeDue([...low, ...urgent]);

    expect(await takeIds(3)).toEqual([...urgent, ...normal, ...low]);
  });

  it("join in batches of 300 per request, whose reply says that more are due", async () => {
    const ids = await store("a", 350, { delayMs: HOUR_MS });
    await comeDue(ids);

    const first = await take();
    const second = await take();

    expect(first).toMatchObject({ parked: 300, isMoreDue: true, nextMs: 0 });
    expect(second).toMatchObject({ parked: 350, isMoreDue: false });
  });

  it("announce to a worker when the first of them is due", async () => {
    const none = await take({ most: 1 });
    await store("a", 1, { delayMs: HOUR_MS });

    const { nextMs } = await take({ most: 1 });

    expect(none.nextMs).toBeUndefined();
    expect(nextMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect(nextMs).toBeLessThanOrEqual(HOUR_MS);
  });
});

describe("a queue that BullMQ stops", () => {
  it("gives no job while it is paused, and no reason to ask again soon", async () => {
    await byHand.stored.pause();
    await enqueue("a", 2);
    await enqueue(NO_KEY, 2);

    const { jobs, nextMs } = await take({ most: 5, mostExpired: 5 });
    await byHand.stored.resume();

    expect({ jobs, nextMs }).toEqual({ jobs: [], nextMs: undefined });
    expect(await takeIds(5)).toHaveLength(4);
  });

  it("gives no more jobs than may be active at once, and no reason to ask again soon", async () => {
    await byHand.stored.setGlobalConcurrency(3);
    await enqueue("a", 3);
    await enqueue(NO_KEY, 3);

    const first = await takeIds(2);
    const second = await takeIds(5);
    await byHand.redis.del(keyOf("marker"));
    const third = await take({ most: 5 });

    expect([first.length, second.length, third.jobs.length]).toEqual([2, 1, 0]);
    expect(third.nextMs).not.toBe(0);
    expect(await byHand.redis.zscore(keyOf("marker"), "0")).toBeNull();
  });
});

describe("a job that was taken", () => {
  const read = (taken: TakenJob): Job =>
    storedJobOf(byHand.stored as never, taken) as unknown as Job;

  it.each([["a"], [NO_KEY]])("is BullMQ's active job of this worker: of key %s", async (key) => {
    const [id] = await enqueue(key, 1);

    const { jobs, active } = await take({ most: 1, token: "w:7:", lockMs: HOUR_MS });

    expect(jobs).toMatchObject([{ id, token: "w:7:1", arrival: "turn" }]);
    expect(active).toBe(1);
    const job = read(jobs[0]!);
    expect(job).toMatchObject({ id, data: 0, attemptsStarted: 1, delay: 0 });
    expect(Math.abs(Date.now() - job.processedOn!)).toBeLessThan(60_000);
    expect(await job.getState()).toBe("active");
    const lockMs = await byHand.redis.pttl(keyOf(`${id}:lock`));
    expect(lockMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect(lockMs).toBeLessThanOrEqual(HOUR_MS);
  });

  it("is ended by the token of its lock, and by no other", async () => {
    await enqueue("a", 6);
    await enqueue(NO_KEY, 6);
    const { jobs } = await take({ most: 12, token: "w:1:" });

    for (const taken of jobs) {
      const end = (token: string): Promise<unknown> =>
        read(taken).moveToCompleted("done", token, false);
      await expect(end("w:1:13")).rejects.toThrow("Lock mismatch");
      await end(taken.token);
    }

    expect(new Set(jobs.map(({ token }) => token)).size).toBe(12);
    expect(await byHand.stored.getCompletedCount()).toBe(12);
    expect(await byHand.redis.llen(keyOf("active"))).toBe(0);
  });

  it.each([
    ["a", ["delayed", "waiting", "active"]],
    [NO_KEY, ["waiting", "active"]],
  ])("appears in BullMQ's events with key %s", async (key, expected) => {
    const [id] = await enqueue(key, 1);

    await takeIds(1);

    const events = (await byHand.redis.xrange(keyOf("events"), "-", "+")).map(([, fields]) =>
      Object.fromEntries(fields.flatMap((name, at) => (at % 2 ? [] : [[name, fields[at + 1]]]))),
    );
    const ofJob = events.filter(({ jobId, event }) => jobId === id && event !== "added");
    expect(ofJob.map(({ event }) => event)).toEqual(expected);
  });
});

describe("a worker that asks", () => {
  it("counts as present for its announced time, and no longer once it withdraws that", async () => {
    const seen = [];
    for (const forMs of [HOUR_MS, 0]) {
      await byHand.lanes.noteWorker({ queue: "jobs", worker: "v", places: 7, forMs });
      seen.push(await byHand.lanes.workers({ queue: "jobs" }));
    }

    expect(seen).toEqual([
      { workers: 1, places: 7 },
      { workers: 0, places: 0 },
    ]);
  });

  it("makes Redis forget workers that have not reported for their announced time", async () => {
    const live = keyOf("workers:live");
    await byHand.lanes.noteWorker({ queue: "jobs", worker: "there", places: 1, forMs: HOUR_MS });
    await byHand.redis.hset(live, "gone", `${Date.now() - HOUR_MS} 1`);

    await byHand.lanes.noteWorker({ queue: "jobs", worker: "v", places: 1, forMs: HOUR_MS / 2 });

    expect((await byHand.redis.hkeys(live)).toSorted()).toEqual(["there", "v"]);
    expect(await byHand.redis.pttl(live)).toBeGreaterThan(HOUR_MS / 2);
  });

  it("gets the number of parked jobs, and the time at which a skipped lane is tried again", async () => {
    const [first] = await enqueue("a", 3);
    await takeIds(1);
    await putBack(first!, { roomInMs: 30 });

    const { parked, nextMs } = await take({ most: 1 });
    await waitUntil(async () => (await takeIds(1)).length === 1, "its lane is served");

    expect(parked).toBe(3);
    expect(nextMs).toBeGreaterThanOrEqual(0);
    expect(nextMs).toBeLessThanOrEqual(30);
  });
});
