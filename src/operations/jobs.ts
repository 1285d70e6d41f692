/** Operations that show and change jobs and dead letters. */
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import type { QueuedJob } from "../queue/enqueue/job-handle.ts";
import type { JobExplanation } from "../queue/forecast/explain.ts";
import type { AwaitedParents, JobReference, JobState, ParentState } from "../queue/job.ts";
import type {
  FailedFilter,
  FailedGroup,
  FailedGroups,
  FailedGroupsFilter,
  FailedJob,
} from "../queue/manage/dead-letters.ts";
import { BY_WHOM, CURSOR, DATA, FAILED_FILTER, KEY, limitField, NAME, STATE } from "./fields.ts";
import {
  jobMissing,
  operation,
  type AnyOperation,
  RefusedError,
  type Context,
} from "./operation.ts";
import { QUEUE, steered } from "./queues.ts";
import {
  COUNT,
  DEAD_LETTER,
  FAILED_GROUP,
  JOB,
  JOB_STATUS,
  LINKED_JOBS,
  list,
  object,
  QUEUE_PAUSE,
  SETTINGS_SEEN,
  TEXT,
} from "./shapes.ts";
import { counted, duration, factLines, keyText, timeText, whyText, type Shown } from "./text.ts";

const ID = { id: z.string().max(1_000).describe("The id of the job.") };
const LOOK = { needs: "view", undoable: false } as const;
const SHOWS_DATA = { names: "of the target", data: "on request" } as const;
const NO_DATA = { names: "of the target", data: "never" } as const;

/**
 * Returns the fields of a job that operations show. Includes its data and result only if requested.
 */
function factsOf(job: QueuedJob<unknown>, withData: boolean) {
  const { id, name, key, priority, attempts, attemptsMade, dedupeId } = job;
  const { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs, startByMs } = job;
  const facts = { id, name, key, priority, attempts, attemptsMade, dedupeId };
  const times = { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs, startByMs };
  const { data, result, unreadable } = job;
  const shown = { data, result, ...(unreadable && { unreadable: unreadable.message }) };
  return { ...facts, ...times, ...(withData ? shown : {}) };
}

/** Returns a job's data as JSON, or why it cannot be decoded. */
function dataText(facts: { readonly data?: unknown; readonly unreadable?: string }): string {
  return facts.unreadable ?? JSON.stringify(facts.data);
}

async function lookAt(job: QueuedJob<unknown>, withData: boolean) {
  const [state, why, eta] = await Promise.all([job.state(), job.explain(), job.eta()]);
  return { job: factsOf(job, withData), state, why, eta };
}

type Looked = Awaited<ReturnType<typeof lookAt>>;

/** Returns the status of a job for the producers of that job. */
export async function statusOfJob(job: QueuedJob<unknown>): Promise<object> {
  return flat(await lookAt(job, false));
}

function flat({ job, state, why, eta }: Looked): object {
  const { dedupeId: _dedupeId, startByMs: _startByMs, ...facts } = job;
  const startsInMs = eta?.startsInMs;
  return {
    ...facts,
    // The job is done and no longer kept. Only its id is known.
    state: state ?? "gone",
    position: eta?.position,
    startsInMs,
    startsAtMs: startsInMs === undefined ? undefined : Math.round(Date.now() + startsInMs),
    // The reason why no start can be predicted.
    noStart: eta?.reason,
    waitsFor: why?.waitsFor,
  };
}

/** @throws {@link RefusedError} when the job does not exist. */
async function jobOf(context: Context, queue: string, id: string): Promise<QueuedJob<unknown>> {
  const job = await (await context.queue(queue)).job(id);
  if (job === undefined) throw jobMissing(queue, id);
  return job;
}

const jobs = operation({
  ...LOOK,
  name: "job.list",
  target: "queue",
  summary: "A page of jobs, of all states or of one",
  input: z.strictObject({
    ...QUEUE,
    state: STATE,
    key: KEY,
    name: NAME.optional().describe("The name that the job was given."),
    limit: limitField(50, 200),
    cursor: CURSOR,
    data: DATA,
  }),
  answers: "The jobs, and the cursor of the next page.",
  output: object({ jobs: list(JOB), "cursor?": TEXT }),
  privacy: SHOWS_DATA,
  async run(context, { queue, data, ...filter }) {
    const page = await (await context.queue(queue)).jobs(filter as object);
    const found = await Promise.all(
      page.jobs.map(async (job) => ({
        ...factsOf(job, data),
        state: (filter.state as JobState | undefined) ?? (await job.state()),
      })),
    );
    return { jobs: found, ...(page.cursor && { cursor: page.cursor }) };
  },
  http: { path: "GET /api/v1/queues/:queue/jobs", tag: "queues" },
  cli: {
    command: "jobs <queue>",
    about: "a page of the jobs of a queue, with their data only if requested",
    examples: ["sluice jobs charges --state waiting --key acme --limit 5"],
    defaults: { limit: 20 },
    show: showJobs,
  },
});

type JobFacts = ReturnType<typeof factsOf> & { readonly state: JobState | undefined };

function showJobs({
  jobs: found,
  cursor,
}: {
  readonly jobs: readonly JobFacts[];
  readonly cursor?: string;
}): Shown {
  const hasData = found.some((job) => "data" in job);
  const rows = found.map((job) => [
    job.id,
    job.state ?? "gone",
    keyText(job.key),
    job.priority,
    `${job.attemptsMade} of ${job.attempts}`,
    timeText(job.dueAtMs),
    ...(hasData ? [dataText(job)] : []),
  ]);
  const heads = ["id", "state", "key", "priority", "attempts", "due", ...(hasData ? ["data"] : [])];
  const more = cursor === undefined ? [] : [`More: --cursor '${cursor}'`];
  const none = cursor === undefined ? "No job matches." : "None on this page.";
  return [found.length === 0 ? none : { heads, rows }, ...more];
}

const job = operation({
  ...LOOK,
  name: "job.look",
  target: "job",
  summary: "One job: its state, what it waits for, and its expected start",
  input: z.strictObject({ ...QUEUE, ...ID, data: DATA }),
  answers: "The job.",
  output: object({
    job: JOB,
    "state?": TEXT,
    "why?": { type: "object" },
    "eta?": { type: "object" },
  }),
  privacy: SHOWS_DATA,
  run: async (context, { queue, id, data }) => lookAt(await jobOf(context, queue, id), data),
  http: {
    path: "GET /api/v1/queues/:queue/jobs/:id",
    tag: "queues",
    also: [
      {
        path: "GET /v1/queues/:queue/jobs/:id",
        needs: "enqueue",
        summary: "The state of a job, and its expected start",
        shape: flat,
        output: JOB_STATUS,
      },
    ],
  },
  cli: {
    command: "job <queue> <id>",
    examples: ["sluice job charges order-17"],
    result: ({ job: facts, ...more }) => ({ ...facts, ...more }),
    show: (facts: JobFacts & Omit<Looked, "job">) =>
      factLines(
        [
          ["job", facts.id],
          ["state", facts.state ?? "gone"],
          ["key", keyText(facts.key)],
          ["priority", facts.priority],
          ["attempts", `${facts.attemptsMade} of ${facts.attempts}`],
          ["enqueued", timeText(facts.enqueuedAtMs)],
          ["due", timeText(facts.dueAtMs)],
          ["started", timeText(facts.startedAtMs)],
          ["ended", timeText(facts.endedAtMs)],
          ["waits for", whyText(facts.why, facts.eta)],
          ["starts in", startText(facts.eta)],
          ...("data" in facts ? [["data", dataText(facts)] as const] : []),
        ],
        12,
      ),
  },
});

function startText(eta: Looked["eta"]): string {
  if (eta === undefined) return "-";
  return eta.reason ?? `${duration(eta.startsInMs)}, after ${eta.position} others`;
}

const why = operation({
  ...LOOK,
  name: "job.why",
  target: "job",
  summary: "Why a job waits, and its expected start",
  input: z.strictObject({ ...QUEUE, ...ID }),
  answers: "What the job waits for; null if it runs or has ended.",
  output: object({
    queue: TEXT,
    job: TEXT,
    why: { type: ["object", "null"] },
    eta: { type: ["object", "null"] },
  }),
  privacy: NO_DATA,
  async run(context, { queue, id }) {
    const found = await jobOf(context, queue, id);
    const [reason, eta] = await Promise.all([found.explain(), found.eta()]);
    return { queue, job: id, why: reason ?? null, eta: eta ?? null };
  },
  http: { path: "GET /api/v1/queues/:queue/jobs/:id/why", tag: "queues" },
  cli: {
    command: "why <name> [job]",
    args: ["queue", "id"],
    when: "[job]",
    examples: [],
    show: ({ why: reason, eta }: { readonly why: never; readonly eta: never }) =>
      whyText(reason ?? undefined, eta ?? undefined),
  },
});

/** A job, and the parents that it still waits for. */
interface FlowStep extends JobReference {
  /** Undefined if the token of the caller is not for the queue. */
  readonly state: JobState | "gone" | undefined;
  readonly why: JobExplanation | undefined;
  /** True if other jobs wait for this one, and it waits for no job itself. */
  readonly isBlocking: boolean;
  /** The first parents: up to 24 of the asked job, and up to ten of each other job. */
  readonly parents: readonly FlowStep[];
  /** The number of further parents. */
  readonly more: number;
}

/** The most jobs that a tree contains. */
const MOST_STEPS = 200;

/** A parent that has ended, or a child. */
interface LinkedJob extends JobReference {
  readonly state: FlowStep["state"] | ParentState;
}

interface SomeJobs {
  /** At most 24. */
  readonly first: readonly LinkedJob[];
  /** The number of further jobs. */
  readonly more: number;
}

interface ShownFlow {
  readonly flow: FlowStep;
  /** The parents of the job that have ended. */
  readonly ended: SomeJobs;
  /** The jobs that wait for the job. */
  readonly children: SomeJobs;
}

/** The states of jobs that keep their children waiting. */
const UNFINISHED: readonly FlowStep["state"][] = ["waiting", "active", "delayed"];

/** Reads a job, the jobs around it, and the parents that it waits for, down to the jobs that block the flow. */
async function flowOf(context: Context, asked: QueuedJob<unknown>): Promise<ShownFlow> {
  let left = MOST_STEPS;

  async function stepOf(
    { queue, id }: JobReference,
    { isParent, awaited }: { readonly isParent: boolean; readonly awaited?: AwaitedParents },
  ): Promise<FlowStep> {
    const step = { queue, id, parents: [], more: 0 };
    if (!context.caller.mayQueue(queue)) {
      return { ...step, state: undefined, why: undefined, isBlocking: isParent };
    }
    const found = await foundJob(context, { queue, id });
    if (found === undefined) {
      return { ...step, state: "gone", why: undefined, isBlocking: isParent };
    }
    const [state = "gone", reason] = await Promise.all([found.state(), found.explain()]);
    const { count, first } = awaited ?? reason?.parents ?? { count: 0, first: [] };
    const shown = first.slice(0, left);
    left -= shown.length;
    const parents = await Promise.all(shown.map((parent) => stepOf(parent, { isParent: true })));
    const isBlocking = isParent && count === 0;
    return { ...step, state, why: reason, isBlocking, parents, more: count - parents.length };
  }

  async function linkedJob({ queue, id }: JobReference): Promise<LinkedJob> {
    if (!context.caller.mayQueue(queue)) return { queue, id, state: undefined };
    const found = await foundJob(context, { queue, id });
    return { queue, id, state: (await found?.state()) ?? "gone" };
  }

  const { awaited, ended, children } = await asked.flow();
  const [step, linked] = await Promise.all([
    stepOf(asked, { isParent: children.count > 0, awaited }),
    Promise.all(children.first.map(linkedJob)),
  ]);
  return {
    // A job that has ended blocks no child, even if a replay would resume the child.
    flow: { ...step, isBlocking: step.isBlocking && UNFINISHED.includes(step.state) },
    ended: {
      first: ended.first.map((parent) =>
        context.caller.mayQueue(parent.queue) ? parent : { ...parent, state: undefined },
      ),
      more: ended.count - ended.first.length,
    },
    children: { first: linked, more: children.count - linked.length },
  };
}

/** Returns undefined if no process knows the queue, or the job is not stored. */
async function foundJob(
  context: Context,
  { queue, id }: JobReference,
): Promise<QueuedJob<unknown> | undefined> {
  try {
    return await (await context.queue(queue)).job(id);
  } catch (error) {
    if (error instanceof RefusedError && error.code === "ERR_QUEUE_MISSING") return undefined;
    throw error;
  }
}

function flowLines(step: FlowStep, indent = ""): string[] {
  const { queue, id, state, why: reason, isBlocking, parents, more } = step;
  const isWaiting = reason !== undefined && (isBlocking || reason.waitsFor !== "parents");
  const what = isWaiting ? `, waits for ${whyText(reason)}` : "";
  const blocks = isBlocking ? "  <- blocks" : "";
  return [
    `${indent}${queue}:${id}  ${stateText(state)}${what}${blocks}`,
    ...parents.flatMap((parent) => flowLines(parent, `${indent}  `)),
    ...(more > 0 ? [`${indent}  and ${more} more`] : []),
  ];
}

function linkedLines(title: string, { first, more }: SomeJobs): string[] {
  if (first.length === 0) return [];
  const lines = first.map(({ queue, id, state }) => `  ${queue}:${id}  ${stateText(state)}`);
  return [`${title}:`, ...lines, ...(more > 0 ? [`  and ${more} more`] : [])];
}

const stateText = (state: LinkedJob["state"]): string => state ?? "of another token";

const flow = operation({
  ...LOOK,
  name: "job.flow",
  target: "job",
  summary: "The jobs that a job waits for, as a tree, and the jobs that wait for it",
  input: z.strictObject({ ...QUEUE, ...ID }),
  answers:
    "The job. `parents` are those that it still waits for, each with its own; `isBlocking` marks the jobs that must end first. `ended` are parents that have ended, and `children` the jobs that wait for it.",
  output: object({ flow: { type: "object" }, ended: LINKED_JOBS, children: LINKED_JOBS }),
  privacy: NO_DATA,
  run: async (context, { queue, id }) => flowOf(context, await jobOf(context, queue, id)),
  http: { path: "GET /api/v1/queues/:queue/jobs/:id/flow", tag: "queues" },
  cli: {
    command: "flow <queue> <id>",
    about:
      "the jobs that a job waits for, as a tree, which of them block it, and the jobs that wait for it",
    examples: ["sluice flow reports monthly-7"],
    show: ({ flow: step, ended, children }: ShownFlow) => [
      ...flowLines(step),
      ...linkedLines("Parents that have ended", ended),
      ...linkedLines("Jobs that wait for it", children),
    ],
  },
});

const cancel = operation({
  name: "job.cancel",
  target: "job",
  summary: "Cancels a job",
  input: z.strictObject({ ...QUEUE, ...ID }),
  answers: "Whether it was cancelled. A job that has ended is not.",
  output: object({ id: TEXT, cancelled: { type: "boolean" } }),
  needs: "act",
  privacy: NO_DATA,
  undoable: false,
  async run(context, { queue, id }) {
    const found = await jobOf(context, queue, id);
    return { id: found.id, cancelled: await found.cancel() };
  },
  http: {
    path: "POST /api/v1/queues/:queue/jobs/:id/cancel",
    tag: "queues",
    also: [{ path: "POST /v1/queues/:queue/jobs/:id/cancel" }],
  },
  cli: {
    command: "cancel <queue> <id>",
    examples: ["sluice cancel charges order-17"],
    show: ({ id, cancelled }: { readonly id: string; readonly cancelled: boolean }) =>
      cancelled ? `${id} was cancelled.` : `${id} has ended, or is being cancelled already.`,
  },
  form: {
    title: "Cancel {what}",
    fields: [],
    confirm: "Cancel the job",
    done: "{what} {outcome}.",
    danger: true,
  },
});

const failed = operation({
  ...LOOK,
  name: "queue.failed",
  target: "queue",
  summary: "Dead letters, the newest first",
  input: z.strictObject({
    ...QUEUE,
    ...FAILED_FILTER,
    limit: z
      .int()
      .min(1)
      .default(50)
      .describe("The most dead letters, the newest first.")
      .meta({ maximum: 1_000 }),
    data: DATA,
  }),
  answers: "The dead letters.",
  output: object({ failed: list(DEAD_LETTER) }),
  privacy: SHOWS_DATA,
  async run(context, { queue, data, ...filter }) {
    const found = await (await context.queue(queue)).failed(filter as FailedFilter);
    return {
      failed: found.map(({ data: content, unreadable, ...facts }) => ({
        ...facts,
        ...(data && { data: content }),
        ...(data && unreadable && { unreadable: unreadable.message }),
      })),
    };
  },
  http: {
    path: "GET /api/v1/queues/:queue/failed",
    tag: "queues",
    also: [
      {
        path: "GET /v1/queues/:queue/dead-letters",
        defaults: { limit: 100 },
        shape: ({ failed: found }) => ({ jobs: found }),
        output: object({ jobs: list(DEAD_LETTER) }),
      },
    ],
  },
  cli: {
    command: "failed <queue>",
    about: "the dead letters of a queue, the newest first",
    examples: ["sluice failed charges --code ECONNREFUSED --since 2h"],
    defaults: { limit: 100 },
    result: ({ failed: found }, { data }) =>
      data === true ? found : found.map(({ stack: _hidden, ...facts }) => facts),
    show: showFailed,
  },
});

function showFailed(
  found: readonly (Omit<FailedJob<unknown>, "data" | "unreadable"> & {
    readonly data?: unknown;
    readonly unreadable?: string;
  })[],
): Shown {
  if (found.length === 0) return "No dead letter matches.";
  const hasData = found.some((each) => "data" in each);
  const rows = found.map((each) => [
    each.id,
    new Date(each.failedAtMs).toISOString(),
    keyText(each.key),
    String(each.attempts),
    each.reason,
    ...(hasData ? [dataText(each)] : []),
  ]);
  return [
    { heads: ["id", "failed", "key", "attempts", "reason", ...(hasData ? ["data"] : [])], rows },
  ];
}

const failedGroups = operation({
  ...LOOK,
  name: "queue.failed-groups",
  target: "queue",
  summary: "Dead letters grouped by their error, the largest group first",
  input: z.strictObject({
    ...QUEUE,
    ...FAILED_FILTER,
    look: z
      .int()
      .min(1)
      .default(10_000)
      .describe("The most dead letters to read, the newest first.")
      .meta({ maximum: 100_000 }),
  }),
  answers: "The groups.",
  output: object({
    groups: list(FAILED_GROUP),
    totalGroups: COUNT,
    looked: COUNT,
    hasMore: { type: "boolean" },
  }),
  privacy: NO_DATA,
  run: async (context, { queue, ...filter }) =>
    (await context.queue(queue)).failedGroups(filter as FailedGroupsFilter),
  http: { path: "GET /api/v1/queues/:queue/failed-groups", tag: "queues" },
  cli: {
    command: "failed-groups <queue>",
    about: "the dead letters of a queue by their error: count, first, last and tenants",
    examples: ["sluice failed-groups charges --since 2h"],
    show: showGroups,
  },
});

function showGroups({ groups, totalGroups, looked, hasMore }: FailedGroups): Shown {
  if (groups.length === 0) return "No dead letter matches.";
  const rows = groups.map((each) => [
    each.group,
    String(each.count),
    timeText(each.firstAtMs),
    timeText(each.lastAtMs),
    tenantsText(each),
    each.reason,
  ]);
  const heads = ["group", "count", "first", "last", "tenants", "reason"];
  const more = hasMore ? [`Of the newest ${looked} dead letters: --look reads more.`] : [];
  const others = totalGroups - groups.length;
  const left = others > 0 ? [`${others} smaller groups are left out.`] : [];
  return [{ heads, rows }, ...left, ...more];
}

function tenantsText({ tenants, topTenants }: FailedGroup): string {
  if (tenants === 0) return "-";
  const others = tenants - topTenants.length;
  return `${topTenants.join(", ")}${others > 0 ? ` and ${others} more` : ""}`;
}

/** The fields that select dead letters: one by its id, several by their ids, or all that match. */
const WHICH = {
  id: z.string().optional().describe("One dead letter. Filters are then ignored."),
  ids: z.array(z.string()).optional().describe("Several dead letters, instead of a filter."),
  ...FAILED_FILTER,
  limit: z
    .int()
    .min(1)
    .optional()
    .describe("The most dead letters, the newest first. Defaults to all."),
  all: z.boolean().optional().describe("All dead letters, without ids or a filter."),
};

interface Which {
  readonly id?: string | undefined;
  readonly ids?: readonly string[] | undefined;
  readonly all?: boolean | undefined;
}

/**
 * Rejects an ambiguous selection of dead letters.
 *
 * @throws {@link InvalidOptionError} when ids are combined with a filter or `all`.
 */
function assertOneChoice(where: string, { id, ids, all, ...filter }: Which): void {
  const isFiltered = all === true || Object.values(filter).some((value) => value !== undefined);
  const named = id ?? ids;
  if (named === undefined || (!isFiltered && (id === undefined || ids === undefined))) return;
  const remedy = "give an id, ids, or a filter: one of the three";
  throw new InvalidOptionError({
    where,
    option: id === undefined ? "ids" : "id",
    value: named,
    remedy,
  });
}

/**
 * Changes the selected dead letters. In the result, `missing` lists the ids that belong to no dead
 * letter.
 */
async function onDeadLetters(
  { id, ids = id === undefined ? undefined : [id], all: _all, ...filter }: Which,
  act: (one: string | FailedFilter) => Promise<number>,
): Promise<{ readonly count: number; readonly missing: readonly string[] }> {
  if (ids === undefined) return { count: await act(filter), missing: [] };
  let count = 0;
  const missing: string[] = [];
  for (const one of ids) {
    const done = await act(one);
    count += done;
    if (done === 0) missing.push(one);
  }
  return { count, missing };
}

/**
 * Reads the selection of dead letters from the command line. Selecting all dead letters requires
 * `--all`.
 */
const BY_COMMAND = {
  args: ["queue"],
  hidden: ["id", "ids"],
  read(options: Readonly<Record<string, unknown>>, args: readonly unknown[]) {
    const ids = args[1] as readonly string[];
    const isFiltered = ["key", "name", "reason", "code", "group", "since", "limit"].some(
      (name) => options[name] !== undefined,
    );
    const ways = [ids.length > 0, isFiltered, options["all"] === true].filter(Boolean).length;
    if (ways === 1) return ids.length > 0 ? { ids } : {};
    const remedy = "give ids, or a filter such as --reason, or --all: one of the three";
    const value = options["all"];
    throw new InvalidOptionError({ where: "sluice", option: "--all", value, remedy });
  },
  after(
    { missing }: { readonly missing: readonly string[] },
    { queue }: { readonly queue?: unknown },
  ) {
    if (missing.length === 0) return;
    const ids = missing.map((id) => `"${id}"`).join(", ");
    throw new RefusedError(
      "ERR_JOB_MISSING",
      `There is no dead letter ${ids} in queue "${String(queue)}": sluice failed ${String(queue)} lists them.`,
    );
  },
} as const;

/**
 * Checks a request body of `/v1`, where `{}` selects all dead letters.
 *
 * @throws {@link InvalidOptionError} when there is no body, or the body combines an id with a
 * filter.
 */
function assertReplayBody(body: unknown): void {
  if (body === undefined || body === null) {
    const remedy = "give an id, a filter, or {} for all";
    throw new InvalidOptionError({ where: "replay", option: "body", value: body, remedy });
  }
  const { by: _by, why: _why, ...which } = body as Which & { by?: string; why?: string };
  assertOneChoice("replay", which);
}

const replay = operation({
  name: "queue.replay",
  target: "queue",
  summary: "Puts dead letters back into the queue: by id, or all that match",
  input: z.strictObject({ ...QUEUE, ...WHICH, ...BY_WHOM }),
  answers: "The number of jobs that were put back, and the pauses and settings of the queue.",
  output: object({
    replayed: COUNT,
    missing: list(TEXT),
    "pauses?": list(QUEUE_PAUSE),
    "settings?": SETTINGS_SEEN,
    "generation?": COUNT,
  }),
  needs: "act",
  privacy: NO_DATA,
  undoable: false,
  async run(context, { queue, ...which }) {
    const found = await context.queue(queue);
    if (which.ids !== undefined) assertOneChoice("queue.replay", which);
    const { count: replayed, missing } = await onDeadLetters(which, (one) =>
      found.replay(one, context.byHand),
    );
    const { id } = which;
    if (id !== undefined && replayed === 0 && (await found.job(id)) === undefined) {
      throw jobMissing(queue, id);
    }
    return { replayed, missing, ...(await steered(context, found)) };
  },
  http: {
    path: "POST /api/v1/queues/:queue/replay",
    tag: "queues",
    also: [
      {
        path: "POST /v1/queues/:queue/dead-letters/replay",
        shape: ({ replayed }) => ({ replayed }),
        output: object({ replayed: COUNT }),
        check: assertReplayBody,
      },
    ],
  },
  cli: {
    ...BY_COMMAND,
    command: "replay <queue> [ids...]",
    about: "puts dead letters back into their queue: by id, by a filter, or all",
    examples: ['sluice replay charges --reason "timed out" --limit 100'],
    result: ({ replayed }) => ({ replayed }),
    show: ({ replayed }: { readonly replayed: number }) =>
      `${counted(replayed, "job was", "jobs were")} put back into the queue.`,
  },
  form: {
    title: "Replay {what}",
    fields: [],
    confirm: "Replay",
    done: "{replayed} put back into the queue.",
  },
});

const purge = operation({
  name: "queue.purge",
  target: "queue",
  summary: "Removes dead letters for good: by id, or all that match",
  input: z.strictObject({ ...QUEUE, ...WHICH, ...BY_WHOM }),
  answers: "The number of removed jobs.",
  output: object({ purged: COUNT, missing: list(TEXT) }),
  needs: "act",
  privacy: NO_DATA,
  undoable: false,
  async run(context, { queue, ...which }) {
    const found = await context.queue(queue);
    assertOneChoice("queue.purge", which);
    const { all, ...choice } = which;
    if (all !== true && Object.values(choice).every((value) => value === undefined)) {
      const remedy = "give true to remove all dead letters, or select some by ids or a filter";
      throw new InvalidOptionError({
        where: "queue.purge",
        option: "all",
        value: all,
        remedy,
      });
    }
    const { count: purged, missing } = await onDeadLetters(which, (one) =>
      found.purge(one, context.byHand),
    );
    return { purged, missing };
  },
  http: { path: "POST /api/v1/queues/:queue/purge", tag: "queues" },
  cli: {
    ...BY_COMMAND,
    command: "purge <queue> [ids...]",
    about: "removes dead letters for good: by id, by a filter, or all",
    examples: ["sluice purge charges --key acme --yes"],
    confirm: "removed jobs cannot be restored; sluice failed lists them",
    result: ({ purged }) => ({ purged }),
    show: ({ purged }: { readonly purged: number }) =>
      `${counted(purged, "job was", "jobs were")} removed for good.`,
  },
  form: {
    title: "Purge {what}",
    fields: [],
    confirm: "Purge",
    done: "{purged} removed for good.",
  },
});

export const JOB_OPERATIONS: readonly AnyOperation[] = [
  jobs,
  job,
  why,
  flow,
  cancel,
  failed,
  failedGroups,
  replay,
  purge,
];
