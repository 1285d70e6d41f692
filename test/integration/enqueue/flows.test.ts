import { expect, describe, inject, it } from "vitest";
import { Redis } from "ioredis";
import {
  Discard,
  InvalidOptionError,
  type EnqueueOptions,
  type JobContext,
  type Queue,
  type QueueOptions,
  type Sluice,
} from "sluice";
import { linkJobs } from "../../../src/queue/enqueue/parents.ts";
import { createFlows } from "../../../src/queue/manage/flows.ts";
import { createRedisFlows, createRedisJobs } from "../../../src/stores/redis/queue/store.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

interface Opened {
  readonly sluice: Sluice;
  readonly charges: Queue<string>;
  readonly reports: Queue<string>;
  /** The data of the jobs that ran, in order. */
  readonly runs: string[];
  /** The jobs whose handlers fail. */
  readonly failing: Set<string>;
  /** Starts a worker on each queue. */
  readonly work: () => void;
}

function open(options: Omit<QueueOptions<string>, "bucket"> = {}): Opened {
  const sluice = sluices.open();
  const bucket = sluice.bucket("b", { rate: "2000/s" });
  const charges = sluice.queue<string, unknown, string>("charges", { bucket, ...options });
  const reports = sluice.queue<string, unknown, string>("reports", { bucket, ...options });
  const runs: string[] = [];
  const failing = new Set<string>();
  const handle = async ({ data }: { data: string }, { parents }: JobContext) => {
    runs.push(data);
    if (failing.has(data)) throw new Error(`${data} is refused`);
    return { data, of: (await parents()).map(({ state, result }) => ({ state, result })) };
  };
  const work = (): void => {
    for (const queue of [charges, reports]) sluice.worker(queue, handle);
  };
  return { sluice, charges, reports, runs, failing, work };
}

const ONCE = { attempts: 1 } as const;
const EPOCH = "1970-01-01T00:00:00.000Z";

describe("job.flow()", () => {
  it("counts the parents and children of a job, and names the first of them", async () => {
    const { charges, reports, work, failing } = open();
    failing.add("bad");
    const good = await charges.enqueue("good", ONCE);
    const bad = await charges.enqueue("bad", ONCE);
    const late = await charges.enqueueMany(
      Array.from({ length: 30 }, (_, at) => `late ${at}`),
      { delayMs: 3_600_000 },
    );
    const options = { after: [good, bad, ...late], onParentFailure: "run" } as const;
    const child = await reports.enqueue("child", options);
    const grandchild = await charges.enqueue("grandchild", { after: [child] });
    work();

    await waitUntil(async () => (await child.flow()).ended.count === 2, "two parents have ended");

    const flow = await child.flow();
    expect(flow.ended.first).toEqual([
      { queue: "charges", id: good.id, state: "done" },
      { queue: "charges", id: bad.id, state: "failed" },
    ]);
    expect(flow.awaited.count).toBe(30);
    expect(flow.awaited.first.map(({ id }) => id)).toEqual(late.slice(0, 24).map(({ id }) => id));
    expect(flow.children).toEqual({
      count: 1,
      first: [{ queue: "charges", id: grandchild.id }],
    });
    expect((await late[0]!.flow()).children.count).toBe(1);
    const none = { count: 0, first: [] };
    expect(await grandchild.flow()).toMatchObject({ ended: none, children: none });
  });

  it("bounds the ended parents of a large group", async () => {
    const { charges, reports, work } = open();
    const { final } = await charges.enqueueGroup(
      Array.from({ length: 300 }, (_, at) => `item ${at} ${"x".repeat(80)}`),
      { then: { queue: reports, data: "final" }, open: true },
    );
    work();

    await waitUntil(async () => (await final.flow()).ended.count === 300, "all items are done");

    const { ended, awaited } = await final.flow();
    expect(ended.first).toHaveLength(24);
    expect(new Set(ended.first.map(({ state }) => state))).toEqual(new Set(["done"]));
    expect(awaited).toEqual({ count: 0, first: [] });
  });
});

describe("after", () => {
  it("starts a job once its parents in several queues have ended, and passes their results", async () => {
    const { charges, reports, runs, work } = open();
    const one = await charges.enqueue("one");
    const two = await reports.enqueue("two", { key: "acme", delayMs: 50 });
    const options = { after: [two, { queue: "charges", id: one.id }], key: "acme" } as const;
    const child = await reports.enqueue("child", { ...options, priority: "high" });
    const grandchild = await charges.enqueue("grandchild", { after: [child] });

    expect(await child.state()).toBe("delayed");
    expect(await child.explain()).toMatchObject({
      waitsFor: "parents",
      parents: { count: 2, first: [{ queue: "reports", id: two.id }, { queue: "charges" }] },
    });
    expect(await child.runNow()).toBe(false);
    expect(await child.eta()).toBe(undefined);

    work();
    await grandchild.finished();
    expect(runs.slice(0, 2).toSorted()).toEqual(["one", "two"]);
    expect(runs.slice(2)).toEqual(["child", "grandchild"]);
    expect(await child.finished()).toEqual({
      data: "child",
      of: [
        { state: "done", result: { data: "two", of: [] } },
        { state: "done", result: { data: "one", of: [] } },
      ],
    });
    expect(await reports.job(child.id)).toMatchObject({ queue: "reports", priority: "high" });
  });

  it("starts 800 children of one job in their order, and one child of 800 jobs", async () => {
    const { charges, reports, runs, work } = open();
    const root = await charges.enqueue("root");
    const names = Array.from({ length: 800 }, (_, index) => String(index));
    const jobs = await reports.enqueueMany(names, { after: [root] });
    const last = await charges.enqueue("last", { after: jobs });

    work();
    const { of } = await last.finished<{ of: readonly { result: { data: string } }[] }>();
    expect(runs).toHaveLength(802);
    expect(new Set(runs).size).toBe(802);
    expect(runs.at(-1)).toBe("last");
    expect(of.map(({ result }) => result.data)).toEqual(names);
    const moved = runs.slice(1, -1).map((name, index) => Math.abs(Number(name) - index));
    expect(Math.max(...moved)).toBeLessThan(600);
  });

  it("counts parents that have ended, and those that are no longer stored", async () => {
    const { charges, reports, work } = open({ keepDone: { count: 1 } });
    work();
    const gone = await charges.enqueue("gone", { id: "gone" });
    await gone.finished();
    const kept = await charges.enqueue("kept");
    await kept.finished();
    await waitUntil(
      async () => (await charges.job("gone")) === undefined,
      "the first job is forgotten",
    );

    const child = await reports.enqueue("child", { after: [gone, kept], key: "acme" });
    const alone = await reports.enqueue("alone", { after: [gone], delayMs: 1 });
    expect(await child.finished()).toMatchObject({
      of: [
        { state: "missing", result: undefined },
        { state: "done", result: { data: "kept" } },
      ].map((each) => JSON.parse(JSON.stringify(each)) as object),
    });
    expect(await alone.finished()).toEqual({ data: "alone", of: [{ state: "missing" }] });
  });

  it("counts delayMs and maxWaitMs from the end of the parents", async () => {
    const { charges, reports, work } = open();
    const parent = await charges.enqueue("parent", { delayMs: 300 });
    const after = { after: [parent], delayMs: 200, maxWaitMs: 250 };
    const child = await reports.enqueue("child", after);

    work();
    await child.finished();
    const ended = (await parent.state()) && (await charges.job(parent.id))!.endedAtMs!;
    const { startedAtMs, dueAtMs } = (await reports.job(child.id))!;
    expect(startedAtMs! - ended!).toBeGreaterThanOrEqual(199);
    expect(dueAtMs - ended!).toBeGreaterThanOrEqual(199);
  });

  it("keeps its dedupeId while it waits, and stores a job with an id once", async () => {
    const { charges, reports, runs, work } = open();
    const parent = await charges.enqueue("parent");
    const first = await reports.enqueue("child", { after: [parent], dedupeId: "d" });
    const second = await reports.enqueue("other", { after: [parent], dedupeId: "d" });
    const third = await reports.enqueue("own", { after: [parent], id: "own" });
    const again = await reports.enqueue("own", { after: [parent], id: "own" });

    expect([second.isNew, second.id, again.isNew]).toEqual([false, first.id, false]);
    work();
    await Promise.all([first.finished(), third.finished()]);
    expect(runs.toSorted()).toEqual(["child", "own", "parent"]);
  });

  it("waits for parents that are stored in the same call, also if the call is repeated", async () => {
    const { charges, runs, work } = open();
    const optionsOf = (data: string): EnqueueOptions => {
      if (data === "p") return { id: "p1", delayMs: 300 };
      const after = [{ queue: "charges", id: data === "c" ? "p1" : "c1" }];
      return { id: data === "c" ? "c1" : "below", after };
    };
    const given = await charges.enqueueMany(["c", "below", "p"], optionsOf);
    work();
    const job = await charges.enqueue("probe", { after: [{ queue: "charges", id: "below" }] });
    await job.finished();
    expect(given.map(({ id, data }) => [id, data])).toEqual([
      ["c1", "c"],
      ["below", "below"],
      ["p1", "p"],
    ]);
    expect(runs).toEqual(["p", "c", "below", "probe"]);

    const again = await charges.enqueueMany(["p", "new"], (data) =>
      data === "p" ? { id: "p1" } : { id: "new", after: [{ queue: "charges", id: "p1" }] },
    );
    expect(again.map(({ isNew }) => isNew)).toEqual([false, true]);
    expect(await again[1]!.finished()).toMatchObject({ of: [{ state: "done" }] });
  });

  it("counts jobs that wait for their parents in the backlog of their key", async () => {
    const { charges, reports, work } = open({ maxBacklog: { perKey: 2 } });
    const parent = await charges.enqueue("parent");
    const options = { after: [parent], key: "acme" };
    const children = await reports.enqueueMany(["1", "2"], options);
    const full = { code: "ERR_QUEUE_FULL", key: "acme", waiting: 2 };
    expect(await rejectionOf(reports.enqueue("3", options))).toMatchObject(full);
    expect(await rejectionOf(reports.enqueue("3", { key: "acme" }))).toMatchObject(full);

    work();
    await Promise.all(children.map((child) => child.finished()));
    await (await reports.enqueue("3", options)).finished();
  });

  it.each<readonly [string, unknown, unknown, boolean]>([
    ["nothing", undefined, undefined, false],
    ["null", null, undefined, false],
    ["a false value", false, false, false],
    ["an empty text", "", "", false],
    ["the text that marks long results", "!", "!", false],
    ["text of several lines", "a\nb \u2028\0", "a\nb \u2028\0", false],
    ["a value that JSON changes", { at: new Date(0), no: undefined }, { at: EPOCH }, false],
    ["a long result", "x".repeat(100_001), undefined, true],
    ["a result that is too long to store", "x".repeat(1_000_001), undefined, false],
    ["what JSON cannot hold", 1n, undefined, false],
    ["a function", () => 1, undefined, false],
  ])("passes %s to the child", async (_what, returned, result, isResultTooLong) => {
    const { sluice, charges, reports } = open();
    sluice.worker(charges, () => returned);
    sluice.worker(reports, (_job, { parents }) => parents());
    const parent = await charges.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });

    const [outcome] = await child.finished<readonly [{ result?: unknown }]>();

    expect(outcome).toMatchObject({ state: "done", isResultTooLong });
    expect(outcome.result).toEqual(result);
  });

  it("passes results to the handlers of batches", async () => {
    const { sluice, charges, reports, work } = open();
    const bucket = sluice.bucket("b");
    const batched = sluice.queue<string>("batched", { bucket });
    const parent = await charges.enqueue("parent");
    const [child] = await batched.enqueueMany(["1", "2"], { after: [parent] });
    sluice.worker(
      batched,
      async (jobs, { contexts }) => {
        const results = await Promise.all(contexts.map(({ parents }) => parents()));
        return jobs.map((_job, index) => results[index]!.map(({ result }) => result));
      },
      { batch: { size: 2 } },
    );
    work();
    expect(await child!.finished()).toEqual([{ data: "parent", of: [] }]);
    expect(await reports.counts()).toMatchObject({ waiting: 0 });
  });

  it("removes all its data from Redis together with the jobs", async () => {
    const { charges, reports, work } = open({ keepDone: { count: 0 }, keepFailed: { count: 0 } });
    const parent = await charges.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });
    const group = await charges.enqueueGroup(["1", "2"], { then: { queue: reports, data: "end" } });
    const lost = await charges.enqueue("lost", { delayMs: 60_000 });
    await reports.enqueue("never", { after: [lost] });
    const drained = await charges.enqueue("drained", { delayMs: 60_000 });
    await charges.enqueue("with it", { after: [drained] });

    work();
    await Promise.all([child.finished(), group.final.finished()]);
    await lost.cancel();
    await charges.drain();

    const redis = new Redis(inject("redisUrl"));
    const { prefix } = reports.stored;
    const left = async (pattern: string): Promise<number> => {
      const keys = await redis.keys(`${prefix}:${pattern}`);
      const ttls = await Promise.all(keys.map((key) => redis.pttl(key)));
      return ttls.filter((ms) => ms === -1 || ms > 60_000).length;
    };
    await waitUntil(async () => (await left("*:flow:*")) === 0, "no flow is left");
    await waitUntil(
      async () => (await redis.keys(`${prefix}:*}:[0-9]*`)).length === 0,
      "no job is left",
    );
    expect(await left("*:flow:*")).toBe(0);
    redis.disconnect();
  });
});

describe("onParentFailure", () => {
  it('fails, skips or runs a job with a failed parent; "fail" is the default', async () => {
    const { charges, reports, runs, failing, work } = open();
    failing.add("parent");
    const parent = await charges.enqueue("parent", { ...ONCE, id: "order 17" });
    const later = await charges.enqueue("later", { delayMs: 3_600_000 });
    const after = { after: [parent] };
    // Fails although its other parent has not ended.
    const fails = await reports.enqueue("fails", { after: [parent, later], ...ONCE });
    const below = await charges.enqueue("below", { after: [fails] });
    const skips = await reports.enqueue("skips", { ...after, onParentFailure: "skip" });
    const belowSkipped = await charges.enqueue("below skipped", { after: [skips] });
    const run = await reports.enqueue("runs", { ...after, onParentFailure: "run" });

    const ends = [fails, below, skips, belowSkipped].map((job) => rejectionOf(job.finished()));
    work();
    const why = `Parent failed: job ${parent.id} of queue "charges": parent is refused`;
    expect(await ends[0]).toMatchObject({ code: "ERR_JOB_FAILED", reason: why });
    expect(await ends[1]).toMatchObject({ code: "ERR_JOB_FAILED" });
    expect(await ends[2]).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    expect(await ends[3]).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    expect(await run.finished()).toEqual({ data: "runs", of: [{ state: "failed" }] });
    expect(runs.toSorted()).toEqual(["parent", "runs"]);
    expect(await skips.state()).toBe(undefined);
    // The same holds for jobs that are enqueued after the failure.
    const late = await reports.enqueue("late", after);
    expect(await rejectionOf(late.finished())).toMatchObject({ reason: why });
  });

  it("resumes the jobs below a dead letter once it is done after a replay", async () => {
    const { charges, reports, runs, failing, work } = open();
    failing.add("a").add("b");
    const [a, b] = await charges.enqueueMany(["a", "b"], ONCE);
    const child = await reports.enqueue("child", { after: [a!, b!], dedupeId: "d" });
    const below = await charges.enqueue("below", { after: [child] });
    work();
    await waitUntil(async () => (await charges.counts()).failed === 3, "the charges have failed");
    await waitUntil(async () => (await reports.counts()).failed === 1, "the report has failed");

    // The child comes first, but waits for its parents.
    failing.clear();
    expect(await reports.replay({})).toBe(0);
    expect(await charges.replay(a!.id)).toBe(1);
    await waitUntil(
      () => runs.filter((name) => name === "a").length === 2,
      "the replayed job has run",
    );
    expect(await child.state()).toBe("failed");
    await Promise.all([charges.pause(), reports.pause()]);
    expect(await charges.replay({})).toBe(1);
    expect([await child.state(), await below.state()]).toEqual(["delayed", "delayed"]);
    // The list of the children does not expire while they wait.
    const redis = new Redis(inject("redisUrl"));
    const { prefix, name } = charges.stored;
    for (const { id } of [a!, b!])
      expect(await redis.pttl(`${prefix}:${name}:flow:children:${id}`)).not.toBeGreaterThan(0);
    redis.disconnect();
    await Promise.all([charges.resume(), reports.resume()]);
    expect(await below.finished()).toMatchObject({ of: [{ state: "done" }] });
    expect(runs.toSorted()).toEqual(["a", "a", "b", "b", "below", "child"]);
    expect((await reports.job(child.id))!.attemptsMade).toBe(1);
  });

  it("runs a job at once that is replayed by its id", async () => {
    const { charges, reports, runs, failing, work } = open();
    failing.add("parent");
    const parent = await charges.enqueue("parent", ONCE);
    const child = await reports.enqueue("child", { after: [parent] });
    work();
    await waitUntil(async () => (await child.state()) === "failed", "the child has failed");

    expect(await reports.replay(child.id)).toBe(1);
    expect(await child.finished()).toMatchObject({ of: [{ state: "failed" }] });
    failing.clear();
    await charges.replay(parent.id);
    await parent.finished();
    await waitUntil(
      async () => (await charges.counts()).done === 1,
      "the replayed job is stored as done",
    );
    expect(runs).toEqual(["parent", "child", "parent"]);
  });
});

describe("cancel", () => {
  it("cancels the jobs below a waiting job, except those that run anyway", async () => {
    const { charges, reports, runs, work } = open();
    const parent = await charges.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });
    const below = await charges.enqueueMany(["1", "2", "3"], { after: [child] });
    const cleanup = await reports.enqueue("cleanup", { after: [parent], onParentFailure: "run" });

    expect(await parent.cancel()).toBe(true);
    for (const job of [child, ...below]) {
      expect(await job.state()).toBe(undefined);
      expect(await rejectionOf(job.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    }
    work();
    expect(await cleanup.finished()).toEqual({ data: "cleanup", of: [{ state: "cancelled" }] });
    expect(runs).toEqual(["cleanup"]);
    // A job that is enqueued after its parent was cancelled is cancelled as well.
    const late = await reports.enqueue("late", { after: [parent] });
    expect(await late.state()).toBe(undefined);
    expect(await rejectionOf(late.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    const [, lower] = await reports.enqueueMany(["late", "lower"], (data) =>
      data === "late"
        ? { id: "late", after: [parent] }
        : { after: [{ queue: "reports", id: "late" }] },
    );
    expect(await lower!.state()).toBe(undefined);
    const runsLate = { after: [parent], onParentFailure: "run" } as const;
    expect(await (await reports.enqueue("runs", runsLate)).finished()).toEqual({
      data: "runs",
      of: [{ state: "cancelled" }],
    });
  });

  it("cancels a job below a cancelled one also if its producer dies while it stores the job", async () => {
    const { charges, reports } = open();
    const parent = await charges.enqueue("parent");
    await parent.cancel();
    const redis = new Redis(inject("redisUrl"), { lazyConnect: true });
    const flows = createFlows(async () => createRedisFlows(redis, sluices.prefix()));
    const parts = { queue: "reports", flows, weightsOf: () => undefined };
    const { jobs } = await linkJobs(parts, [{ options: { id: "child", after: [parent] } }]);
    const job = { id: "child", name: "job", json: "1", opts: "{}", timestamp: 1, delay: 0 };
    const rest = { priority: 0, isParked: false, weights: undefined, dedupe: undefined };
    const added = { ...job, ...rest, keep: undefined, flow: jobs[0]!.flow };
    // The producer dies here, and does not call settle().
    const addJobs = createRedisJobs(redis, sluices.prefix()).addJobs;
    await addJobs({ queue: "reports", jobs: [added], most: undefined });

    expect(await reports.job("child")).toBe(undefined);
    expect(await reports.counts()).toMatchObject({ waiting: 0, delayed: 0 });
    redis.disconnect();
  });

  it("fails the jobs below a job that was cancelled while it ran, and a replay resumes them", async () => {
    const { sluice, charges, reports, runs } = open();
    let mayEnd = false;
    sluice.worker(charges, async (_job, { signal }) => {
      runs.push("parent");
      if (!mayEnd) await new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    sluice.worker(reports, () => void runs.push("child"));
    const parent = await charges.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });
    await waitUntil(() => runs.length === 1, "the job runs");

    await parent.cancel();
    const failed = await rejectionOf(child.finished());
    expect(failed).toMatchObject({ reason: expect.stringContaining("Cancelled:") as string });
    mayEnd = true;
    await charges.replay(parent.id);
    await child.finished();
    expect(runs).toEqual(["parent", "parent", "child"]);
  });

  it.each([
    ["drain", (queue: Queue<string>) => queue.drain()],
    ["removeJobs", (queue: Queue<string>) => queue.removeJobs({ key: "acme" })],
  ] as const)("cancels the jobs below those that %s removes", async (_name, remove) => {
    const { charges, reports } = open();
    const parents = await charges.enqueueMany(["1", "2"], { key: "acme" });
    const child = await reports.enqueue("child", { after: parents });

    expect(await remove(charges)).toBe(2);
    expect(await child.state()).toBe(undefined);
  });
});

describe("enqueueGroup", () => {
  it("runs the final job once, after all jobs that several processes and queues add", async () => {
    const { charges, reports, runs, work } = open();
    const other = open();
    work();
    const then = { queue: reports, data: "final", options: { key: "acme" } };
    const group = await charges.enqueueGroup(["0"], { then, open: true });
    await waitUntil(() => runs.includes("0"), "the first job has run");
    expect(await group.final.explain()).toMatchObject({ waitsFor: "parents", isGroupOpen: true });

    const names = Array.from({ length: 40 }, (_, index) => String(index + 1));
    await Promise.all(
      names.map((name, index) =>
        [group, other.reports.group(group.final)][index % 2]!.add([name], () => ({
          priority: "low",
        })),
      ),
    );
    await group.close();
    await group.close();
    const { of } = (await group.final.finished()) as { of: readonly { state: string }[] };
    expect(of).toHaveLength(41);
    expect(of.every(({ state }) => state === "done")).toBe(true);
    expect(runs).toHaveLength(42);
    expect(runs.at(-1)).toBe("final");
    expect(await rejectionOf(group.add(["late"]))).toMatchObject({
      code: "ERR_GROUP_CLOSED",
      queue: "reports",
      jobId: group.final.id,
    });
    expect(await charges.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it("runs the final job of an empty group, and is safe to repeat with ids", async () => {
    const { charges, runs, work } = open();
    const options = (data: string): EnqueueOptions => ({ id: `item-${data}` });
    const then = { data: "final", options: { id: "final" } };
    await charges.enqueueGroup([], { then: { data: "empty" } });
    await charges.enqueueGroup(["1", "2"], { then, options, open: true });
    work();
    await waitUntil(() => runs.includes("2") && runs.includes("empty"), "the jobs have run");
    const second = await charges.enqueueGroup(["1", "2", "3"], { then, options });
    await second.final.finished();
    const third = await charges.enqueueGroup(["1", "2", "3"], { then, options });

    expect(second.jobs.map(({ isNew }) => isNew)).toEqual([false, false, true]);
    expect(third.jobs).toEqual([]);
    expect(runs.toSorted()).toEqual(["1", "2", "3", "empty", "final"]);
  });

  it("does not wait for jobs whose add() was refused", async () => {
    const { charges, reports, work } = open({ maxBacklog: 3 });
    const group = await charges.enqueueGroup(["1"], {
      then: { queue: reports, data: "end" },
      open: true,
    });
    const add = (data: string[], options: EnqueueOptions = {}): Promise<unknown> =>
      rejectionOf(group.add(data, options));
    expect(await add(["2", "3", "4"])).toMatchObject({ code: "ERR_QUEUE_FULL" });
    const never = { queue: "charges", id: "99" };
    expect(await add(["2"], { after: [never] })).toMatchObject({ option: "after" });
    expect(await group.final.explain()).toMatchObject({ parents: { count: 1 } });
    await group.add(["5"]);
    await group.close();

    work();
    expect(await group.final.finished()).toMatchObject({
      of: [{ result: { data: "1" } }, { result: { data: "5" } }],
    });
  });

  it("follows onParentFailure of the final job, and a replay resumes it", async () => {
    const { charges, reports, runs, failing, work } = open();
    failing.add("2");
    const fails = await charges.enqueueGroup(["1", "2", "3"], {
      then: { queue: reports, data: "fails" },
      options: ONCE,
    });
    const run = await charges.enqueueGroup(["2"], {
      then: { queue: reports, data: "runs", options: { onParentFailure: "run" } },
      options: ONCE,
    });
    work();
    expect(await rejectionOf(fails.final.finished())).toMatchObject({ code: "ERR_JOB_FAILED" });
    expect(await run.final.finished()).toMatchObject({ of: [{ state: "failed" }] });
    failing.clear();
    await charges.replay({});
    await fails.final.finished();
    expect(runs.filter((name) => name === "fails")).toHaveLength(1);
    expect(runs.filter((name) => name === "runs")).toHaveLength(1);
  });
});

describe("jobs of one call that wait for others", () => {
  const afterIds = (...ids: string[]): Pick<EnqueueOptions, "after"> => ({
    after: ids.map((id) => ({ queue: "charges", id })),
  });

  it("are stored parents first, however they are listed and however many they are", async () => {
    const { charges } = open();
    const chain = Array.from({ length: 2_500 }, (_, index) => `link-${index}`);
    const optionsOf = (id: string): EnqueueOptions => {
      const number = Number(id.slice(5));
      return number === chain.length - 1 ? { id } : { id, ...afterIds(`link-${number + 1}`) };
    };

    const jobs = await charges.enqueueMany(chain, optionsOf);

    expect(jobs.map(({ id }) => id)).toEqual(chain);
    const [first] = (await charges.jobs({ state: "waiting" })).jobs;
    expect(first!.id).toBe("link-2499");
    expect(await charges.counts()).toMatchObject({ waiting: 1, delayed: 2_499 });
  });

  it("are refused with their names if they wait for each other, and nothing is stored", async () => {
    const { charges } = open();
    const parents: Readonly<Record<string, string>> = { a: "b", b: "c", c: "d", d: "b" };
    const call = charges.enqueueMany(Object.keys(parents), (id) => ({
      id,
      ...afterIds(parents[id]!),
    }));

    const error = await rejectionOf(call);

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "after", value: "b" });
    expect((error as Error).message).toContain('jobs "b", "c", "d" of this call wait for each');
    expect(await charges.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });
});

describe("bad input", () => {
  const { charges } = { charges: () => open().charges };
  const refused: readonly (readonly [
    string,
    string,
    (queue: Queue<string>) => Promise<unknown>,
  ])[] = [
    [
      "an id that no job has had",
      "after",
      (q) => q.enqueue("x", { after: [{ queue: "charges", id: "9" }] }),
    ],
    ["no array", "after", (q) => q.enqueue("x", { after: "1" as never })],
    [
      "a job without its queue",
      "after[0]",
      (q) => q.enqueue("x", { after: [{ id: "1" } as never] }),
    ],
    [
      "the job itself",
      "after",
      (q) => q.enqueue("x", { id: "me", after: [{ queue: "charges", id: "me" }] }),
    ],
    [
      "a parent in the same call that may not be stored",
      "after",
      (q) =>
        q.enqueueMany(["p", "c"], (data) =>
          data === "p" ? { id: "p", dedupeId: "d" } : { after: [{ queue: "charges", id: "p" }] },
        ),
    ],
    ["no parents", "onParentFailure", (q) => q.enqueue("x", { onParentFailure: "run" })],
    [
      "no such policy",
      "onParentFailure",
      (q) => q.enqueue("x", { after: [], onParentFailure: "retry" as never }),
    ],
    [
      "a debounced job",
      "dedupe",
      (q) => q.enqueue("x", { after: [], dedupeId: "d", dedupe: "again" }),
    ],
    ["a bounded key", "keep", (q) => q.enqueue("x", { after: [], key: "k", keep: "newest" })],
    ["a recurring job", "after", (q) => q.enqueue("x", { after: [], dedupeId: "d", every: 1_000 })],
    ["no final job", "then", (q) => q.enqueueGroup(["x"], {} as never)],
    [
      "a queue of none",
      "then.queue",
      (q) => q.enqueueGroup(["x"], { then: { queue: { name: "q" }, data: "" } }),
    ],
    [
      "a short time",
      "producerTimeoutMs",
      (q) => q.enqueueGroup(["x"], { then: { data: "" }, producerTimeoutMs: 9_999 }),
    ],
    ["no items", "items", (q) => q.enqueueGroup("x" as never, { then: { data: "" } })],
    [
      "a dedupeId",
      "dedupeId",
      (q) => q.enqueueGroup(["x"], { then: { data: "" }, options: () => ({ dedupeId: "d" }) }),
    ],
    [
      "a recurring final job",
      "every",
      (q) =>
        q.enqueueGroup(["x"], {
          then: { data: "", options: { dedupeId: "d", every: 1_000 } as never },
        }),
    ],
    ["no reference", "final", async (q) => q.group("17" as never)],
  ];

  it.each(refused)("refuses %s, and stores nothing", async (_what, option, act) => {
    const queue = charges();
    const error = await rejectionOf(act(queue));
    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option });
    expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
  });

  it.each([
    ["dedupeId", { dedupeId: "d" }],
    ["keep", { keep: "newest", key: "acme" }],
  ] as const)(
    "refuses the %s that a middleware gives to a job of a group",
    async (option, added) => {
      const { charges: queue } = open();
      queue.use({
        enqueue: ({ jobs }, next) =>
          next(jobs.map((job) => ({ ...job, options: { ...job.options, ...added } }))),
      });
      const act = queue.enqueueGroup(["1", "2"], { then: { data: "end" } });
      expect(await rejectionOf(act)).toMatchObject({ code: "ERR_INVALID_OPTION", option });
      expect(await queue.counts()).toMatchObject({ waiting: 0, delayed: 0 });
    },
  );

  it("refuses a group that does not exist", async () => {
    const queue = charges();
    const job = await queue.enqueue("plain");
    for (const id of ["never", job.id]) {
      const group = queue.group({ queue: "charges", id });
      expect(await rejectionOf(group.add(["x"]))).toMatchObject({ code: "ERR_GROUP_CLOSED" });
      expect(await rejectionOf(group.close())).toMatchObject({ code: "ERR_GROUP_CLOSED" });
    }
    expect(await queue.counts()).toMatchObject({ waiting: 1 });
  });

  it("fails a discarded job's children", async () => {
    const { sluice, charges: queue, reports } = open();
    sluice.worker(queue, () => new Discard("wrong address"));
    sluice.worker(reports, () => 1);
    const parent = await queue.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });
    expect(await rejectionOf(child.finished())).toMatchObject({
      reason: expect.stringContaining("wrong address") as string,
    });
  });
});

describe("a lost message", () => {
  it("releases a job although the end of its parent was never reported", async () => {
    const { sluice, charges, reports } = open();
    const redis = new Redis(inject("redisUrl"));
    const parent = await charges.enqueue("parent");
    const child = await reports.enqueue("child", { after: [parent] });
    const base = (queue: Queue<string>): string => `${queue.stored.prefix}:${queue.stored.name}:`;
    await redis.del(`${base(charges)}flow:children:${parent.id}`);
    sluice.worker(charges, () => "charged");
    await parent.finished();
    expect(await child.state()).toBe("delayed");

    await redis.zadd(`${base(reports)}flow:waiting`, 0, child.id);
    sluice.worker(reports, async (_job, { parents }) => parents());
    expect(await child.finished()).toMatchObject([{ state: "done", result: "charged" }]);
    redis.disconnect();
  });

  it("resumes a job that a worker was about to fail when its parent was done after a replay", async () => {
    const { sluice, charges, reports, failing } = open();
    const redis = new Redis(inject("redisUrl"));
    const base = (queue: Queue<string>): string => `${queue.stored.prefix}:${queue.stored.name}:`;
    const own = base(reports);
    failing.add("parent");
    sluice.worker(charges, ({ data }) => {
      if (failing.has(data)) throw new Error("refused");
    });
    const parent = await charges.enqueue("parent", ONCE);
    const child = await reports.enqueue("child", { after: [parent] });
    const isBlamed = async () => (await redis.hexists(`${own}${child.id}`, "sluice:blame")) === 1;
    await waitUntil(isBlamed, "the child is about to fail");
    await redis.zrem(`${own}delayed`, child.id);
    await redis.lpush(`${own}active`, child.id);

    failing.clear();
    await charges.replay(parent.id);
    await waitUntil(async () => {
      const ms = await redis.pttl(`${base(charges)}flow:children:${parent.id}`);
      return ms === -2 || (ms > 0 && ms <= 60_000);
    }, "the parent has notified the child");
    await redis.lrem(`${own}active`, 1, child.id);
    await redis.hset(`${own}${child.id}`, "finishedOn", Date.now(), "failedReason", "x");
    await redis.zadd(`${own}failed`, Date.now(), child.id);
    await redis.zadd(`${own}flow:waiting`, "XX", 0, child.id);
    const runs: string[] = [];
    sluice.worker(reports, ({ data }) => void runs.push(data));

    await waitUntil(() => runs.length === 1, "the child has run");
    expect(runs).toEqual(["child"]);
    redis.disconnect();
  });

  it("starts a job that has lost the list of its parents", async () => {
    const { sluice, charges, reports } = open();
    const redis = new Redis(inject("redisUrl"));
    const parent = await charges.enqueue("parent", { delayMs: 60_000 });
    const child = await reports.enqueue("child", { after: [parent] });
    const base = `${reports.stored.prefix}:${reports.stored.name}:`;
    await redis.del(`${base}flow:awaited:${child.id}`);

    await redis.zadd(`${base}flow:waiting`, 0, child.id);
    sluice.worker(reports, () => "reported");
    expect(await child.finished()).toBe("reported");
    redis.disconnect();
  });

  it("keeps the parents of a job that was enqueued again while its removal was reported", async () => {
    const { charges, reports } = open();
    const redis = new Redis(inject("redisUrl"));
    const parent = await charges.enqueue("parent", { delayMs: 60_000 });
    const options = { id: "again", after: [parent] };
    await reports.enqueue("child", options);
    await reports.remove("again");
    const child = await reports.enqueue("child", options);

    // The last step of the removal, which comes late.
    const flows = createRedisFlows(redis, sluices.prefix());
    await flows.forgetParents({ queue: "reports", ids: ["again"] });
    expect(await child.explain()).toMatchObject({ waitsFor: "parents", parents: { count: 1 } });
    redis.disconnect();
  });

  it.each([
    ["done", 1_001, { keepDone: { count: 0 } }],
    ["failed", 3, { keepFailed: { count: 0 } }],
  ] as const)(
    "removes %s jobs whose worker died before it notified children",
    async (state, count, keep) => {
      const { charges, reports, runs, failing, sluice, work } = open({
        keepDone: { count: 5_000 },
      });
      const redis = new Redis(inject("redisUrl"));
      const later = await reports.enqueue("later", { delayMs: 60_000 });
      const child = await reports.enqueue("child", { after: [later] });
      if (state === "failed") failing.add("parent");
      const data = Array.from({ length: count }, () => "parent");
      const parents = await charges.enqueueMany(data, ONCE);
      work();
      await waitUntil(async () => (await charges.counts())[state] === count, "all jobs have ended");
      await sluice.close();
      expect(runs).toHaveLength(count);
      const base = `${charges.stored.prefix}:${charges.stored.name}:`;
      for (const { id } of parents)
        await redis.zadd(`${base}flow:children:${id}`, 1, `reports:${child.id}`);
      await redis.hset(`${base}lanes:state`, "flows", 1);

      const next = open(keep);
      next.work();
      await waitUntil(
        async () => (await next.charges.counts())[state] === 0,
        "the jobs are removed",
      );
      expect(await redis.exists(`${base}${parents[0]!.id}`)).toBe(0);
      redis.disconnect();
    },
  );

  it.each([
    [undefined, 61_000],
    [10_000, 11_000],
  ])(
    "does not wait for jobs that a dead producer announced to a group and never stored, with a producerTimeoutMs of %s",
    async (producerTimeoutMs, sinceMs) => {
      const { sluice, charges, reports } = open();
      const redis = new Redis(inject("redisUrl"));
      const then = { queue: reports, data: "final" };
      const group = await charges.enqueueGroup(["1"], { then, producerTimeoutMs });
      const base = `${reports.stored.prefix}:${reports.stored.name}:`;
      const { id } = group.final;
      await redis.zadd(`${base}flow:awaited:${id}`, 9, "charges:999");
      await redis.hset(`${base}${id}`, "sluice:extended", Date.now() - sinceMs);
      await redis.zadd(`${base}flow:waiting`, 0, id);

      sluice.worker(charges, () => "charged");
      sluice.worker(reports, async (_job, { parents }) => parents());
      expect(await group.final.finished()).toMatchObject([{ state: "done" }]);
      redis.disconnect();
    },
  );
});
