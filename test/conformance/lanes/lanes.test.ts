import { describe, expect, it } from "vitest";
import { HOUR_MS, handFedLanes } from "../../support/jobs/hand-fed-lanes.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const byHand = handFedLanes();
const { keyOf, join, enqueue, feed, fetchFed, letOut, putBack, placeOf } = byHand;

describe("jobs in lanes", () => {
  it("leave by the weights of their keys, three of one for each of the other", async () => {
    await enqueue("a", 12, { weight: 3 });
    await enqueue("b", 12);

    const keys = await letOut(12);

    expect(keys.replaceAll("b", "")).toHaveLength(9);
  });

  it("count for as many calls as they stand for", async () => {
    await enqueue("a", 12, { share: 3 });
    await enqueue("b", 12);

    const keys = await letOut(12);

    expect(keys.replaceAll("b", "")).toHaveLength(3);
  });

  it("save up no credit for a key that was idle", async () => {
    await enqueue("a", 20);
    await letOut(10);
    await enqueue("b", 10);

    const keys = await letOut(6);

    expect(keys.replaceAll("b", "")).toHaveLength(3);
  });

  it("do not shake off what their key has had when its lane runs empty", async () => {
    await enqueue("a", 1);
    await enqueue("b", 9);
    await letOut(1);
    await enqueue("a", 1);

    expect(await letOut(2)).toBe("ba");
  });

  it("leave their lane by priority, and then in the order in which they joined", async () => {
    const low = await enqueue("a", 2, { priority: 4 });
    const normal = await enqueue("a", 2, { priority: 3 });
    const critical = await enqueue("a", 2, { priority: 1 });

    await feed({ want: 6 });

    expect(await fetchFed()).toEqual([...critical, ...normal, ...low]);
  });

  it("are let out as far as all workers want them together, less those that are under way", async () => {
    await enqueue("a", 20);

    await feed({ want: 3 });
    await feed({ worker: "v", want: 2 });
    await feed({ want: 3 });

    expect(await fetchFed()).toHaveLength(5);
  });

  it("are not let out for a worker that has not been heard of for as long as it said", async () => {
    await feed({ worker: "gone", want: 5, forMs: -1 });
    await enqueue("a", 5);

    await feed();

    expect(await fetchFed()).toEqual([]);
  });

  it("are counted once, however often they join, and not while they wait elsewhere", async () => {
    const [first, second] = await enqueue("a", 2);
    await join([first!, second!]);
    const twice = await byHand.lanes.parked("jobs");
    await feed({ want: 1 });

    await join([first!]);

    expect([twice, await byHand.lanes.parked("jobs")]).toEqual([2, 1]);
  });

  it("come due by themselves in a day, should all that is kept of lanes be lost", async () => {
    const [id] = await enqueue("a", 1);

    const dueInMs = Number(await byHand.redis.zscore(keyOf("delayed"), id!)) / 4_096 - Date.now();

    expect(dueInMs / HOUR_MS).toBeCloseTo(24, 1);
  });

  it("take nobody's place for longer than a minute, when no worker has fetched them", async () => {
    await enqueue("a", 2);
    await feed({ want: 1 });
    const [lost] = await byHand.redis.lrange(keyOf("wait"), 0, 0);
    await byHand.redis.del(keyOf("wait"));
    const ago = async (ms: number): Promise<string[]> => {
      await byHand.redis.zadd(keyOf("lanes:fed"), Date.now() - ms, lost!);
      await feed({ want: 1 });
      return fetchFed();
    };

    expect(await ago(50_000)).toEqual([]);
    expect(await ago(61_000)).toHaveLength(1);
  });

  it("are no longer counted, nor under way, once they were taken out of their lane", async () => {
    const [first, second, third] = await enqueue("a", 3);
    await feed({ want: 1 });
    await byHand.redis.del(keyOf("wait"));

    const wasInLane = [
      await byHand.lanes.leave("jobs", first!),
      await byHand.lanes.leave("jobs", second!),
    ];
    await feed({ want: 1 });

    expect(wasInLane).toEqual([false, true]);
    expect(await fetchFed()).toEqual([third]);
    expect(await byHand.lanes.parked("jobs")).toBe(0);
  });
});

describe("what workers and others are told of lanes", () => {
  it.each(["runs", "is paused"])("is that jobs were let out, when the queue %s", async (how) => {
    if (how === "is paused") await byHand.stored.pause();
    await enqueue("a", 1);
    await byHand.redis.del(keyOf("marker"));

    await feed({ want: 1 });

    expect(await byHand.redis.exists(keyOf("marker"))).toBe(how === "runs" ? 1 : 0);
  });

  it("is where a job stands, in its lane or beyond", async () => {
    const [first, second, third, fourth] = await enqueue("a", 4);
    const { id: keyless } = await byHand.stored.add("job", 0, { priority: 3 });
    const { id: later } = await byHand.stored.add("key a", 0, { priority: 3, delay: HOUR_MS });
    await feed({ want: 2 });

    const places = [];
    for (const id of [first, second, keyless, third, fourth]) places.push(await placeOf(id!));

    const queued = [0, 1, 2].map((before) => ({ in: "queue", before, callsBefore: before }));
    const parked = [0, 1].map((before) => ({ in: "lane", key: "a", before, callsBefore: before }));
    expect(places).toEqual([...queued, ...parked]);
    const { dueInMs } = (await placeOf(later!)) as { dueInMs: number };
    expect(dueInMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect(dueInMs).toBeLessThanOrEqual(HOUR_MS);
  });

  it("is which jobs of lanes have the earliest deadlines, and how many jobs are before each", async () => {
    const startByMs = Date.now() + HOUR_MS;
    const [first] = await enqueue("a", 1, { startByMs });
    const [second] = await enqueue("a", 1, { startByMs: startByMs + 1 });
    const [other] = await enqueue("b", 1, { startByMs: startByMs - 60_000 });

    const { deadlines } = await byHand.lanes.look("jobs");

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

  it("is of 500 of them each by itself, and of the others together", async () => {
    const opts = { delay: 10_000, priority: 3 };
    const keys = Array.from({ length: 502 }, (_, n) => `k${n}`);
    const jobs = await byHand.stored.addBulk(
      keys.map((key) => ({ name: `key ${key}`, data: 0, opts })),
    );
    await join(jobs.map(({ id }) => id!));

    const { lanes: told, others } = await byHand.lanes.look("jobs");

    expect(told).toHaveLength(500);
    expect(others).toEqual({ lanes: 2, jobs: 2 });
  });
});

describe("lanes that are cleared", () => {
  it("leave nothing behind that would hold up jobs that come later", async () => {
    const [first] = await enqueue("a", 3, { weight: 2, share: 2, startByMs: Date.now() + HOUR_MS });
    await enqueue("b", 3);
    await letOut(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await feed({ want: 1 });
    await byHand.stored.drain(true);

    await byHand.lanes.clear("jobs");

    const own = (await byHand.redis.keys(keyOf("lanes:*"))).map((key) =>
      key.slice(keyOf("").length),
    );
    expect(own.toSorted()).toEqual(["lanes:state", "lanes:wants"]);
    expect(await byHand.lanes.parked("jobs")).toBe(0);
    await enqueue("c", 1);
    expect(await fetchFed()).toHaveLength(1);
  });

  it("keep the jobs that joined after the others had been removed, in their order", async () => {
    await enqueue("a", 1_200, { share: 2, startByMs: Date.now() + HOUR_MS });
    await enqueue("b", 3);
    await byHand.stored.drain(true);
    const since = await enqueue("a", 2);
    const other = await enqueue("c", 1);

    await byHand.lanes.clear("jobs");

    expect(await byHand.lanes.parked("jobs")).toBe(3);
    const places = [];
    for (const id of [...since, ...other]) places.push(await placeOf(id));
    expect(places).toMatchObject([{ before: 0 }, { before: 1 }, { key: "c", before: 0 }]);
    const own = (await byHand.redis.keys(keyOf("lanes:*"))).map((key) =>
      key.slice(keyOf("").length),
    );
    const left = ["lanes:of:a", "lanes:of:c", "lanes:ready", "lanes:state"];
    expect(own.toSorted()).toEqual(left);
  });
});

describe("a job that comes back to its lane", () => {
  it("has its old place there, or one behind all others when it joins anew", async () => {
    const [first] = await enqueue("a", 3);
    await letOut(1);

    await putBack(first!, {});
    const before = await placeOf(first!);
    await byHand.lanes.join("jobs", [{ id: first!, isAnew: true }]);

    expect(before).toMatchObject({ in: "lane", key: "a", before: 0 });
    expect(await placeOf(first!)).toMatchObject({ in: "lane", key: "a", before: 2 });
  });

  it("has not used up its key's turn, when the key had no room", async () => {
    const [first] = await enqueue("a", 3);
    await enqueue("b", 3);
    await letOut(1);
    await putBack(first!, { roomInMs: HOUR_MS });

    await feed({ woken: ["a"] });

    expect(await letOut(2)).toBe("ab");
  });
});

describe("a lane whose key has no room", () => {
  /** One of its jobs has come back; the lane of another key goes on. */
  async function setAside(roomInMs: number): Promise<void> {
    const [first] = await enqueue("a", 9);
    await letOut(1);
    await putBack(first!, { roomInMs });
  }

  it("stands aside for that time, and tells for how long", async () => {
    await setAside(HOUR_MS);
    await enqueue("b", 3);

    const keys = await letOut(5);
    const { nextMs } = await feed();

    expect(keys).toBe("bbb");
    expect(nextMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect((await byHand.lanes.look("jobs")).lanes[0]!.asideMs).toBeGreaterThan(HOUR_MS - 60_000);
  });

  it("is let through again when that time is over", async () => {
    await setAside(1);

    let fed = "";
    await waitUntil(async () => (fed = await letOut(1)) !== "", "it is let through");

    expect(fed).toBe("a");
  });

  it.each([
    ["its own key", "a", "a"],
    ["any key", "*", "a"],
    ["another key", "b", ""],
  ])("hears that %s may have room again", async (_which, woken, fed) => {
    await setAside(HOUR_MS);
    await feed({ woken: [woken] });
    expect(await letOut(1)).toBe(fed);
  });

  it("is tried with one job at a time, until two in a row went at once", async () => {
    await setAside(HOUR_MS);
    await feed({ woken: ["a"] });
    const probe = async (wentAtOnce: boolean): Promise<string> => {
      await feed({ probes: [["a", wentAtOnce]] });
      return letOut(3);
    };

    const fed = [await letOut(3)];
    for (const wentAtOnce of [true, false, true, true]) fed.push(await probe(wentAtOnce));

    expect(fed).toEqual(["a", "a", "a", "a", "aaa"]);
  });

  it("is not held to single jobs again by a late report of a probe", async () => {
    await enqueue("a", 6);

    await feed({
      probes: [
        ["a", true],
        ["a", false],
      ],
    });

    expect(await letOut(3)).toBe("aaa");
  });

  it("comes back five seconds later, should the worker have died that had its probe", async () => {
    await setAside(HOUR_MS);
    await feed({ woken: ["a"] });
    await letOut(1);

    const { nextMs } = await feed();

    expect(nextMs).toBeGreaterThan(0);
    expect(nextMs).toBeLessThanOrEqual(5_000);
  });

  it("has those told as probes that are let through alone, and no others", async () => {
    await setAside(HOUR_MS);
    const [other] = await enqueue("b", 1);
    await feed({ want: 1 });
    const apart = await feed({ arrived: [other!] });
    await feed({ want: 1, woken: ["a"] });
    const [probe] = await byHand.redis.lrange(keyOf("wait"), 0, 0);

    const alone = await feed({ arrived: [probe!, "came due by itself"] });

    expect(apart.arrivals).toEqual(["fed"]);
    expect(alone.arrivals).toEqual(["probe", "unfed"]);
  });

  it("lets jobs out whose time to start is over, so that they end", async () => {
    await setAside(HOUR_MS);
    const parked = await byHand.lanes.parked("jobs");
    await enqueue("a", 1, { startByMs: Date.now() + HOUR_MS });
    const [expired] = await enqueue("a", 1, { startByMs: Date.now() - 1 });

    await feed();

    expect(await fetchFed()).toEqual([expired]);
    expect(await byHand.lanes.parked("jobs")).toBe(parked + 1);
  });

  it("keeps a job whose time is over by Redis' clock alone, once its worker has sent it back", async () => {
    const [early] = await enqueue("a", 1, { startByMs: Date.now() - 1 });
    await fetchFed();

    await putBack(early!, { roomInMs: HOUR_MS });

    expect(await fetchFed()).toEqual([]);
    expect(await placeOf(early!)).toMatchObject({ in: "lane" });
  });

  it("keeps a job that has been tried, though its time to start is over", async () => {
    const [retried] = await enqueue("a", 1, { startByMs: Date.now() - 1 });
    await fetchFed();
    await byHand.redis.hset(keyOf(retried!), "atm", 1);

    await putBack(retried!, {});

    expect(await fetchFed()).toEqual([]);
  });
});
