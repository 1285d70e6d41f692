/** Operations that show queues and workers, and change queues. */
import * as z from "zod";
import { reasonOf } from "../core/describe.ts";
import { QUEUE_SETTINGS } from "../core/input/queue-settings.ts";
import type { ListedOutbox, ListedQueue, ListedWorker } from "../insight/overview.ts";
import type { QueuePreview } from "../queue/forecast/forecast.ts";
import type { QueueStatus } from "../queue/forecast/status.ts";
import type { QueuePause } from "../queue/manage/pauses.ts";
import type { Queue } from "../queue/queue.ts";
import { changeOf, readsPreview } from "./buckets/index.ts";
import { assertUndone } from "./changes.ts";
import {
  BY_HAND,
  FOR_MS,
  GENERATION,
  NAME,
  PAUSE_FORM,
  PAUSING,
  PREVIEW,
  RESUME_FORM,
  RESUMING,
} from "./fields.ts";
import { operation, type AnyOperation, type CommandLine, type Context } from "./operation.ts";
import { settingsOf } from "./settings.ts";
import {
  COUNT,
  list,
  LISTED_QUEUE,
  object,
  OUTBOX,
  QUEUE_CHANGE,
  QUEUE_PAUSE,
  QUEUE_STATUS,
  SCHEDULE,
  SETTINGS_SEEN,
  TEXT,
  UNREACHABLE,
  WORKER,
} from "./shapes.ts";
import {
  byText,
  counted,
  duration,
  keyText,
  perSecond,
  queuePreviewText,
  WAIT_REASONS,
  whySentence,
  type Shown,
} from "./text.ts";

export const QUEUE: { readonly queue: z.ZodString } = { queue: NAME.describe("The queue.") };
const LOOK = { needs: "view", undoable: false } as const;
const OF_TARGET = { names: "of the target", data: "never" } as const;
const IN_SCOPE = { names: "in the scope", data: "never" } as const;

const queues = operation({
  ...LOOK,
  name: "queue.list",
  target: "all",
  summary: "A page of the queues, each with its status",
  input: z.strictObject({
    after: NAME.optional().describe("The `next` of the previous page."),
    limit: z.int().min(1).max(50).default(20).describe("The most queues."),
  }),
  answers: "The queues by name, and the start of the next page.",
  output: object({ queues: list(LISTED_QUEUE), "next?": TEXT, unreachable: UNREACHABLE }),
  privacy: IN_SCOPE,
  async run({ sluice, caller }, { after, limit }) {
    const page = await sluice.overview({ limit, brief: true, afterQueue: after || undefined });
    const mine = page.queues.filter(({ name }) => caller.mayQueue(name));
    const found = await Promise.all(
      mine.map(async (listed) => {
        // List the other queues even if one queue cannot be read.
        try {
          return { ...listed, status: await (await sluice.findQueue(listed.name))?.status() };
        } catch (error) {
          return { ...listed, unreachable: reasonOf(error) };
        }
      }),
    );
    const { nextQueue: next } = page;
    const unreachable = page.unreachable.filter(({ bucket }) => bucket === undefined);
    return { queues: found, unreachable, ...(next === undefined ? {} : { next }) };
  },
  http: { path: "GET /api/v1/queues", tag: "queues" },
  cli: {
    command: "queues",
    about: "all queues: their bucket, their workers and running jobs",
    examples: ["sluice queues --json | jq '.[].name'"],
    hidden: ["after", "limit"],
    run: allQueues,
    show(found: readonly ListedQueue[]) {
      if (found.length === 0) return "No process has reported a queue.";
      const rows = found.map(({ name, bucket, workers, totalConcurrency, running }) => [
        name,
        bucket,
        String(workers),
        `${running} of ${totalConcurrency}`,
      ]);
      return [{ heads: ["queue", "bucket", "workers", "running"], rows }];
    },
  },
});

/** Reads all pages of queues. Leaves out the status, which needs a forecast for each queue. */
async function allQueues({ sluice }: Pick<Context, "sluice">): Promise<readonly ListedQueue[]> {
  const found: ListedQueue[] = [];
  for (let afterQueue: string | undefined, isFirst = true; isFirst || afterQueue !== undefined;) {
    isFirst = false;
    const page = await sluice.overview({ limit: 1_000, brief: true, afterQueue });
    found.push(...page.queues);
    afterQueue = page.nextQueue;
  }
  return found;
}

const workers = operation({
  ...LOOK,
  name: "worker.list",
  target: "all",
  summary: "The workers of all processes",
  input: z.strictObject({}),
  answers: "The workers.",
  output: object({ workers: list(WORKER) }),
  privacy: IN_SCOPE,
  async run({ sluice, caller }) {
    const { workers: all } = await sluice.overview({ limit: 1, brief: true });
    return { workers: all.filter(({ queue: name }) => caller.mayQueue(name)) };
  },
  http: { path: "GET /api/v1/workers", tag: "queues" },
  cli: {
    command: "workers",
    examples: ["sluice workers"],
    show({ workers: all }: { readonly workers: readonly ListedWorker[] }) {
      if (all.length === 0) return "No worker is alive.";
      const rows = all.map((each) => [
        each.queue,
        each.state,
        `${each.running} of ${each.concurrency}`,
        each.replica,
        each.client === undefined ? each.worker : `${each.client}, over HTTP`,
      ]);
      return [{ heads: ["queue", "state", "running", "replica", "worker"], rows }];
    },
  },
});

const outboxes = operation({
  ...LOOK,
  name: "outbox.list",
  target: "all",
  summary: "The outboxes: how many rows no relay has moved yet, and how old the oldest is",
  input: z.strictObject({}),
  answers: "The outboxes by name, from the latest report of a relay.",
  output: object({ outboxes: list(OUTBOX) }),
  privacy: { names: "of processes", data: "never" },
  async run({ sluice }) {
    const { outboxes: all } = await sluice.overview({ limit: 1, brief: true });
    return { outboxes: all };
  },
  http: { path: "GET /api/v1/outboxes", tag: "queues" },
  cli: {
    command: "outboxes",
    examples: ["sluice outboxes"],
    show({ outboxes: all }: { readonly outboxes: readonly ListedOutbox[] }) {
      if (all.length === 0) return "No relay has reported an outbox.";
      const rows = all.map((each) => [
        each.name,
        String(each.pending),
        each.pending === 0 ? "-" : duration(each.oldestMs),
        String(each.failed),
        String(each.moved),
        `${duration(each.reportedAgoMs)} ago`,
      ]);
      return [{ heads: ["outbox", "pending", "oldest", "failed", "moved", "reported"], rows }];
    },
  },
});

const queue = operation({
  ...LOOK,
  name: "queue.look",
  target: "queue",
  summary: "One queue: its jobs by state, why the oldest due job waits, its pauses and schedules",
  input: z.strictObject(QUEUE),
  answers: "The queue.",
  output: object({
    bucket: TEXT,
    status: QUEUE_STATUS,
    pauses: list(QUEUE_PAUSE),
    schedules: list(SCHEDULE),
  }),
  privacy: OF_TARGET,
  async run(context, { queue: name }) {
    const found = await context.queue(name);
    const [status, pauses, schedules] = await Promise.all([
      found.status(),
      found.paused(),
      found.schedules(),
    ]);
    return { bucket: found.bucket.name, status, pauses, schedules };
  },
  http: { path: "GET /api/v1/queues/:queue", tag: "queues" },
  cli: {
    command: "queue <name>",
    args: ["queue"],
    about: "one queue: its jobs, why the oldest due job waits, and when the backlog will be empty",
    examples: ["sluice queue charges"],
    result: ({ status, ...more }) => ({ ...status, ...more }),
    show: showQueue,
  },
});

function showQueue(status: QueueStatus): Shown {
  const { settings, rulesVersion } = status;
  const rows = settings.map(({ name, value, setBy, override }) => [
    name,
    String(value),
    override !== undefined
      ? `override ${byText(override)}`
      : setBy === "rules"
        ? `rules, version ${rulesVersion ?? "unknown"}`
        : setBy,
  ]);
  return [...queueSentences(status), "", { heads: ["setting", "value", "set by"], rows }];
}

function queueSentences(status: QueueStatus): string[] {
  const { jobs, oldest, unexplainedMs, emptyInMs, reason, totalConcurrency } = status;
  const alive = status.workers;
  const { waiting, active, delayed, done, failed } = jobs;
  const wanted =
    waiting === 0
      ? ""
      : ` ${counted(status.workersWanted, "worker")} would be enough for the backlog.`;
  return [
    `${counted(waiting, "job")} waiting, ${counted(active, "job")} running, ${counted(delayed, "job")} due later.`,
    alive === 0
      ? `No worker is alive.${wanted}`
      : `${counted(alive, "worker")} alive, for up to ${counted(totalConcurrency, "job")} at once.${wanted}`,
    `${counted(done, "done job")} and ${counted(failed, "dead letter")} are kept.`,
    `In the last minute, ${perSecond(status.donePerSecond)} attempts per second succeeded and ${perSecond(status.failedPerSecond)} failed.`,
    oldest === undefined
      ? "No job is due."
      : `The oldest due job, ${oldest.id}, has waited ${duration(oldest.waitingMs)}: ${whySentence(oldest.why)}.`,
    ...(unexplainedMs === 0
      ? []
      : [
          `No limit or pause explains ${duration(unexplainedMs)} of that: see whether workers run.`,
        ]),
    emptyInMs === undefined
      ? `No forecast is possible: ${reason === undefined ? "the reason is unknown" : WAIT_REASONS[reason]}.`
      : waiting === 0
        ? "There is no backlog."
        : `The backlog will be gone in ${duration(emptyInMs)}.`,
    `The generation is ${status.generation}.`,
  ];
}

const preview = operation({
  ...LOOK,
  name: "queue.preview",
  target: "queue",
  summary: "What another policy or a pause of its bucket would do to pending jobs",
  input: z.strictObject({ ...QUEUE, ...PREVIEW }),
  answers: "The forecast now, and after the change.",
  output: object({ now: { type: "object" }, after: { type: "object" } }),
  privacy: OF_TARGET,
  run: async (context, { queue: name, ...change }) =>
    (await context.queue(name)).preview(changeOf(change)),
  http: { path: "POST /api/v1/queues/:queue/preview", tag: "queues" },
  cli: {
    command: "preview <name>",
    args: ["queue"],
    when: "--queue",
    examples: [],
    ...readsPreview(),
    show: (shown: QueuePreview) => [queuePreviewText(shown), "Nothing was changed."],
  },
});

const STEER = {
  target: "queue",
  needs: "act",
  privacy: OF_TARGET,
  answers: "The undone change, and the pauses and settings of the queue, if they could be read.",
  output: object({
    "undone?": QUEUE_CHANGE,
    "pauses?": list(QUEUE_PAUSE),
    "settings?": SETTINGS_SEEN,
    "generation?": COUNT,
  }),
} as const;

interface SteeredNow {
  readonly pauses: readonly QueuePause[] | undefined;
  readonly settings: QueueStatus["settings"] | undefined;
  readonly generation: number | undefined;
}

/** Reads the pauses and settings of a queue after a change. */
export async function steered(context: Context, found: Queue<unknown>): Promise<SteeredNow> {
  const [pauses, status] = await Promise.all([
    context.beside(found.paused()),
    context.beside(found.status()),
  ]);
  return { pauses, settings: status?.settings, generation: status?.generation };
}

type Steered = SteeredNow & { readonly undone?: object | undefined };

async function changed(
  context: Context,
  name: string,
  make: (found: Queue<unknown>) => Promise<unknown>,
): Promise<Steered> {
  const found = await context.queue(name);
  const undone = (await make(found)) as object | undefined;
  const now = await steered(context, found);
  return undone === undefined ? now : { undone, ...now };
}

/** The command line prints the pauses after the change. */
const PAUSES: Pick<CommandLine<Steered>, "args" | "when" | "examples" | "result" | "show"> = {
  args: ["queue"],
  when: "--queue",
  examples: [],
  result: ({ pauses }, { queue: name }) => ({ queue: name, pauses }),
  show(printed: { readonly queue: string; readonly pauses: readonly QueuePause[] }) {
    const each = printed.pauses.map(({ key, forMs }) => {
      const whose = key === undefined ? "" : `${keyText(key)} `;
      return `${whose}paused for ${duration(forMs)}`;
    });
    return `${printed.queue}: ${each.length === 0 ? "not paused" : each.join(", ")}`;
  },
};

const pause = operation({
  ...STEER,
  name: "queue.pause",
  summary: "Starts no jobs, of all keys or of one",
  input: z.strictObject({ ...QUEUE, ...PAUSING }),
  undoable: true,
  run: (context, { queue: name, ...options }) =>
    changed(context, name, (found) => found.pause({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/queues/:queue/pause", tag: "queues" },
  cli: { ...PAUSES, command: "pause <name>" },
  form: { ...PAUSE_FORM, confirm: "Pause the queue" },
});

const resume = operation({
  ...STEER,
  name: "queue.resume",
  summary: "Ends a pause, of all keys or of one",
  input: z.strictObject({ ...QUEUE, ...RESUMING }),
  undoable: true,
  run: (context, { queue: name, ...options }) =>
    changed(context, name, (found) => found.resume({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/queues/:queue/resume", tag: "queues" },
  cli: { ...PAUSES, command: "resume <name>" },
  form: RESUME_FORM,
});

const SETTINGS = Object.fromEntries(
  Object.entries(QUEUE_SETTINGS).map(([name, { about, forms }]) => {
    const described = `${about}: ${forms}. "code" removes the override.`;
    return [name, z.unknown().optional().describe(described)];
  }),
);

const set = operation({
  ...STEER,
  name: "queue.set",
  summary: "Overrides settings of rules and code",
  input: z.strictObject({
    ...QUEUE,
    ...SETTINGS,
    forMs: FOR_MS,
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: true,
  run: (context, { queue: name, ...options }) =>
    changed(context, name, (found) => found.set({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/queues/:queue/set", tag: "queues" },
  cli: {
    command: "set <name>",
    args: ["queue"],
    when: "--queue",
    examples: [],
    hidden: Object.keys(SETTINGS),
    options: [
      ["--setting <settings...>", "of a queue: maxBacklog=500, defaults.attempts=3, weights=code"],
    ],
    read: ({ setting = [] }) => settingsOf(setting as readonly string[]),
    result: ({ settings, generation }, { queue: name }) => ({ queue: name, settings, generation }),
    show({ queue: name, settings, generation }: QueueStatus & { readonly queue: string }) {
      const each = settings.map(({ name: of, value, setBy }) => `${of} ${value} (${setBy})`);
      return `${name}: ${each.join(", ")}, generation ${generation}`;
    },
  },
});

const undo = operation({
  ...STEER,
  name: "queue.undo",
  summary: "Undoes a pause, a resume or a setting",
  input: z.strictObject({
    ...QUEUE,
    id: z.string().optional().describe("The change to undo. Defaults to the last one."),
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: false,
  run: (context, { queue: name, ...options }) =>
    changed(context, name, (found) => found.undo({ ...options, ...context.byHand })),
  http: { path: "POST /api/v1/queues/:queue/undo", tag: "queues" },
  cli: {
    ...PAUSES,
    command: "undo <name>",
    result(made, input) {
      assertUndone(made);
      return PAUSES.result!(made, input);
    },
  },
});

export const QUEUE_OPERATIONS: readonly AnyOperation[] = [
  queues,
  workers,
  outboxes,
  queue,
  preview,
  set,
  pause,
  resume,
  undo,
];
