import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { HOUR_MS, NO_KEY, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();
const { keyOf, enqueue, take, takeIds, takeKeys, putBack, placeOf } = byHand;

/** One of its jobs has come back; the lane of another key goes on. */
async function setAside(roomInMs: number): Promise<void> {
  const [first] = await enqueue("a", 9);
  await takeIds(1);
  await putBack(first!, { roomInMs });
}

describe("a lane whose key has no room", () => {
  it("is skipped for that time, and its remaining time is reported", async () => {
    await setAside(HOUR_MS);
    await enqueue("b", 3);

    const keys = await takeKeys(5);
    const { nextMs } = await take({ most: 1 });

    expect(keys).toBe("bbb");
    expect(nextMs).toBeGreaterThan(HOUR_MS - 60_000);
    expect(nextMs).toBeLessThanOrEqual(HOUR_MS);
    expect((await byHand.lanes.look({ queue: "jobs" })).lanes[0]!.asideMs).toBeGreaterThan(
      HOUR_MS - 60_000,
    );
  });

  it("delays no jobs without a key", async () => {
    await setAside(HOUR_MS);
    await enqueue(NO_KEY, 3);

    expect(await takeKeys(5)).toBe(NO_KEY.repeat(3));
  });

  it("is served again when that time is over", async () => {
    await setAside(1);

    let keys = "";
    await waitUntil(async () => (keys = await takeKeys(1)) !== "", "it is served");

    expect(keys).toBe("a");
  });

  it.each([
    ["its own key", "a", "a"],
    ["any key", "*", "a"],
    ["another key", "b", ""],
  ])("is notified that %s may have room again", async (_which, woken, taken) => {
    await setAside(HOUR_MS);
    await take({ woken: [woken] });
    expect(await takeKeys(1)).toBe(taken);
  });

  it("is tried with one job at a time, until two in a row started immediately", async () => {
    await setAside(HOUR_MS);
    await take({ woken: ["a"] });
    const probe = async (wentAtOnce: boolean): Promise<string> => {
      await take({ probes: [["a", wentAtOnce]] });
      return takeKeys(3);
    };

    const taken = [await takeKeys(3)];
    for (const wentAtOnce of [true, false, true, true]) taken.push(await probe(wentAtOnce));

    expect(taken).toEqual(["a", "a", "a", "a", "aaa"]);
  });

  it("gives only one job as a probe also to a worker that asks for many, beside others in their turn", async () => {
    await setAside(HOUR_MS);
    await enqueue("b", 2);

    const { jobs } = await take({ most: 10, woken: ["a"] });

    const came = jobs.map(({ id, arrival }) => `${id.split("-")[0]} ${arrival}`);
    expect(came.toSorted()).toEqual(["a probe", "b turn", "b turn"]);
  });

  it("is not limited to single jobs again by a late report of a probe", async () => {
    await enqueue("a", 6);

    await take({
      probes: [
        ["a", true],
        ["a", false],
      ],
    });

    expect(await takeKeys(3)).toBe("aaa");
  });

  it("returns a second later if no result of its probe arrives", async () => {
    await setAside(HOUR_MS);
    await take({ woken: ["a"] });
    await takeIds(1);

    const { nextMs } = await take({ most: 1 });

    expect(nextMs).toBeGreaterThan(0);
    expect(nextMs).toBeLessThanOrEqual(1_000);
  });
});

describe("jobs that have missed their deadline", () => {
  const expired = { startByMs: 1 };

  it("go to a worker immediately, in addition to its request, even from a skipped lane", async () => {
    await setAside(HOUR_MS);
    const parked = await byHand.parked();
    await enqueue("a", 1, { startByMs: Date.now() + HOUR_MS });
    const [late] = await enqueue("a", 1, expired);
    const [other] = await enqueue("b", 1);

    const { jobs } = await take({ most: 1, mostExpired: 5 });

    const came = Object.fromEntries(jobs.map(({ id, arrival }) => [id, arrival]));
    expect(came).toEqual({ [late!]: "expired", [other!]: "turn" });
    expect(await byHand.parked()).toBe(parked + 1);
  });

  it("are removed up to the requested number, and the reply says that there are more", async () => {
    await setAside(HOUR_MS);
    await enqueue("a", 5, expired);

    const seen = [];
    for (const mostExpired of [0, 2, 2, 2]) {
      const { jobs, isMoreDue } = await take({ mostExpired });
      seen.push([jobs.length, isMoreDue]);
    }

    expect(seen).toEqual([
      [0, true],
      [2, true],
      [2, true],
      [1, false],
    ]);
  });

  it("remove their lane if it has no other jobs", async () => {
    await enqueue("a", 2, { ...expired, weight: 3, share: 2 });

    await take({ mostExpired: 2 });

    expect(await byHand.kept()).toEqual(["lanes:state"]);
    expect(await byHand.parked()).toBe(0);
  });

  it("do not make a worker ask repeatedly while their queue is paused", async () => {
    await enqueue("a", 2, expired);
    await byHand.stored.pause();

    const { jobs, nextMs, isMoreDue } = await take({ most: 1, mostExpired: 5 });

    expect(jobs).toEqual([]);
    expect([nextMs, isMoreDue]).toEqual([undefined, false]);
  });

  it("stay in their lane after their worker returned them, if they are late only by Redis' clock", async () => {
    const [early] = await enqueue("a", 1, { startByMs: Date.now() - 1 });
    await take({ mostExpired: 1 });

    await putBack(early!, { roomInMs: HOUR_MS });

    expect((await take({ mostExpired: 1 })).jobs).toEqual([]);
    expect(await placeOf(early!)).toMatchObject({ in: "lane" });
  });

  it("wait for their turn when they have been tried", async () => {
    const [retried] = await enqueue("a", 1, expired);
    await take({ mostExpired: 1 });
    await byHand.redis.hset(keyOf(retried!), "atm", 1);

    await putBack(retried!, {});

    expect((await take({ mostExpired: 1 })).jobs).toEqual([]);
    expect((await take({ most: 1 })).jobs).toMatchObject([{ id: retried, arrival: "turn" }]);
  });
});

describe("a due job from a tool, with neither a key nor a priority", () => {
  it("goes to the next worker that fetches", async () => {
    const { id } = await byHand.stored.add("job", 0, { delay: 1 });
    await waitUntil(async () => Date.now() > (await dueAtMs(id!)), "it is due");

    const { jobs } = await take({ most: 1 });

    expect(jobs.map((job) => job.id)).toEqual([id]);
  });

  async function dueAtMs(id: string): Promise<number> {
    return Number(await byHand.redis.zscore(keyOf("delayed"), id)) / 4_096;
  }
});
