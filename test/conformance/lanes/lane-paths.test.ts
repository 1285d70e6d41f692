import { describe, expect, it } from "vitest";
import { encodeKey } from "../../../src/core/key-path.ts";
import { HOUR_MS, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();
const { keyOf, enqueue, take, takeIds, putBack, kept } = byHand;

const path = (...names: string[]): string => encodeKey(names);
const ENDPOINTS = Array.from({ length: 50 }, (_, number) => path("acme", `e${number}`));

/** Takes so many jobs, one by one; the texts of their keys. */
async function takeTexts(count: number): Promise<string[]> {
  const texts: string[] = [];
  for (let n = 0; n < count; n++) {
    texts.push(...(await takeIds(1)).map((id) => id.slice(0, id.indexOf("-"))));
  }
  return texts;
}

/** The share of jobs that are of a path or below it. */
function of(texts: readonly string[], head: string): number {
  return texts.filter((text) => text === head || text.startsWith(`${head}\u001F`)).length;
}

describe("lanes of paths", () => {
  it("give a name one share of the turns, however many lanes are below it", async () => {
    for (const endpoint of ENDPOINTS) await enqueue(endpoint, 2);
    await enqueue("other", 20);

    const oneByOne = await takeTexts(20);
    const together = await takeIds(20);

    expect(of(oneByOne, "acme")).toBe(10);
    expect(together.filter((id) => id.startsWith("acme"))).toHaveLength(10);
  });

  it("take turns within their parent", async () => {
    for (const name of ["a", "b", "c"]) await enqueue(path("acme", name), 6);

    const texts = await takeTexts(9);

    for (const name of ["a", "b", "c"]) expect(of(texts, path("acme", name))).toBe(3);
  });

  it("take turns by weight, of first names and of what lies below one", async () => {
    await enqueue(path("acme", "a"), 30, { weight: [3, 2] });
    await enqueue(path("acme", "b"), 30, { weight: [3, 1] });
    await enqueue("other", 30);

    const texts = await takeTexts(24);

    expect(of(texts, "other")).toBe(6);
    expect(of(texts, path("acme", "a"))).toBe(12);
    expect(of(texts, path("acme", "b"))).toBe(6);
  });

  it("take turns at the third level as at the others", async () => {
    await enqueue(path("acme", "eu", "a"), 20);
    await enqueue(path("acme", "eu", "b"), 20);
    await enqueue(path("acme", "us", "c"), 20);
    await enqueue("other", 20);

    const texts = await takeTexts(24);

    expect(of(texts, "other")).toBe(12);
    expect(of(texts, path("acme", "us"))).toBe(6);
    expect(of(texts, path("acme", "eu", "a"))).toBe(3);
  });

  it("share the turns of their head with the head's own jobs, whichever came first", async () => {
    for (const [first, second] of [
      ["acme", path("acme", "a")],
      [path("zeta", "a"), "zeta"],
    ]) {
      await enqueue(first!, 12);
      await enqueue(second!, 12);
      await enqueue("other", 12);
      const texts = await takeTexts(12);

      expect(of(texts, "other")).toBe(6);
      expect([first, second].map((key) => texts.filter((text) => text === key).length)).toEqual([
        3, 3,
      ]);
      await takeIds(100);
    }
  });

  it("leave no state behind once their jobs are taken", async () => {
    for (const endpoint of ENDPOINTS) await enqueue(endpoint, 2, { weight: [2, 3], share: 2 });
    await enqueue("acme", 2);

    const ids = await takeIds(200);

    expect(ids).toHaveLength(102);
    expect(await kept()).toEqual(["lanes:state"]);
    expect(await byHand.redis.hgetall(keyOf("lanes:state"))).not.toHaveProperty("paths");
  });

  it("are separate from those of a name with the same beginning", async () => {
    await enqueue(path("acme", "a"), 4);
    await enqueue("acme_2", 4);
    await enqueue("acmea", 4);

    const texts = await takeTexts(6);

    expect(["acme", "acme_2", "acmea"].map((head) => of(texts, head))).toEqual([2, 2, 2]);
  });

  it("keep their head's weight while all of them are skipped", async () => {
    const [first] = await enqueue(path("acme", "a"), 30, { weight: [3, 1] });
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await enqueue("other", 30);
    const meanwhile = await takeTexts(2);
    await take({ woken: [path("acme", "a")] });
    for (let n = 0; n < 2; n++) {
      await takeIds(1);
      await take({ probes: [[path("acme", "a"), true]] });
    }

    const texts = await takeTexts(12);

    expect(of(meanwhile, "other")).toBe(2);
    expect(Math.abs(of(texts, "acme") - 9)).toBeLessThanOrEqual(1);
  });
});

describe("an endpoint that has no room", () => {
  it("delays no other endpoint of its tenant", async () => {
    const [first] = await enqueue(path("acme", "a"), 5);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await enqueue(path("acme", "b"), 5);

    const texts = await takeTexts(10);

    expect(texts).toEqual(Array.from({ length: 5 }, () => path("acme", "b")));
    expect((await take({ most: 1 })).nextMs).toBeGreaterThan(HOUR_MS - 60_000);
  });

  it("has its jobs tried again one at a time, while others of its tenant continue", async () => {
    const [first] = await enqueue(path("acme", "a"), 5);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS });
    await enqueue(path("acme", "b"), 3);

    const { jobs } = await take({ most: 10, woken: [path("acme", "a")] });

    const came = jobs.map(({ id, arrival }) => `${id.split("-")[0]!.slice(-1)} ${arrival}`);
    expect(came.toSorted()).toEqual(["a probe", "b turn", "b turn", "b turn"]);
  });
});

describe("a tenant that has no room", () => {
  /** One of its jobs has come back, since its tenant has none. */
  async function setAside(): Promise<void> {
    const [first] = await enqueue(path("acme", "a"), 5);
    await enqueue(path("acme", "b"), 5);
    await enqueue("acme", 2);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS, aside: "acme" });
  }

  it("makes all of its endpoints wait, including new ones, and no other tenant", async () => {
    await setAside();
    await enqueue(path("acme", "c"), 3);
    await enqueue("other", 3);

    expect(await takeTexts(5)).toEqual(["other", "other", "other"]);
  });

  it("is skipped in one step, however many endpoints it has", async () => {
    for (const endpoint of ENDPOINTS) await enqueue(endpoint, 1);
    const [first] = await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS, aside: "acme" });

    expect(await byHand.redis.zrange(keyOf("lanes:blocked"), 0, -1)).toEqual(["acme"]);
    expect(await takeIds(5)).toEqual([]);
  });

  it.each([
    ["itself", "acme", 1],
    ["any key", "*", 1],
    ["one of its endpoints", path("acme", "a"), 0],
  ])("is notified that %s may have room again", async (_which, woken, taken) => {
    await setAside();
    await take({ woken: [woken] });
    expect(await takeIds(3)).toHaveLength(taken);
  });

  it("is tried with one job at a time over all its endpoints, until two in a row started immediately", async () => {
    await setAside();
    await take({ woken: ["acme"] });
    const counts: number[] = [];
    const tryWith = async (wentAtOnce?: boolean): Promise<void> => {
      const of = path("acme", "b");
      if (wentAtOnce !== undefined) await take({ probes: [[of, wentAtOnce]] });
      counts.push((await takeIds(3)).length);
    };

    for (const wentAtOnce of [undefined, true, false, true, true]) await tryWith(wentAtOnce);

    expect(counts).toEqual([1, 1, 1, 1, 3]);
  });

  it("has not used up its turn, and neither has its endpoint", async () => {
    const [first] = await enqueue(path("acme", "a"), 3);
    await enqueue(path("acme", "b"), 3);
    await enqueue("other", 3);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS, aside: "acme" });

    await take({ woken: ["acme"] });

    expect(await takeTexts(1)).toEqual([path("acme", "a")]);
  });
});

describe("an earlier build, which knows no heads", () => {
  it("may remove a tenant from the order, which returns once no other tenant is pending", async () => {
    for (const name of ["a", "b"]) await enqueue(path("acme", name), 2);
    await byHand.redis.zrem(keyOf("lanes:ready"), "acme");

    expect(await takeTexts(4)).toHaveLength(4);
  });

  it("may put a lane of a path into the order of all: it is served, and removed", async () => {
    await enqueue(path("acme", "a"), 3);
    await byHand.redis.zadd(keyOf("lanes:ready"), 0, path("acme", "a"));
    await enqueue("other", 3);

    const texts = await takeTexts(4);

    expect(of(texts, "acme")).toBe(2);
    expect(await byHand.redis.zrange(keyOf("lanes:ready"), 0, -1)).toEqual(
      expect.arrayContaining(["acme", "other"]),
    );
  });

  it("may have taken jobs: their remaining entries in the order are skipped", async () => {
    const [id] = await enqueue(path("acme", "a"), 1);
    await enqueue(path("acme", "b"), 1);
    await byHand.redis.zrem(keyOf(`lanes:of:${path("acme", "a")}`), id!);
    await byHand.redis.hincrby(keyOf("lanes:state"), "parked", -1);

    expect(await takeTexts(2)).toEqual([path("acme", "b")]);
  });

  it("finds the lane of a one-name key in its earlier place", async () => {
    await enqueue("acme", 2, { weight: 3 });

    expect(await kept()).toEqual(["lanes:of:acme", "lanes:ready", "lanes:state", "lanes:weights"]);
    expect(await byHand.redis.zrange(keyOf("lanes:ready"), 0, -1, "WITHSCORES")).toEqual([
      "acme",
      "0",
    ]);
  });
});

describe("paths whose jobs are removed", () => {
  it("leave no state behind that would delay later jobs", async () => {
    const [first] = await enqueue(path("acme", "a"), 3, { weight: [2, 2], share: 2 });
    await enqueue(path("acme", "b", "c"), 3);
    await enqueue("acme", 3);
    await takeIds(1);
    await putBack(first!, { roomInMs: HOUR_MS, aside: "acme" });
    await byHand.stored.drain(true);

    await byHand.lanes.clear({ queue: "jobs" });

    expect(await kept()).toEqual(["lanes:state"]);
    await enqueue(path("acme", "a"), 1);
    expect(await takeTexts(1)).toEqual([path("acme", "a")]);
  });

  it("leave no state behind when they are removed one by one", async () => {
    const ids = [...(await enqueue(path("acme", "a"), 2)), ...(await enqueue("acme", 1))];
    ids.push(...(await enqueue(path("acme", "b"), 1, { weight: [3, 3] })));

    for (const id of ids) await byHand.lanes.remove({ queue: "jobs", state: "pending", ids: [id] });

    expect(await kept()).toEqual(["lanes:state"]);
  });
});

it("appear in lanes-look together with their parents", async () => {
  await enqueue(path("acme", "a"), 2, { weight: [3, 2] });
  const [first] = await enqueue(path("zeta", "b"), 2);
  await enqueue("zeta", 1);
  await takeIds(3);
  await putBack(first!, { roomInMs: HOUR_MS, aside: "zeta" });

  const { lanes, heads, others } = await byHand.lanes.look({ queue: "jobs" });

  const seen = lanes.map(({ key, weight }) => [key, weight]);
  expect(seen).toEqual(expect.arrayContaining([[path("zeta", "b"), 1]]));
  expect(heads.map(({ key }) => key)).toEqual(expect.arrayContaining(["zeta"]));
  expect(heads.find(({ key }) => key === "zeta")!.asideMs).toBeGreaterThan(HOUR_MS - 60_000);
  expect(others).toEqual({ lanes: 0, jobs: 0 });
});
