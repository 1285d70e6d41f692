/** Operations that show and change buckets. */
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import type { PolicyOptions } from "../core/policy/policy.ts";
import type { Overview } from "../insight/overview.ts";
import type { Bucket } from "../throttle/bucket.ts";
import type { BucketState } from "../throttle/bucket/bucket-state.ts";
import type {
  BudgetBackup,
  BudgetState,
  GrantOptions,
  Restored,
} from "../throttle/bucket/budgets.ts";
import type { BucketStatus } from "../throttle/bucket/facts/status.ts";
import type { KeyOptions } from "../throttle/bucket/live-control.ts";
import { assertUndone } from "./changes.ts";
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
} from "./facts.ts";
import {
  BY_HAND,
  FOR_MS,
  GENERATION,
  KEY,
  limitField,
  NAME,
  PAUSE_FORM,
  PAUSING,
  POLICY,
  PREVIEW,
  RESUME_FORM,
  RESUMING,
  agoField,
} from "./fields.ts";
import {
  operation,
  type AnyOperation,
  type CommandLine,
  type Context,
  type Door,
} from "./operation.ts";
import {
  BRIEF,
  BUDGET,
  CHANGE,
  COUNT,
  LANES,
  list,
  NUMBER,
  object,
  REPLICA,
  STATUS,
  TEXT,
  TOTALS,
} from "./shapes.ts";
import {
  lacksOf,
  reasonsOf,
  showBucket,
  showBuckets,
  showBudgets,
  showPreview,
  type AllBuckets,
  type CodePreview,
  type Preview,
  counted,
  duration,
  factLines,
  keyText,
  perSecond,
} from "./text.ts";

const BUCKET = { bucket: NAME.describe("The bucket.") };
const MEMBER_FIELD = z.string().optional().describe("The member of a pool, in place of a key.");
const LOOK = { needs: "view", undoable: false } as const;
const OF_TARGET = { names: "of the target", data: "never" } as const;
const IN_SCOPE = { names: "in the scope", data: "never" } as const;

const FAIR_OPTION = [
  "--fair <turns...>",
  "how keys take turns: weights.gold=2, floors.small=20/s, critical=0.5; on for equal turns, off for none",
] as const;

const overview = operation({
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

const replicas = operation({
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

const buckets = operation({
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

const bucket = operation({
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

const why = operation({
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

const keys = operation({
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

const history = operation({
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

const preview = operation({
  ...LOOK,
  name: "bucket.preview",
  target: "bucket",
  summary: "What another policy or a pause would do to pending calls",
  input: z.strictObject({ ...BUCKET, ...PREVIEW }),
  answers: "The bucket now, and after the change.",
  output: object({ now: { type: "object" }, after: { type: "object" } }),
  privacy: OF_TARGET,
  run: async (context, { bucket: name, ...change }) =>
    (await context.bucket(name)).preview(changeOf(change)),
  http: { path: "POST /api/v1/buckets/:bucket/preview", tag: "steering" },
  cli: {
    command: "preview <name>",
    args: ["bucket"],
    about: "what a rate or a pause would do to pending calls and jobs; changes nothing",
    examples: ["sluice preview stripe --rate 20/s"],
    ...readsPreview(),
    run: (door, { bucket: name, policy, pausedForMs }) =>
      previewOf(door, String(name), changeOf({ policy, pausedForMs } as PreviewGiven)),
    show: showPreview,
  },
});

/** The command line prints the bucket after the change. */
const AFTERWARDS: Pick<CommandLine<{ readonly status: unknown }>, "args" | "result" | "show"> = {
  args: ["bucket"],
  result: ({ status }) => status,
  show({ name, policy, source, pausedForMs, generation }: BucketStatus) {
    const paused = pausedForMs === 0 ? "" : `, paused for ${duration(pausedForMs)}`;
    return `${name}: ${policy} (${source})${paused}, generation ${generation}`;
  },
};

const STEER = {
  target: "bucket",
  needs: "act",
  privacy: OF_TARGET,
  answers: "The bucket after the change, unless it could not be read.",
  output: object({ "status?": STATUS, "undone?": CHANGE }),
} as const;

async function changed(context: Context, name: string, make: (found: Bucket) => Promise<unknown>) {
  const found = await context.bucket(name);
  const undone = await make(found);
  const status = await context.beside(found.status());
  return undone === undefined ? { status } : { undone, status };
}

const configure = operation({
  ...STEER,
  name: "bucket.configure",
  summary: "Overrides the policy of the code",
  input: z.strictObject({
    ...BUCKET,
    policy: POLICY,
    forMs: FOR_MS,
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: true,
  run: (context, { bucket: name, policy, ...options }) =>
    changed(context, name, (found) =>
      found.configure(policy as PolicyOptions | "code", { ...options, ...context.byHand }),
    ),
  http: { path: "POST /api/v1/buckets/:bucket/configure", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "set <name>",
    about: "overrides the rate or concurrency of a bucket, or settings of a queue",
    examples: [
      'sluice set stripe --rate 20/s --for 1h --reason "429s"',
      "sluice set stripe --fair weights.gold=2 floors.small=20/s",
      'sluice set gpt --drain west --reason "maintenance"',
      "sluice set charges --queue --setting maxBacklog=500 --for 1h",
    ],
    hidden: ["policy"],
    options: [
      [
        "--rate <rate>",
        "such as 50/s; it replaces all limits that the keys share, also of other units and the concurrency",
      ],
      ["--concurrency <calls>", "how many calls at once"],
      FAIR_OPTION,
      ["--drain <members...>", "members of a pool that get no new calls"],
      ["--undrain <members...>", "drained members of a pool that take calls again"],
      ["--code", "puts the policy of the code in force again"],
      ["--dry-run", "says what would change, and changes nothing"],
    ],
    read: ({ rate, concurrency, fair, drain, undrain, code }) => {
      const given = { rate, concurrency, fair, drain, undrain };
      const isPolicy = Object.values(given).some((value) => value !== undefined);
      if (isPolicy === (code === true)) {
        const remedy = isPolicy
          ? "leave it out, or leave out the other changes, such as --rate"
          : "give it, or another change, such as --rate, --concurrency, --fair or --drain";
        const where = "sluice set";
        throw new InvalidOptionError({ where, option: "--code", value: code, remedy });
      }
      return { policy: isPolicy ? policyOf(given) : "code" };
    },
    async run(door, { bucket: name, policy }, { options, perform }) {
      if (options["dryRun"] === true) {
        return previewOf(door, String(name), policy as PolicyOptions | "code");
      }
      // A change in an emergency must not fail because the policy before it cannot be read.
      const read = async () => (await door.bucket(String(name))).peek();
      const before = policy === "code" ? undefined : await read().catch(() => undefined);
      const made = (await perform()) as { readonly status?: BucketStatus };
      const dropped = before === undefined ? [] : droppedBy(before, made.status);
      return dropped.length === 0 ? made : { status: { ...made.status, dropped } };
    },
    result: (made) => ("status" in made ? made.status : made),
    show: (printed: (BucketStatus & { readonly dropped?: string[] }) | Preview | CodePreview) => {
      if (!("pausedForMs" in printed)) return showPreview(printed);
      const { dropped } = printed;
      const after = AFTERWARDS.show(printed, {}) as string;
      return dropped === undefined
        ? after
        : [after, `It replaces all shared limits; no longer in force: ${dropped.join(", ")}.`];
    },
  },
  form: {
    title: "Change the rate of {name}",
    fields: ["rate", "forMs", "reason"],
    confirm: "Change rate",
    done: "{name} now runs at {rate}.",
  },
});

const pause = operation({
  ...STEER,
  name: "bucket.pause",
  summary: "Starts no calls, of all keys or of one",
  input: z.strictObject({ ...BUCKET, ...PAUSING }),
  undoable: true,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.pause({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/buckets/:bucket/pause", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "pause <name>",
    about: "starts no calls of a bucket, or no jobs of a queue; of all or of one key",
    examples: ["sluice pause hooks --key acme endpoint-7 --for 15m"],
  },
  form: { ...PAUSE_FORM, confirm: "Pause all calls" },
});

const resume = operation({
  ...STEER,
  name: "bucket.resume",
  summary: "Ends a pause, of all keys or of one",
  input: z.strictObject({ ...BUCKET, ...RESUMING }),
  undoable: true,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.resume({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/buckets/:bucket/resume", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "resume <name>",
    about: "ends a pause of a bucket or a queue, of all or of one key",
    examples: ["sluice resume hooks"],
  },
  form: RESUME_FORM,
});

const budgets = operation({
  ...LOOK,
  name: "bucket.budgets",
  target: "bucket",
  summary: "The balances of the budgets of a bucket",
  input: z.strictObject({
    ...BUCKET,
    key: KEY,
    member: MEMBER_FIELD,
    all: z.boolean().optional().describe("Adds the budgets of all keys that have spent something."),
  }),
  answers: "The balances. `restore` accepts them, for example on another Redis server.",
  output: object({ budgets: list(BUDGET) }),
  privacy: OF_TARGET,
  async run(context, { bucket: name, key, member, all }) {
    const found = await context.bucket(name);
    return { budgets: await found.budgets({ ...targetOf({ key, member }), ...(all && { all }) }) };
  },
  http: { path: "GET /api/v1/buckets/:bucket/budgets", tag: "facts" },
  cli: {
    command: "budgets <name>",
    args: ["bucket"],
    examples: ["sluice budgets llm --key acme", "sluice budgets llm --all --json > balances.json"],
    show: ({ budgets: found }: { readonly budgets: readonly BudgetState[] }, asked) =>
      showBudgets(found, asked),
  },
});

const grant = operation({
  ...STEER,
  name: "bucket.grant",
  summary: "Raises budgets until their periods end",
  input: z.strictObject({
    ...BUCKET,
    key: KEY,
    member: MEMBER_FIELD,
    amounts: z
      .record(z.string(), z.number())
      .describe('The amounts to add, by unit, such as { "usd": 50 }.'),
    per: z
      .string()
      .optional()
      .describe("The period of the budget, if there are several of the unit, such as month."),
    ...BY_HAND,
  }),
  undoable: true,
  async run(context, { bucket: name, key, member, amounts, per }) {
    const found = await context.bucket(name);
    const options = {
      ...targetOf({ key, member }),
      ...(per !== undefined && { per }),
      ...context.byHand,
    };
    const after = await found.grant(amounts, options as GrantOptions);
    return { budgets: after, status: await context.beside(found.status()) };
  },
  answers: "The balances of the bucket or key after the grant.",
  output: object({ budgets: list(BUDGET), "status?": STATUS }),
  http: { path: "POST /api/v1/buckets/:bucket/grant", tag: "steering" },
  cli: {
    command: "grant <name> <amounts...>",
    args: ["bucket"],
    examples: ['sluice grant llm usd=50 --key acme --reason "demo day"'],
    hidden: ["amounts"],
    read: (_options, [, amounts]) => ({ amounts: amountsOf(amounts as readonly string[]) }),
    show: ({ budgets: found }: { readonly budgets: readonly BudgetState[] }) => showBudgets(found),
  },
  form: {
    title: "Grant more to the budgets of {name}",
    fields: ["amounts", "reason"],
    confirm: "Grant",
    done: "Granted {amounts} to {name}.",
  },
});

const restore = operation({
  ...STEER,
  name: "bucket.restore",
  summary: "Replaces balances by exported ones",
  input: z.strictObject({
    ...BUCKET,
    budgets: z
      .array(z.looseObject({}))
      .describe("The balances, as `budgets` returned them. Those of earlier periods are left out."),
    ...BY_HAND,
  }),
  undoable: false,
  run: async (context, { bucket: name, budgets: balances }) =>
    (await context.bucket(name)).restore(balances as unknown as BudgetBackup[], context.byHand),
  answers: "The number of restored balances, and the balances that were left out.",
  output: object({ restored: COUNT, skipped: list({ type: "object" }) }),
  http: { path: "POST /api/v1/buckets/:bucket/restore", tag: "steering" },
  cli: {
    command: "restore <name> <file>",
    args: ["bucket"],
    about: "replaces balances of budgets by those that sluice budgets --json has printed to a file",
    examples: ["sluice restore llm balances.json"],
    hidden: ["budgets"],
    fileAt: 1,
    read: (_options, [, text]) => ({ budgets: balancesIn(String(text)) }),
    show: ({ restored, skipped }: Restored) =>
      `${counted(restored, "balance")} restored, ${skipped.length} left out.`,
  },
});

const undo = operation({
  ...STEER,
  name: "bucket.undo",
  summary: "Undoes the last change that is still in force",
  input: z.strictObject({
    ...BUCKET,
    id: z
      .string()
      .optional()
      .describe("The change to undo. If another one is the last, the request fails."),
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: false,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.undo({ ...options, ...context.byHand })),
  http: { path: "POST /api/v1/buckets/:bucket/undo", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "undo <name>",
    about: "undoes the last change of a bucket or a queue",
    examples: ["sluice undo stripe"],
    result: (made) => {
      assertUndone(made);
      return made.status;
    },
  },
  form: {
    title: "Undo the last change of {name}",
    fields: ["reason"],
    confirm: "Undo",
    done: "The change was undone.",
  },
});

type KeyField = string | string[] | Record<string, string> | undefined;

/** Returns the option that a key field stands for: `key`, or `keys` for an object. */
function keyGiven(key: KeyField): KeyOptions {
  if (key === undefined) return {};
  return typeof key === "string" || Array.isArray(key) ? { key } : { keys: key };
}

/** Returns the key or the member whose budgets are meant. */
function targetOf(given: { readonly key: KeyField; readonly member: string | undefined }) {
  const { key, member } = given;
  return { ...keyGiven(key), ...(member !== undefined && { member }) };
}

/** Reads amounts from the command line: `usd=50`. */
function amountsOf(given: readonly string[]): Record<string, number> {
  return Object.fromEntries(
    given.map((text) => {
      const [, unit, amount] = /^([a-z][\w-]*)=(\d+(?:\.\d+)?)$/i.exec(text) ?? [];
      if (unit !== undefined) return [unit, Number(amount)];
      const remedy = "give amounts by unit, such as usd=50";
      throw new InvalidOptionError({
        where: "sluice grant",
        option: "amounts",
        value: text,
        remedy,
      });
    }),
  );
}

/** Reads the balances from the text of a file that `sluice budgets --json` has printed. */
function balancesIn(text: string): unknown {
  try {
    return (JSON.parse(text) as { budgets?: unknown }).budgets;
  } catch {
    const remedy = "give a file that sluice budgets --json has printed";
    throw new InvalidOptionError({ where: "sluice restore", option: "file", value: text, remedy });
  }
}

/**
 * Returns the shared limits that a change removes without a replacement. A new limit replaces one
 * old limit of the same unit, a rate replaces a rate, and a concurrency limit replaces a concurrency
 * limit. If fewer limits of a unit and kind remain, all old ones that are gone are returned.
 */
function droppedBy(before: BucketState, after: BucketState | undefined): string[] {
  if (after === undefined) return [];
  const remaining = sharedBySort(after);
  return [...sharedBySort(before)].flatMap(([sort, names]) => {
    const kept = remaining.get(sort) ?? [];
    return kept.length >= names.length ? [] : names.filter((name) => !kept.includes(name));
  });
}

/** Returns the names of the shared limits, by their unit and by whether they are rates. */
function sharedBySort({ limits }: BucketState): ReadonlyMap<string, readonly string[]> {
  const sorts = new Map<string, string[]>();
  for (const { name, unit } of limits) {
    const sort = `${/^\d+ at once/.test(name) ? "concurrency" : "rate"} of ${unit}`;
    sorts.set(sort, [...(sorts.get(sort) ?? []), name]);
  }
  return sorts;
}

interface PreviewGiven {
  readonly policy?: object | undefined;
  readonly pausedForMs?: number | "forever" | undefined;
}

type Change = Parameters<Bucket["preview"]>[0];

export function changeOf({ policy = {}, pausedForMs }: PreviewGiven): Change {
  const ms = pausedForMs === "forever" ? Infinity : pausedForMs;
  return (ms === undefined ? policy : { ...policy, pausedForMs: ms }) as Change;
}

/** Reads a policy from the command-line options. */
function policyOf(given: Readonly<Record<string, unknown>>): object {
  const { rate, concurrency, fair, drain = [], undrain = [] } = given;
  const drained = [
    ...(drain as readonly string[]).map((name) => [name, { drained: true }]),
    ...(undrain as readonly string[]).map((name) => [name, { drained: false }]),
  ];
  return {
    ...(drained.length > 0 && { members: Object.fromEntries(drained) }),
    ...(rate === undefined ? {} : { rate }),
    ...(concurrency === undefined ? {} : { concurrency: Number(concurrency) }),
    ...(fair === undefined ? {} : { fair: fairOf(fair as readonly string[]) }),
  };
}

/** Reads how keys take turns: `weights.gold=2`, `floors.acme=9000/min tokens`. */
function fairOf(given: readonly string[]): boolean | object {
  if (given.length === 1 && (given[0] === "on" || given[0] === "off")) return given[0] === "on";
  const parts = { weights: new Map<string, number>(), floors: new Map<string, unknown>() };
  let critical: number | undefined;
  for (const text of given) {
    const [, part, key = "", said = ""] =
      /^(?:(weights|floors)\.(.+)|critical)=(.+)$/s.exec(text) ?? [];
    const [, rate, unit] = /^(.*\S) (\S+)$/.exec(said) ?? [];
    if (said === "") {
      const remedy =
        "give on, off, or parts such as weights.gold=2, floors.small=20/s, critical=0.5";
      throw new InvalidOptionError({ where: "sluice set", option: "--fair", value: text, remedy });
    }
    if (part === "weights") parts.weights.set(key, Number(said));
    else if (part === "floors") parts.floors.set(key, unit === undefined ? said : { [unit]: rate });
    else critical = Number(said);
  }
  const { weights, floors } = parts;
  return {
    ...(weights.size > 0 && { weights: Object.fromEntries(weights) }),
    ...(floors.size > 0 && { floors: Object.fromEntries(floors) }),
    ...(critical !== undefined && { critical }),
  };
}

export function readsPreview(): Pick<CommandLine<unknown>, "hidden" | "options" | "read"> {
  return {
    hidden: ["policy", "pausedForMs"],
    options: [
      ["--rate <rate>", "the rate that would be in force, such as 50/s"],
      ["--concurrency <calls>", "how many calls at once"],
      FAIR_OPTION,
      ["--paused", "as if it were paused without an end"],
    ],
    read: (options) => ({
      policy: policyOf(options),
      ...(options["paused"] === true && { pausedForMs: "forever" }),
    }),
  };
}

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

/** Reads the effect that a change would have on the calls of a bucket and on the jobs of its queues. */
async function previewOf(
  { sluice, facts, bucket: find }: Context,
  name: string,
  change: Change | "code",
): Promise<Preview | CodePreview> {
  const found = await find(name);
  if (change === "code") {
    const { policy: now } = await found.peek();
    return { bucket: name, now, after: "the policy of the code" };
  }
  const names = (await facts.queuesOf(name)).slice(0, MOST_FORECASTS);
  const [ofBucket, ...queues] = await Promise.all([
    found.preview(change),
    ...names.map(async (queue) => {
      const its = await (await sluice.findQueue(queue))?.preview(change);
      return its === undefined ? [] : [{ queue, ...its }];
    }),
  ]);
  return { bucket: name, ...ofBucket, queues: queues.flat() };
}

export const BUCKET_OPERATIONS: readonly AnyOperation[] = [
  overview,
  replicas,
  buckets,
  bucket,
  why,
  keys,
  history,
  preview,
  configure,
  pause,
  resume,
  budgets,
  grant,
  restore,
  undo,
];
