import { describe, expect, it } from "vitest";
import { HOUR_MS, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const byHand = lanesByHand();
const { keyOf, enqueue } = byHand;
const COUNTED = 100;

async function look(id?: string) {
  return byHand.lanes.look({ queue: "jobs", id, counted: COUNTED });
}

/** Stores jobs, and has a worker fetch them; it says that they wait unless told otherwise. */
async function fetched(
  worker: string,
  names: readonly string[],
  { share, forMs = HOUR_MS, isTold = true }: { share?: number; forMs?: number; isTold?: boolean },
): Promise<string[]> {
  const opts = { priority: 3, sluice: { share } };
  const jobs = await byHand.stored.addBulk(names.map((name) => ({ name, data: 0, opts })));
  const ids = jobs.map(({ id }) => id!);
  await byHand.redis.zrem(keyOf("prioritized"), ...ids);
  await byHand.redis.lpush(keyOf("active"), ...ids);
  await byHand.lanes.noteWorker({ queue: "jobs", worker, places: 1, forMs: HOUR_MS });
  if (isTold) await byHand.lanes.reportFetched({ queue: "jobs", worker, ids, forMs });
  return ids;
}

describe("fetched jobs that have not started", () => {
  it("are counted before jobs that are not fetched yet, with the workers in turns", async () => {
    const mine = await fetched("mine", ["job", "job", "job"], { share: 2 });
    const theirs = await fetched("theirs", ["job"], {});
    const { id: waiting } = await byHand.stored.add("job", 0, { priority: 3 });

    const places = [];
    for (const id of [mine[0], theirs[0], mine[1], mine[2], waiting])
      places.push((await look(id)).jobPosition);
    const { laneless, lanelessCalls } = await look();

    const before = places.map((place) => (place as { before: number }).before);
    expect(before.slice(0, 2).toSorted((a, b) => a - b)).toEqual([0, 1]);
    expect(before.slice(2)).toEqual([2, 3, 4]);
    expect(places[3]).toEqual({ in: "hand", key: undefined, before: 3, callsBefore: 5 });
    expect(places[4]).toEqual({ in: "queue", before: 4, callsBefore: 7 });
    expect({ laneless, lanelessCalls }).toEqual({ laneless: 5, lanelessCalls: 8 });
  });

  it("come before those in the lane of their key, if there is one", async () => {
    const parked = await enqueue("a", 2);
    const held = await fetched("w", ["key a", "key b", "key a"], { share: 3 });

    const first = await look(parked[0]);
    const last = await look(held[2]);

    expect(first.jobPosition).toEqual({ in: "lane", key: "a", before: 2, callsBefore: 6 });
    const { id: listed } = await byHand.stored.add("key b", 0, { priority: 3 });
    expect((await look(listed)).jobPosition).toEqual({
      in: "hand",
      key: "b",
      before: 1,
      callsBefore: 3,
    });
    expect((await look()).laneless).toBe(0);
    expect(last.jobPosition).toEqual({ in: "hand", key: "a", before: 1, callsBefore: 3 });
    expect(first.lanes.map(({ key, jobs, calls }) => [key, jobs, calls])).toEqual([
      ["a", 4, 8],
      ["b", 1, 3],
    ]);
    expect(first.others).toEqual({ lanes: 0, jobs: 0 });
    expect(first.laneless).toBe(0);
  });

  it("come before jobs of their key that have yet to join its lane, and then those in it", async () => {
    const [parked] = await enqueue("a", 1, { share: 2 });
    await fetched("w", ["key a"], { share: 5 });
    const listed = await byHand.store("a", 3, { share: 2 });
    const { id: keyless } = await byHand.stored.add("job", 0, { priority: 3 });

    const places = [];
    for (const id of [...listed, parked]) places.push((await look(id)).jobPosition);

    expect(places).toEqual([
      { in: "hand", key: "a", before: 1, callsBefore: 5 },
      { in: "hand", key: "a", before: 2, callsBefore: 7 },
      { in: "hand", key: "a", before: 3, callsBefore: 9 },
      { in: "lane", key: "a", before: 4, callsBefore: 11 },
    ]);
    expect((await look(keyless)).jobPosition).toMatchObject({ in: "queue", callsBefore: 0 });
  });

  it("run unless they are reported as held, or were fetched after a reported job of their key", async () => {
    const [before] = await fetched("w", ["job"], { isTold: false });
    const [held] = await fetched("w", ["job"], {});
    const [after, other] = await fetched("v", ["job", "key a"], { isTold: false });

    const places = [];
    for (const id of [before, held, after, other]) places.push((await look(id)).jobPosition);

    expect(places[0]).toEqual({ in: "worker" });
    expect(places[1]).toMatchObject({ in: "hand", before: 0 });
    expect(places[2]).toMatchObject({ in: "hand", before: 1 });
    expect(places[3]).toEqual({ in: "worker" });
  });

  it("are no longer reported once they ended, or once their worker reports none", async () => {
    const [ended, held] = await fetched("w", ["job", "job"], {});
    await byHand.redis.lrem(keyOf("active"), 1, ended!);

    const { laneless, jobPosition } = await look(held);
    await byHand.lanes.reportFetched({ queue: "jobs", worker: "w", ids: [], forMs: HOUR_MS });

    expect({ laneless, jobPosition }).toMatchObject({ laneless: 1, jobPosition: { before: 0 } });
    expect((await look(held)).jobPosition).toEqual({ in: "worker" });
    expect(await byHand.redis.keys(keyOf("lanes:held:*"))).toEqual([]);
  });

  it("are forgotten when their worker has not reported for its announced time", async () => {
    const [held] = await fetched("w", ["job"], { forMs: 1 });

    await waitUntil(async () => (await look(held)).jobPosition?.in === "worker", "it is forgotten");

    expect((await look()).laneless).toBe(0);
  });
});
