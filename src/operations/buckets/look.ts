/** Operations that show buckets. */
import * as z from "zod";
import type { Overview } from "../../insight/overview.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { BudgetState } from "../../throttle/bucket/budgets.ts";
import type { BucketStatus } from "../../throttle/bucket/facts/status.ts";
import {
  busiestKeys,
  everyPage,
  MOST_FORECASTS,
  ORDERS,
  PAGE,
  queuedByBucket,
  totalsOf,
  type Totals,
  waitingJobs,
} from "../facts.ts";
import { KEY, limitField, NAME, agoField } from "../fields.ts";
import { operation, type Door } from "../operation.ts";
import {
  BRIEF,
  BUDGET,
  COUNT,
  LANES,
  list,
  NUMBER,
  object,
  REPLICA,
  STATUS,
  TEXT,
  TOTALS,
} from "../shapes.ts";
import {
  lacksOf,
  reasonsOf,
  showBucket,
  showBuckets,
  showBudgets,
  type AllBuckets,
  counted,
  duration,
  factLines,
  keyText,
  perSecond,
} from "../text.ts";
import { BUCKET, MEMBER_FIELD, LOOK, OF_TARGET, IN_SCOPE, targetOf } from "./shared.ts";

export const overview = operation({
  ...LOOK,
  name: "overview",
  target: "all",
  summary: "Totals of all buckets, and the processes that use them",
  input: z.strictObject({}),
  answers: "The totals.",
  output: TOTALS,
  privacy: IN_SCOPE,
  async run({ facts, caller: { mayBucket, mayQueue } }) {
    const snapshot = await facts.look();
    const unreachable = snapshot.unreachable.filter(
      ({ bucket }) => bucket === undefined || mayBucket(bucket),
    );
    const buckets = snapshot.buckets.filter(({ name }) => mayBucket(name));
    const queued = queuedByBucket(snapshot, await facts.queued(), mayQueue);
    return totalsOf({ ...snapshot, unreachable }, buckets, queued);
  },
  http: { path: "GET /api/v1/overview", tag: "facts" },
  cli: {
    command: "overview",
    examples: ["sluice overview --json | jq .waiting"],
    show: (totals: Totals) => [
      ...factLines(
        [
          ["buckets", `${totals.buckets}, ${totals.paused} paused, ${totals.cooling} cooling down`],
          [
            "pending calls",
            totals.waiting === 0
              ? "0"
              : `${totals.waiting}, the oldest for ${duration(totals.oldestMs)}`,
          ],
          ["pending jobs", String(totals.queuedJobs)],
          [
            "rate",
            `${perSecond(totals.actualPerSecond)} of ${perSecond(totals.capPerSecond)} calls/s`,
          ],
          ["overrides", String(totals.overrides)],
          ["processes", String(totals.replicas.length)],
        ],
        15,
      ),
      ...lacksOf(totals),
    ],
  },
});

export const replicas = operation({
  ...LOOK,
  name: "replica.list",
  target: "all",
  summary: "The processes that use buckets",
  input: z.strictObject({}),
  answers: "The processes that reported in the last 90 seconds.",
  output: object({ replicas: list(REPLICA) }),
  privacy: { names: "of processes", data: "never" },
  run: async ({ sluice }) => {
    const { replicas: found } = await sluice.overview({ limit: 1, brief: true });
    return { replicas: found };
  },
  http: { path: "GET /api/v1/replicas", tag: "facts" },
  cli: {
    command: "replicas",
    examples: ["sluice replicas"],
    result: ({ replicas: found }) => found,
    show(found: Overview["replicas"]) {
      if (found.length === 0) return "No process has reported in the last 90 seconds.";
      const rows = found.map(({ replica, host, pid, version, startedAtMs }) => [
        replica,
        host,
        String(pid),
        version,
        new Date(startedAtMs).toISOString(),
      ]);
      return [{ heads: ["replica", "host", "pid", "version", "started"], rows }];
    },
  },
});

export const buckets = operation({
  ...LOOK,
  name: "bucket.list",
  target: "all",
  summary: "A page of the buckets",
  input: z.strictObject({
    search: NAME.optional().describe("Part of the name."),
    sort: z
      .enum(Object.keys(ORDERS) as [keyof typeof ORDERS])
      .default("name")
      .describe("The figure to sort by, the highest first."),
    offset: z.int().min(0).default(0).describe("The number of buckets before the page."),
    limit: limitField(50, 200),
    recent: z
      .boolean()
      .optional()
      .describe("Adds the calls per second of the last ten minutes, in steps of ten seconds."),
  }),
  answers: "The page, and the number of all buckets.",
  output: object({
    atMs: NUMBER,
    total: COUNT,
    buckets: list(BRIEF),
    queuedJobs: {
      type: "object",
      additionalProperties: COUNT,
      description: "The due jobs that have not started, by the bucket of their queues.",
    },
    "recent?": { type: "object", additionalProperties: list(NUMBER) },
  }),
  privacy: IN_SCOPE,
  async run({ facts, caller }, { search = "", sort, offset, limit, recent }) {
    const { buckets: all, atMs, queues } = await facts.look();
    const wanted = search.toLowerCase();
    const found = all.filter(
      ({ name }) => name.toLowerCase().includes(wanted) && caller.mayBucket(name),
    );
    const by = ORDERS[sort];
    const page = found.toSorted((a, b) => by(b) - by(a)).slice(offset, offset + limit);
    const rows = await facts.refreshed(page, atMs);
    const byBucket = queuedByBucket({ queues }, await facts.queued(), caller.mayQueue);
    const queuedJobs = Object.fromEntries(
      rows.flatMap(({ name }) => (byBucket.has(name) ? [[name, byBucket.get(name)!]] : [])),
    );
    const answer = { atMs, total: found.length, buckets: rows, queuedJobs };
    return recent === true ? { ...answer, recent: await facts.recent(page) } : answer;
  },
  http: { path: "GET /api/v1/buckets", tag: "facts" },
  cli: {
    command: "buckets",
    about: "all buckets: their caps, actual rates, pending calls, and what these wait for",
    examples: ["sluice buckets --json | jq '.buckets[].name'"],
    hidden: ["search", "sort", "offset", "limit", "recent"],
    run: allBuckets,
    show: showBuckets,
  },
});

export const bucket = operation({
  ...LOOK,
  name: "bucket.look",
  target: "bucket",
  summary: "One bucket: its limits, its pending calls, and who set its policy",
  input: z.strictObject(BUCKET),
  answers: "The bucket.",
  output: STATUS,
  privacy: OF_TARGET,
  run: async (context, { bucket: name }) => (await context.bucket(name)).status(),
  http: { path: "GET /api/v1/buckets/:bucket", tag: "facts" },
  cli: {
    command: "bucket <name>",
    args: ["bucket"],
    examples: ["sluice bucket stripe"],
    run: async (door, { bucket: name }, { perform }) => ({
      ...((await perform()) as BucketStatus),
      jobs: await jobsOf(door, String(name)),
    }),
    show: showBucket,
  },
});

interface Reasons {
  readonly reasons: readonly string[];
  readonly budgets?: readonly BudgetState[];
}

export const why = operation({
  ...LOOK,
  name: "bucket.why",
  target: "bucket",
  summary: "Why calls of a bucket wait, since when, and who caused it",
  input: z.strictObject({ ...BUCKET, key: KEY, member: MEMBER_FIELD }),
  answers:
    "The reasons, the strongest first, the jobs that wait for the bucket, and the budgets of the bucket, and of each level of the key or of the member.",
  output: object({
    bucket: TEXT,
    reasons: list(TEXT),
    jobs: list({ type: "object" }),
    "budgets?": list(BUDGET),
  }),
  privacy: OF_TARGET,
  async run(context, { bucket: name, key, member }) {
    const found = await context.bucket(name);
    const [status, jobs] = await Promise.all([found.status(), jobsOf(context, name)]);
    const isOfBucket = key === undefined && member === undefined;
    const budgets = isOfBucket ? status.budgets : await found.budgets(targetOf({ key, member }));
    const reasons = reasonsOf({ ...status, budgets }, jobs);
    return { bucket: name, reasons, jobs, ...(budgets !== undefined && { budgets }) };
  },
  http: { path: "GET /api/v1/buckets/:bucket/why", tag: "facts" },
  cli: {
    command: "why <name> [job]",
    args: ["bucket"],
    about:
      "why calls of a bucket wait, since when, and who caused it; or why a job of a queue waits",
    examples: ["sluice why stripe", "sluice why llm --key acme", "sluice why charges order-17"],
    show({ reasons, budgets = [] }: Reasons, asked) {
      const isEmpty = budgets.length === 0 && !["key", "member"].some((name) => name in asked);
      return isEmpty ? reasons : [...reasons, "", ...[showBudgets(budgets, asked)].flat()];
    },
  },
});

export const keys = operation({
  ...LOOK,
  name: "bucket.keys",
  target: "bucket",
  summary: "The keys with the most pending jobs, over all queues of a bucket",
  input: z.strictObject(BUCKET),
  answers: "Up to 20 keys, those with the most jobs first, and the number of all keys.",
  output: object({ lanes: LANES, totalLanes: COUNT, lanesInAll: COUNT }),
  privacy: OF_TARGET,
  async run({ sluice, facts, caller }, { bucket: name }) {
    return busiestKeys(sluice, (await facts.queuesOf(name)).filter(caller.mayQueue));
  },
  http: { path: "GET /api/v1/buckets/:bucket/keys", tag: "queues" },
  cli: {
    command: "keys <name>",
    args: ["bucket"],
    about:
      "the keys with the most pending jobs, over all queues of a bucket; sluice why says why they wait",
    examples: ["sluice keys stripe"],
    show({ lanes, totalLanes }: Awaited<ReturnType<typeof busiestKeys>>) {
      if (lanes.length === 0) return "No pending job has a key.";
      const rows = lanes.map(({ key, jobs, weight, blockedForMs }) => [
        keyText(key),
        String(jobs),
        String(weight),
        blockedForMs === 0 ? "-" : duration(blockedForMs),
      ]);
      const heads = ["key", "pending jobs", "weight", "blocked for"];
      return [{ heads, rows }, `${lanes.length} of ${counted(totalLanes, "key")}`];
    },
  },
});

export const history = operation({
  ...LOOK,
  name: "bucket.history",
  target: "bucket",
  summary:
    "Started, refused and pending calls of a bucket, in steps of ten seconds, for up to 24 hours",
  input: z.strictObject({
    ...BUCKET,
    sinceMs: agoField(
      "since",
      "The beginning, in ms since 1970. Defaults to the oldest step.",
      "the start, such as 2h for two hours ago; defaults to 24h",
    ),
    untilMs: agoField(
      "until",
      "The end, in ms since 1970. Defaults to now.",
      "the end, such as 1h for an hour ago; defaults to now",
    ),
  }),
  answers: "The steps in which calls started or waited, the oldest first.",
  output: object({
    stepMs: NUMBER,
    points: list(
      object({
        atMs: NUMBER,
        started: NUMBER,
        refused: NUMBER,
        waiting: {
          type: "object",
          additionalProperties: NUMBER,
          description: "The average number of pending calls in the step, by priority.",
        },
      }),
    ),
  }),
  privacy: OF_TARGET,
  run: async (context, { bucket: name, ...span }) => (await context.bucket(name)).history(span),
  http: { path: "GET /api/v1/buckets/:bucket/history", tag: "facts" },
  cli: {
    command: "history <name>",
    args: ["bucket"],
    examples: ["sluice history stripe --since 1h"],
    show({ points }: Awaited<ReturnType<Bucket["history"]>>) {
      if (points.length === 0) return "No call started or waited in this time.";
      const rows = points.map(({ atMs, started, refused, waiting }) => [
        new Date(atMs).toISOString(),
        String(started),
        String(refused),
        perSecond(Object.values(waiting).reduce((sum, callers) => sum + callers, 0)),
      ]);
      return [{ heads: ["from", "started", "refused", "pending"], rows }];
    },
  },
});

/** Returns the waiting jobs of a bucket, in the queues that the caller may see. */
async function jobsOf({ sluice, facts, caller }: Door, name: string) {
  return waitingJobs(sluice, (await facts.queuesOf(name)).filter(caller.mayQueue));
}

/** Reads all pages of buckets, with the state of each limit. */
export async function allBuckets(door: Pick<Door, "sluice">): Promise<AllBuckets> {
  const { sluice } = door;
  const {
    buckets: all,
    unreachable,
    ...first
  } = await everyPage((after) => sluice.overview({ limit: PAGE, after }));
  const behind = [...new Set(first.queues.map((queue) => queue.bucket))].slice(0, MOST_FORECASTS);
  const jobs = await Promise.all(
    behind.map(async (name) => {
      const own = first.queues.filter((queue) => queue.bucket === name);
      const names = own.map((queue) => queue.name);
      return [name, await waitingJobs(sluice, names)] as const;
    }),
  );
  return { buckets: all, unreachable, replicas: first.replicas, jobs: Object.fromEntries(jobs) };
}
