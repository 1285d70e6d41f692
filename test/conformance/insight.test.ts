import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, describe, expect, inject, it } from "vitest";
import {
  overrideOf,
  type BucketReport,
  type BucketActivity,
  type InsightStore,
} from "../../src/core/stores/insight/store.ts";
import type { NewBucketChange as NewChange } from "../../src/core/stores/insight/changes.ts";
import { createMemoryInsight } from "../../src/stores/memory/memory-insight.ts";
import { createRedisInsight } from "../../src/stores/redis/facts/insight.ts";

const redis = new Redis(inject("redisUrl"));
afterAll(() => redis.disconnect());

function openRedisInsight(): InsightStore {
  const send = async <T>(_bucket: string, run: () => Promise<T>): Promise<T> => run();
  return createRedisInsight(redis, `t${randomUUID()}`, { send, sendOnce: send });
}

const STATE: BucketActivity = {
  waiting: [0, 1, 2, 0],
  oldestMs: 7,
  startedIn10s: 3,
  limitedBy: "x|y",
};
const ABOUT = { host: "h|o", pid: 1, version: "1", startedAtMs: 5 };
const NAMES = ["api", "__proto__", "a|b", "\u001B[2J", "é".repeat(400)];
const CODE = { policy: "1/s", text: "code", source: "code" as const, pausedForMs: 0 };

function policyChange(text: string, facts: Partial<NewChange> = {}): NewChange {
  const after = {
    policy: text,
    text,
    source: text === "code" ? ("code" as const) : ("override" as const),
    pausedForMs: 0,
  };
  const nobody = { key: undefined, reason: undefined, forMs: undefined, undoes: undefined };
  return {
    ...nobody,
    bucket: "api",
    subject: "policy",
    action: "configure",
    by: "a|b",
    before: CODE,
    after,
    ...facts,
  };
}

function pauseChange(pausedForMs: number, by: string): NewChange {
  const subject = { subject: "pause", action: pausedForMs === 0 ? "resume" : "pause" } as const;
  return policyChange("code", { ...subject, by, after: { ...CODE, pausedForMs } });
}

/** Of ids by the time at which they were given, and their number in that. */
function newestFirst(a: string, b: string): number {
  const [aMs = 0, aNumber = 0] = a.split("-").map(Number);
  const [bMs = 0, bNumber = 0] = b.split("-").map(Number);
  return bMs - aMs || bNumber - aNumber;
}

describe.each([
  ["Redis", openRedisInsight],
  ["memory", () => createMemoryInsight()],
])("the facts about a fleet, in %s,", (_name, open) => {
  const reportOf = (replica: string, isLast = false, started = 3, refused = 2) => ({
    replica,
    about: ABOUT,
    isLast,
    buckets: NAMES.map((bucket) => ({ bucket, state: STATE, started, refused, declared: "p|q" })),
    queues: [],
    workers: undefined,
  });

  /** Notes a change, and confirms it in a generation. */
  async function make(insight: InsightStore, change: NewChange, generation: number) {
    const id = await insight.noteChange(change);
    await insight.confirmChange({ id, change, generation });
    return id;
  }

  async function inForce(insight: InsightStore, text: string) {
    const { by, generation, untilMs } = overrideOf(await insight.bucket("api"), text) ?? {};
    return { by, generation, isForATime: untilMs !== undefined };
  }

  it("include the reports of replicas until these expire", async () => {
    const insight = open();

    expect(await insight.report(reportOf("a"))).toEqual({ isNew: true, over: [] });
    expect(await insight.report(reportOf("a"))).toEqual({ isNew: false, over: [] });
    expect(await insight.report(reportOf("b"))).toMatchObject({ isNew: true });
    const { reports } = await insight.bucket("__proto__");
    expect(reports.map(({ replica }) => replica).toSorted()).toEqual(["a", "b"]);
    expect(reports[0]).toMatchObject({ ...STATE });
    expect(await insight.declared("__proto__")).toBe("p|q");
    expect(await insight.bucketNames({ after: "", limit: 9 })).toEqual({
      names: NAMES.toSorted(),
      errors: [],
    });
    expect((await insight.replicas()).map(({ replica }) => replica).toSorted()).toEqual(["a", "b"]);

    await insight.report(reportOf("a", true, 4));

    expect((await insight.bucket("a|b")).reports.map(({ replica }) => replica)).toEqual(["b"]);
    expect(await insight.replicas()).toMatchObject([{ ...ABOUT, replica: "b" }]);
    const { nowMs } = await insight.bucket("api");
    const minute = { fromMs: nowMs - 60_000, untilMs: nowMs + 60_000 };
    const points = await insight.history("\u001B[2J", minute);
    expect(points.reduce((total, { started }) => total + started, 0)).toBe(13);
    expect(points.reduce((total, { refused }) => total + refused, 0)).toBe(8);
    const later = { fromMs: nowMs + 60_000, untilMs: nowMs + 120_000 };
    expect(await insight.history("api", later)).toEqual([]);
  });

  it("include the waiting calls of all replicas, by rank and step", async () => {
    const insight = open();
    const waitedBy = async (callers: readonly number[], forMs: number): Promise<void> => {
      const [bucket] = reportOf("a", false, 0, 0).buckets as [BucketReport];
      const buckets = [{ ...bucket, waited: { callers, forMs } }];
      await insight.report({ ...reportOf("a"), buckets });
    };

    await waitedBy([0, 3, 0, 40], 20_000);
    await waitedBy([7, 0, 0, 1_000_000], 5_000);

    const { nowMs } = await insight.bucket("api");
    const points = await insight.history("api", { fromMs: nowMs - 40_000, untilMs: nowMs });
    const sums = [0, 1, 2, 3].map((rank) =>
      points.reduce((sum, { waiting }) => sum + (waiting[rank] ?? 0), 0),
    );
    // Callers on average over ten seconds, so 7 for 5 s are 3.5.
    for (const [rank, sum] of [3.5, 6, 0, 500_080].entries()) {
      expect(Math.abs(sums[rank]! - sum)).toBeLessThan(0.05);
    }
    expect(points.length).toBeGreaterThan(1);
    expect(points.length).toBeLessThan(5);
    expect(points.every(({ started, refused }) => started + refused === 0)).toBe(true);
  });

  it("include the open queues of replicas, and their workers until these end", async () => {
    const insight = open();
    const worker = { queue: "a|b", sinceMs: 5, running: 1, waiting: 2, concurrency: 9 };
    const unawaitJobs = (id: string) =>
      ({ ...worker, worker: id, state: "running", paused: false }) as const;
    const queues = NAMES.map((name) => ({
      name,
      bucket: `of ${name}`,
      declared: { hasCosts: true },
    }));
    await insight.report({
      ...reportOf("a"),
      queues,
      workers: [unawaitJobs("1"), unawaitJobs("2")],
    });
    await insight.report({ ...reportOf("b"), workers: [unawaitJobs("3")] });
    const workersNow = async () => (await insight.workers()).map((each) => each.worker).toSorted();

    const byName = NAMES.toSorted();
    const first = await insight.queues({ after: "", limit: 2 });
    const rest = await insight.queues({ after: byName[1]!, limit: 9 });
    expect([...first.queues, ...rest.queues].map(({ name }) => name)).toEqual(byName);
    expect(first.queues).toHaveLength(2);
    expect(await insight.queue("__proto__")).toEqual({
      name: "__proto__",
      bucket: "of __proto__",
      declared: { hasCosts: true },
    });
    expect(await insight.queue("missing")).toBeUndefined();
    expect(await insight.workers()).toContainEqual({ ...unawaitJobs("2"), replica: "a" });

    await insight.report({ ...reportOf("a"), workers: [unawaitJobs("2")] });
    await insight.report(reportOf("a"));
    expect(await workersNow()).toEqual(["2", "3"]);
    await insight.report({ ...reportOf("b"), workers: [] });
    expect(await workersNow()).toEqual(["2"]);
    await insight.report({ ...reportOf("a", true), workers: [] });

    expect(await workersNow()).toEqual([]);
    expect((await insight.queues({ after: "", limit: 9 })).queues).toHaveLength(NAMES.length);
  });

  it("contain the latest override, even if an earlier one was recorded later", async () => {
    const insight = open();
    const first = policyChange("first", { by: "ann", forMs: 60_000 });
    const second = policyChange("second", { by: "bob" });
    const ids = [await insight.noteChange(first), await insight.noteChange(second)];

    await insight.confirmChange({ id: ids[1]!, change: second, generation: 7 });
    expect(await inForce(insight, "second")).toMatchObject({ by: "bob", generation: 7 });
    expect(await inForce(insight, "first")).toMatchObject({ by: "ann", generation: undefined });
    await insight.confirmChange({ id: ids[0]!, change: first, generation: 8 });

    expect(await inForce(insight, "first")).toMatchObject({ by: "ann", isForATime: true });
    expect(await inForce(insight, "second")).toMatchObject({ by: undefined });
  });

  it("keep the active override while another one is recorded, and if that one fails", async () => {
    const insight = open();
    await make(insight, policyChange("mine", { by: "ann", forMs: 60_000 }), 5);

    const id = await insight.noteChange(policyChange("other"));
    await insight.noteChange(policyChange("code"));
    await insight.endOverride({ bucket: "api", id });

    expect(await inForce(insight, "mine")).toMatchObject({ by: "ann", isForATime: true });
    expect(await inForce(insight, "other")).toMatchObject({ by: undefined });
    await make(insight, policyChange("code"), 6);
    expect((await insight.bucket("api")).overrides).toEqual([]);
  });

  it("keep operators' changes in order, however many rules change at once", async () => {
    const insight = open();
    const byHand = await insight.noteChange(policyChange("mine", { by: "ann" }));
    const byRules = policyChange("ruled", { by: "rules", action: "rules" });
    const noting = Array.from({ length: 10_300 }, () => insight.noteChange(byRules));
    const ids = await Promise.all(noting);
    const last = await insight.noteChange(policyChange("last", { by: "bob" }));
    const later = await insight.noteChange(byRules);

    const all = await insight.changes({ bucket: "api", before: undefined, limit: 20_000 });

    const found = all.map(({ id }) => id);
    // Within one millisecond, what was changed by hand comes first.
    expect(found).toEqual(found.toSorted(newestFirst));
    expect(found).toEqual(expect.arrayContaining([later, last, ids.at(-1)]));
    expect(all.at(-1)).toMatchObject({ id: byHand, by: "ann" });
    expect(all.length).toBeLessThan(10_200);
    expect(new Set(found).size).toBe(all.length);
    const next = await insight.changes({ bucket: "api", before: last, limit: 2 });
    const at = found.indexOf(last);
    expect(next.map(({ id }) => id)).toEqual(found.slice(at + 1, at + 3));
  });

  it("list the expired overrides until these are removed", async () => {
    const insight = open();
    const id = await make(insight, policyChange("mine", { by: "ann", forMs: 1, reason: "|" }), 5);
    const endless = await make(insight, policyChange("its", { bucket: "a|b" }), 5);
    const fromMs = (await insight.bucket("api")).nowMs;
    while ((await insight.bucket("api")).nowMs < fromMs + 2);

    const { over } = await insight.report(reportOf("a"));

    expect(over).toMatchObject([{ bucket: "api", id, by: "ann", reason: "|", generation: 5 }]);
    await insight.endOverride(over[0]!);
    expect((await insight.report(reportOf("b"))).over).toEqual([]);
    expect((await insight.bucket("a|b")).overrides).toMatchObject([{ id: endless }]);
  });

  it("include the author of a bucket's latest pause", async () => {
    const insight = open();
    await make(insight, pauseChange(Infinity, "ann"), 5);
    await insight.noteChange(pauseChange(60_000, "bob"));
    expect((await insight.bucket("api")).pause).toMatchObject({ by: "ann" });
    await make(insight, pauseChange(0, "cem"), 4);
    expect((await insight.bucket("api")).pause).toMatchObject({ by: "ann" });

    await make(insight, pauseChange(0, "cem"), 6);

    expect((await insight.bucket("api")).pause).toBeUndefined();
  });

  it("list changes in pages, with their results and with endless times", async () => {
    const insight = open();
    const ids = [];
    for (const name of ["a|b", "api", "a|b", "a|b"]) {
      ids.push(await insight.noteChange({ ...pauseChange(Infinity, "ann"), bucket: name }));
    }
    await insight.amendChange({ bucket: "a|b", id: ids[0]! }, { failed: "no" });
    await insight.amendChange({ bucket: "a|b", id: ids[2]! }, { undoneBy: ids[3]! });

    const first = await insight.changes({ bucket: "a|b", before: undefined, limit: 2 });
    const second = await insight.changes({ bucket: "a|b", before: first[1]!.id, limit: 2 });

    expect([...first, ...second].map(({ id }) => id)).toEqual([ids[3], ids[2], ids[0]]);
    expect(first[0]).toMatchObject({ after: { pausedForMs: Infinity }, undoneBy: undefined });
    expect(first[1]).toMatchObject({ undoneBy: ids[3], failed: undefined });
    expect(second[0]).toMatchObject({ failed: "no" });
  });
});
