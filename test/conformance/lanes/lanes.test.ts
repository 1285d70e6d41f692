import { describe, expect, it } from "vitest";
import { HOUR_MS, NO_KEY, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();
const { keyOf, join, enqueue, take, takeIds, takeKeys, putBack, placeOf, kept } = byHand;

describe("jobs in lanes", () => {
  it("are taken by the weights of their keys, three of one for each of the other", async () => {
    await enqueue("a", 12, { weight: 3 });
    await enqueue("b", 12);

    const keys = await takeKeys(12);

    expect(keys.replaceAll("b", "")).toHaveLength(9);
  });

  it("count for as many calls as they equal", async () => {
    await enqueue("a", 12, { share: 3 });
    await enqueue("b", 12);

    const keys = await takeKeys(12);

    expect(keys.replaceAll("b", "")).toHaveLength(3);
  });

  it("earn no credit for a key that was idle", async () => {
    await enqueue("a", 20);
    await takeKeys(10);
    await enqueue("b", 10);

    const keys = await takeKeys(6);

    expect(keys.replaceAll("b", "")).toHaveLength(3);
  });

  it("keep the turns that their key has used when its lane becomes empty", async () => {
    await enqueue("a", 1);
    await enqueue("b", 9);
    await takeKeys(1);
    await enqueue("a", 1);

    expect(await takeKeys(2)).toBe("ba");
  });

  it("are taken by priority, and then in the order in which they joined", async () => {
    const low = await enqueue("a", 2, { priority: 4 });
    const normal = await enqueue("a", 2, { priority: 3 });
    const critical = await enqueue("a", 2, { priority: 1 });

    expect(await takeIds(6)).toEqual([...critical, ...normal, ...low]);
  });

  it("go to the worker that asks, as many as it asks for, in the same turns", async () => {
    const a = await enqueue("a", 20);
    const b = await enqueue("b", 20);

    const mine = await takeIds(3);
    const none = await takeIds(0);
    const theirs = await takeIds(2);

    expect(none).toEqual([]);
    expect([...mine, ...theirs].toSorted()).toEqual(
      [...a.slice(0, 3), ...b.slice(0, 2)].toSorted(),
    );
  });

  it("are counted once, however often they join, and not while a worker holds them", async () => {
    const [first, second] = await enqueue("a", 2);
    await join([first!, second!]);
    const twice = await byHand.parked();
    await takeIds(1);

    await join([first!]);

    expect([twice, await byHand.parked()]).toEqual([2, 1]);
  });

  it("become due by themselves in a day, should all state of lanes be lost", async () => {
    const [id] = await enqueue("a", 1);

    const dueInMs = Number(await byHand.redis.zscore(keyOf("delayed"), id!)) / 4_096 - Date.now();

    expect(dueInMs / HOUR_MS).toBeCloseTo(24, 1);
  });

  it("are no longer counted, nor taken, once they were removed", async () => {
    const [first, second, third] = await enqueue("a", 3);
    await takeIds(1);

    const removed = await byHand.lanes.remove({
      queue: "jobs",
      state: "pending",
      ids: [first!, second!],
    });

    expect(removed).toEqual([second]);
    expect(await takeIds(3)).toEqual([third]);
    expect(await byHand.parked()).toBe(0);
  });
});

describe("the reports of lanes to workers and readers", () => {
  it.each(["runs", "is paused"])("say that jobs wait, when the queue %s", async (how) => {
    if (how === "is paused") await byHand.stored.pause();

    await enqueue("a", 1);

    expect(await byHand.redis.zscore(keyOf("marker"), "0")).toBe(how === "runs" ? "0" : null);
  });

  it("say that more jobs wait than were taken, while there are some", async () => {
    await enqueue("a", 2);
    const isNotified = [];
    for (let n = 0; n < 2; n++) {
      await byHand.redis.del(keyOf("marker"));
      await take({ most: 1 });
      isNotified.push(await byHand.redis.exists(keyOf("marker")));
    }

    expect(isNotified).toEqual([1, 0]);
  });

  it("contain the position of a job, in its lane or beyond", async () => {
    const [first, second, third, fourth] = await enqueue("a", 4);
    await takeIds(2);
    const [keyless] = await enqueue(NO_KEY, 1);
    const [later] = await byHand.store("a", 1, { delayMs: HOUR_MS });

    const places = [];
    for (const id of [first, second, keyless, third, fourth]) places.push(await placeOf(id!));

    const taken = [{ in: "worker" }, { in: "worker" }];
    const queued = { in: "queue", before: 0, callsBefore: 0 };
    const parked = [0, 1].map((before) => ({ in: "lane", key: "a", before, callsBefore: before }));
    expect(places).toEqual([...taken, queued, ...parked]);
    const { dueInMs } = (await placeOf(later!)) as { dueInMs: number };
    expect(dueInMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect(dueInMs).toBeLessThanOrEqual(HOUR_MS);
  });

  it("contain the jobs of lanes with the earliest deadlines, and the number of jobs before each", async () => {
    const startByMs = Date.now() + HOUR_MS;
    const [first] = await enqueue("a", 1, { startByMs });
    const [second] = await enqueue("a", 1, { startByMs: startByMs + 1 });
    const [other] = await enqueue("b", 1, { startByMs: startByMs - 60_000 });

    const { deadlines } = await byHand.lanes.look({ queue: "jobs" });

    expect(deadlines).toMatchObject([
      { id: other, key: "b", before: 0 },
      { id: first, key: "a", before: 0 },
      { id: second, key: "a", before: 1 },
    ]);
    for (const { inMs } of deadlines) {
      expect(inMs).toBeGreaterThan(HOUR_MS - 2 * 60_000);
      expect(inMs).toBeLessThanOrEqual(HOUR_MS + 1);
    }
  });

  it("contain the first 500 separately, and the others together", async () => {
    for (let n = 0; n < 502; n++) await enqueue(`k${n}`, 1);

    const { lanes: told, others } = await byHand.lanes.look({ queue: "jobs" });

    expect(told).toHaveLength(500);
    expect(others).toEqual({ lanes: 2, jobs: 2 });
  });
});

describe("lanes that are cleared", () => {
  it("leave no state behind that would delay later jobs", async () => {
    const [first] = await enqueue("a", 3, { weight: 2, share: 2, startByMs: Date.now() + HOUR_MS });
    await enqueue("b", 3);
    await takeKeys(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await takeKeys(1);
    await byHand.stored.drain(true);

    await byHand.lanes.clear({ queue: "jobs" });

    expect(await kept()).toEqual(["lanes:state"]);
    expect(await byHand.parked()).toBe(0);
    await enqueue("c", 1);
    expect(await takeKeys(1)).toBe("c");
  });

  it("keep the jobs that joined after the others had been removed, in their order", async () => {
    await enqueue("a", 1_200, { share: 2, startByMs: Date.now() + HOUR_MS });
    await enqueue("b", 3);
    await byHand.stored.drain(true);
    const since = await enqueue("a", 2);
    const other = await enqueue("c", 1);

    await byHand.lanes.clear({ queue: "jobs" });

    expect(await byHand.parked()).toBe(3);
    const places = [];
    for (const id of [...since, ...other]) places.push(await placeOf(id));
    expect(places).toMatchObject([{ before: 0 }, { before: 1 }, { key: "c", before: 0 }]);
    expect(await kept()).toEqual(["lanes:of:a", "lanes:of:c", "lanes:ready", "lanes:state"]);
  });
});

describe("a job that comes back to its lane", () => {
  it("has its old position there, or one behind all others when it joins again", async () => {
    const [first] = await enqueue("a", 3);
    await takeKeys(1);

    await putBack(first!, {});
    const before = await placeOf(first!);
    await byHand.lanes.join({ queue: "jobs", jobs: [{ id: first!, isAnew: true }] });

    expect(before).toMatchObject({ in: "lane", key: "a", before: 0 });
    expect(await placeOf(first!)).toMatchObject({ in: "lane", key: "a", before: 2 });
  });

  it("has not used up its key's turn, when the key had no room", async () => {
    const [first] = await enqueue("a", 3);
    await enqueue("b", 3);
    await takeKeys(1);
    await putBack(first!, { roomInMs: HOUR_MS });

    await take({ woken: ["a"] });

    expect(await takeKeys(2)).toBe("ab");
  });
});
