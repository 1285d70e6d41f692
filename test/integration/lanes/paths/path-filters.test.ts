import { describe, expect, it } from "vitest";
import type { Key, Queue, QueuedJob } from "sluice";
import { openLanes } from "../../../support/jobs/open-lanes.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

const lanes = openLanes();

/** Jobs of a tenant and of two of its endpoints, of a tenant whose name begins alike, and of none. */
const KEYS: readonly (Key | undefined)[] = [
  "acme",
  ["acme", "e1"],
  ["acme", "e1", "eu"],
  ["acme", "e2"],
  "acme-2",
  ["acme-2", "e1"],
  "acm",
  undefined,
];

async function openFilled(options: { delayMs?: number } = {}): Promise<Queue<number>> {
  const { queue } = lanes.open({ rate: "1000/s" });
  for (const [at, key] of KEYS.entries()) {
    await queue.enqueueMany([at, at], { key, ...options });
  }
  return queue;
}

async function keysOf(queue: Queue<number>): Promise<(Key | undefined)[]> {
  const { jobs } = await queue.jobs({ limit: 1_000 });
  return jobs.map(({ key }) => key);
}

const inOrder = (keys: readonly unknown[]): string[] =>
  keys.map((key) => JSON.stringify(key)).toSorted();

/** How many of them a filter means. */
const MEANT: readonly [Key, number][] = [
  ["acme", 8],
  [["acme"], 8],
  [["acme", "e1"], 4],
  [["acme", "e1", "eu"], 2],
  ["acme-2", 4],
  ["acm", 2],
  ["e1", 0],
  [["acme", "e"], 0],
];

describe("a filter by a key, or by a prefix of keys", () => {
  it.each(MEANT)("counts and lists the jobs of %j and below", async (key, meant) => {
    const queue = await openFilled();

    const listed = await queue.jobs({ key, state: "waiting" });
    const all = await queue.jobs({ key });

    expect(await queue.counts({ key })).toEqual({
      waiting: meant,
      active: 0,
      delayed: 0,
      done: 0,
      failed: 0,
    });
    expect([listed.jobs.length, all.jobs.length]).toEqual([meant, meant]);
    expect((await queue.forecast({ key })).waiting).toBe(meant);
  });

  it.each(MEANT)("also counts the delayed jobs of %j", async (key, meant) => {
    const queue = await openFilled({ delayMs: 60_000 });

    expect((await queue.counts({ key })).delayed).toBe(meant);
  });

  it("finds every job once, page by page", async () => {
    const queue = await openFilled();
    const ids: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await queue.jobs({ key: "acme", state: "waiting", limit: 3, cursor });
      ids.push(...page.jobs.map(({ id }) => id));
      ({ cursor } = page);
    } while (cursor !== undefined);

    expect(ids).toHaveLength(8);
    expect(new Set(ids).size).toBe(8);
  });

  it("drains only these jobs", async () => {
    const queue = await openFilled();

    expect(await queue.drain({ key: "acme" })).toBe(8);

    expect(inOrder(await keysOf(queue))).toEqual(
      inOrder([
        "acme-2",
        "acme-2",
        ["acme-2", "e1"],
        ["acme-2", "e1"],
        "acm",
        "acm",
        undefined,
        undefined,
      ]),
    );
  });

  it("removes and reschedules only these jobs", async () => {
    const queue = await openFilled();

    const moved = await queue.rescheduleJobs({ key: ["acme", "e1"] }, { delayMs: 60_000 });
    const removed = await queue.removeJobs({ key: ["acme", "e1", "eu"] });

    expect([moved, removed]).toEqual([4, 2]);
    expect((await queue.counts()).delayed).toBe(2);
    expect(await keysOf(queue)).toHaveLength(14);
  });

  it("lists, replays and purges only their dead letters", async () => {
    const { sluice, queue } = lanes.open({ rate: "1000/s" });
    for (const key of KEYS) await queue.enqueue(0, { key, attempts: 1 });
    let fails = true;
    const done: (Key | undefined)[] = [];
    sluice.worker(queue, async ({ key }) => {
      if (fails) throw new Error("away");
      done.push(key);
    });
    await waitUntil(async () => (await queue.counts()).failed === KEYS.length, "all have failed");
    fails = false;

    const failed = await queue.failed({ key: "acme" });
    const purged = await queue.purge({ key: ["acme", "e1"] });
    const replayed = await queue.replay({ key: "acme" });
    await waitUntil(() => done.length === 2, "they are done");

    expect(inOrder(failed.map(({ key }) => key))).toEqual(inOrder(KEYS.slice(0, 4)));
    expect([purged, replayed]).toEqual([2, 2]);
    expect(inOrder(done)).toEqual(inOrder(["acme", ["acme", "e2"]]));
  });
});

describe("a pause of a key, or of a prefix of keys", () => {
  async function doneWhilePaused(key: Key): Promise<(Key | undefined)[]> {
    const { sluice, queue } = lanes.open({ rate: "1000/s" });
    await queue.pause({ key });
    for (const each of KEYS) await queue.enqueue(0, { key: each });
    const done: (Key | undefined)[] = [];
    sluice.worker(queue, async (job) => void done.push(job.key));
    await waitUntil(
      async () => (await queue.counts()).active === 0 && done.length > 0,
      "some are done",
    );
    await waitUntil(async () => {
      const { jobs } = await queue.jobs({ state: "waiting" });
      const held = await queue.counts({ key });
      return jobs.length === held.waiting;
    }, "only the paused ones wait");
    return done;
  }

  it.each<[Key, number]>([
    ["acme", 4],
    [["acme", "e1"], 6],
    [["acme", "e1", "eu"], 7],
    ["acme-2", 6],
  ])("applies to the jobs of %j and below, and to no others", async (key, others) => {
    expect(await doneWhilePaused(key)).toHaveLength(others);
  });

  it("is reported as it was given, and ends by itself", async () => {
    const { sluice, queue } = lanes.open({ rate: "1000/s" });
    await queue.pause({ key: ["acme", "e1"] });
    await queue.pause({ key: "acme", forMs: 60_000 });
    const job = await queue.enqueue(0, { key: ["acme", "e1"] });
    sluice.worker(queue, async () => "done");
    await waitUntil(async () => (await queue.forecast()).workers === 1, "the worker is known");

    expect((await queue.paused()).map(({ key }) => key)).toEqual(["acme", ["acme", "e1"]]);
    expect((await job.eta())?.reason).toBe("key paused");
    await queue.resume({ key: "acme" });
    expect((await queue.forecast({ key: "acme" })).reason).toBe("key paused");
    await queue.resume({ key: ["acme", "e1"] });
    expect(await job.finished()).toBe("done");
  });

  it("takes back jobs that workers had fetched", async () => {
    const { sluice, queue } = lanes.open({ rate: "1/min", burst: 1 });
    await queue.enqueueMany([0, 1, 2], { key: ["acme", "e1"] });
    let begun = 0;
    sluice.worker(queue, async () => void (begun += 1));
    await waitUntil(() => begun === 1, "the first has begun");

    await queue.pause({ key: "acme" });

    await waitUntil(
      async () => (await queue.counts({ key: "acme" })).waiting === 2,
      "they are back",
    );
    expect(begun).toBe(1);
  });
});

describe("the key of a job", () => {
  it("is reported as it was given, in every place", async () => {
    const { sluice, queue } = lanes.open({ rate: "1000/s" });
    const key = ["acme", "e1"];
    const worker: unknown[] = [];
    const handled: unknown[] = [];
    const job = await queue.enqueue(0, { key });
    const [many] = await queue.enqueueMany([0], () => ({ key: ["acme", "e1", "eu"] }));
    const alone = await queue.enqueue(0, { key: ["acme"] });
    const found = (await queue.job(job.id)) as QueuedJob<number>;
    const running = sluice.worker(queue, async (given) => void handled.push(given.key));
    running.on("done", (event) => worker.push(event.job.key));
    await waitUntil(() => worker.length === 3, "all are done");

    expect([job.key, many!.key, alone.key, found.key]).toEqual([
      key,
      ["acme", "e1", "eu"],
      "acme",
      key,
    ]);
    for (const told of [handled, worker]) {
      expect(inOrder(told)).toEqual(inOrder([key, ["acme", "e1", "eu"], "acme"]));
    }
  });

  it.each([
    ["an empty path", []],
    ["four names", ["a", "b", "c", "d"]],
    ["an empty name", ["acme", ""]],
    ["a name of a megabyte", ["acme", "x".repeat(1_000_000)]],
    ["a control character", ["acme", "a\u001Fb"]],
    ["a number", ["acme", 7]],
    ["a path in a path", ["acme", ["e1"]]],
  ])("is refused when it is %s, and nothing is stored", async (_what, key) => {
    const { queue } = lanes.open({ rate: "1000/s" });
    const calls: readonly [string, () => Promise<unknown>][] = [
      ["enqueue()", () => queue.enqueue(0, { key: key as Key })],
      ["enqueueMany()", () => queue.enqueueMany([0], { key: key as Key })],
      ["counts()", () => queue.counts({ key: key as Key })],
      ["drain()", () => queue.drain({ key: key as Key })],
      ["pause()", () => queue.pause({ key: key as Key })],
      ["resume()", () => queue.resume({ key: key as Key })],
      ["failed()", () => queue.failed({ key: key as Key })],
      ["replay()", () => queue.replay({ key: key as Key })],
      ["purge()", () => queue.purge({ key: key as Key })],
      ["jobs()", () => queue.jobs({ key: key as Key })],
      ["removeJobs()", () => queue.removeJobs({ key: key as Key })],
      ["rescheduleJobs()", () => queue.rescheduleJobs({ key: key as Key }, { delayMs: 1 })],
      ["forecast()", () => queue.forecast({ key: key as Key })],
    ];

    for (const [where, call] of calls) {
      const error = await rejectionOf(call());
      expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
      expect(String(error)).toContain(`${where}: option "key`);
    }
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
    expect(await queue.paused()).toEqual([]);
  });

  it("may have any name: paths and plain names never collide", async () => {
    const { queue } = lanes.open({ rate: "1000/s" });
    const keys: Key[] = [
      ["a", "b"],
      "a/b",
      "a:b",
      ["a:b"],
      "__proto__",
      ["__proto__", "x"],
      "{a}",
      "a b",
    ];
    for (const key of keys) await queue.enqueue(0, { key });

    const counts = await Promise.all(
      keys.map(async (key) => (await queue.counts({ key })).waiting),
    );

    expect(counts).toEqual([1, 1, 2, 2, 2, 1, 1, 1]);
  });
});
