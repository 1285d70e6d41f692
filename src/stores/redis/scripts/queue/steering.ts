/** Scripts for operators and tools to inspect and change a queue. */
import { baseOf, queueKeys, type QueueName } from "../keys.ts";
import { shapeScript, type ScriptInput, type ScriptOutput } from "../script.ts";
import {
  endlessMs,
  flag,
  from,
  int,
  list,
  mapped,
  oneOf,
  optional,
  rest,
  text,
  type Read,
  type Shape,
} from "../shape.ts";
import { LANE_KEYS, laneOf, PAUSED_KEY, prefix, type PauseSeen } from "./lanes.ts";

/**
 * The reply to a change of a queue. The request contains the generation that the caller has read.
 */
const STEERED = {
  /**
   * True if nothing was changed, because the queue has changed since the caller read its
   * generation.
   */
  isStale: mapped(flag, (isDone) => !isDone),
  /**
   * The current generation. It increases with each pause, each resume and each setting that an
   * operator overrides. 0 before the first.
   */
  generation: int,
};
export type ChangeResult = Read<typeof STEERED>;

/** A setting of a queue that an operator overrides. */
export interface HandSetting {
  readonly name: string;
  /** The value as JSON. If undefined, the override ends. */
  readonly text: string | undefined;
  /** How long the override lasts, in ms. Infinity if it has no end. */
  readonly forMs: number;
}

/** The settings of a queue that an operator has overridden, without ended overrides. */
export interface HandSettings {
  readonly generation: number;
  readonly settings: readonly (HandSetting & {
    readonly text: string;
    /** When the override was set, in ms since 1970. */
    readonly atMs: number;
  })[];
}

/** Where jobs are searched: one of BullMQ's lists or sorted sets, or the lane of a key. */
type JobShelf =
  | "wait"
  | "prioritized"
  | "active"
  | "delayed"
  | "completed"
  | "failed"
  | { readonly lane: string };

type OnShelf = {
  readonly jobSet: JobShelf;
  /**
   * `true` selects only jobs that are parked in lanes. `false` selects only other jobs. `"below"`
   * selects only jobs that are parked below the key.
   */
  readonly parked?: boolean | "below" | undefined;
};

/** The new due time of moved jobs. */
export interface JobMove {
  /** The new due time: `ms` since 1970, or `inMs` from now. */
  readonly at: { readonly ms: number } | { readonly inMs: number };
  /** If true, moves only delayed jobs. Waiting jobs are already due. */
  readonly onlyDelayed: boolean;
}

/**
 * The state of the jobs to remove. `"pending"` includes waiting and delayed jobs. `"any"` includes all jobs that no worker has
 * locked.
 */
export type RemovedState = "pending" | "done" | "failed" | "any";

/** BullMQ's names of the sorted sets with ended jobs, for each state. */
const ENDED_IN: Readonly<Record<RemovedState, readonly string[]>> = {
  pending: [],
  done: ["completed"],
  failed: ["failed"],
  any: ["completed", "failed"],
};

const ENDED = {
  done: int,
  failed: int,
  /** The total running time of the attempts' handlers, in ms. */
  busyMs: int,
};
/** The number of attempts that have ended, and their total running time. */
export type Ended = Read<typeof ENDED>;
const NONE: Ended = { done: 0, failed: 0, busyMs: 0 };

const untilEnded: Shape<number> = {
  ...endlessMs,
  write: (ms) => (ms === Infinity ? "" : ms),
};
const settingsKeys = queueKeys("lanes:state", "lanes:settings");

export const steeringScripts = {
  /**
   * Pauses one key, or the whole queue. Changes nothing if the queue's generation is no longer
   * `since`.
   */
  pause: shapeScript({
    name: "queue/steer/pauses-set",
    keys: queueKeys(...LANE_KEYS, "paused"),
    args: {
      prefix,
      /** The key to pause. Undefined pauses the whole queue. */
      key: optional(text),
      /** How long the pause lasts, in ms. Infinity for no end. 0 ends the pause. */
      forMs: endlessMs,
      /** The generation that the caller has read. Undefined: the change is always made. */
      since: optional(int),
    },
    reply: {
      ...STEERED,
      /** True if an old version of BullMQ moved jobs to another list. BullMQ's own `resume` moves them back. */
      hasPutAway: flag,
    },
  }),

  /**
   * Reads the active pauses. The queue's pause comes first, then those of keys, the earliest end
   * first.
   */
  pauses: shapeScript({
    name: "queue/steer/pauses-look",
    keys: queueKeys("meta", "lanes:paused"),
    reply: mapped({ ofQueue: endlessMs, ofKeys: rest(PAUSED_KEY) }, ({ ofQueue, ofKeys }) => {
      const pause = { key: undefined, forMs: ofQueue };
      return [...(ofQueue === 0 ? [] : [pause]), ...ofKeys] as readonly PauseSeen[];
    }),
  }),

  /** Overrides settings, either all or none. */
  setByHand: shapeScript({
    name: "queue/steer/settings-set",
    keys: settingsKeys,
    args: {
      /** The generation that the caller has read. Undefined: the change is always made. */
      since: optional(int),
      settings: rest({
        name: text,
        /** How long the override lasts, in ms. Infinity if it has no end. */
        forMs: untilEnded,
        /** The value as JSON. If undefined, the override ends. */
        text: optional(text),
      }),
    },
    reply: STEERED,
  }),

  /** Reads the settings that operators have overridden. */
  byHand: shapeScript({
    name: "queue/steer/settings-look",
    keys: settingsKeys,
    reply: mapped(
      { generation: int, nowMs: int, pairs: rest({ name: text, record: text }) },
      readSettings,
    ),
  }),

  /**
   * Returns one page of a set of jobs. Ended jobs come newest first. Jobs in a sorted set come by
   * due time, and jobs in a list by id. A job that keeps its position between two pages is never
   * skipped. `end` is "" on the last page.
   */
  page: shapeScript({
    name: "queue/steer/jobs-page",
    keys: ({ jobSet, ...queue }: QueueName & OnShelf) => [
      typeof jobSet === "string" ? baseOf(queue) + jobSet : laneOf({ ...queue, key: jobSet.lane }),
    ],
    args: {
      prefix,
      /** The `end` of the previous page, or "" for the first page. */
      from: text,
      /** The maximum number of jobs that this page examines. */
      lookedAt: int,
      /** The maximum number of jobs that this page returns. */
      most: int,
      kind: from(({ jobSet }: OnShelf) => kindOf(jobSet)),
      parked: from(({ parked }: OnShelf) =>
        parked === undefined ? "" : parked === "below" ? parked : parked ? "lane" : "free",
      ),
      /** The jobs' key, or a parent of that key. */
      key: optional(text),
      name: optional(text),
    },
    reply: { end: text, ids: rest(text) },
  }),

  /**
   * Counts the jobs in each state. All counts are from the same moment. Jobs parked in lanes count
   * as waiting.
   */
  counts: shapeScript({
    name: "queue/steer/jobs-count",
    keys: queueKeys(
      "wait",
      "prioritized",
      "active",
      "delayed",
      "completed",
      "failed",
      "lanes:state",
    ),
    reply: { waiting: int, active: int, delayed: int, done: int, failed: int },
  }),

  /** Changes the due time of waiting and delayed jobs. Jobs in another state stay unchanged. */
  move: shapeScript({
    name: "queue/steer/jobs-move",
    keys: queueKeys(...LANE_KEYS, "prioritized", "repeat"),
    args: {
      prefix,
      ms: from(({ at }: JobMove) => ("ms" in at ? at.ms : "")),
      inMs: from(({ at }: JobMove) => ("ms" in at ? "" : at.inMs)),
      onlyDelayed: flag,
      ids: rest(text),
    },
    reply: {
      /** The new due time of the moved jobs, in ms since 1970. */
      atMs: int,
      /** For each job: `"moved"`, `"same"` if it already had this due time, or `"refused"` if its state forbids the move. */
      moves: rest(oneOf(["refused", "moved", "same"])),
    },
  }),

  /**
   * Removes the jobs in this state with all their data, and returns their ids. Of concurrent calls,
   * only one returns a given job.
   */
  remove: shapeScript({
    name: "queue/steer/jobs-remove",
    keys: ({ state, ...queue }: QueueName & { readonly state: RemovedState }) =>
      queueKeys(...LANE_KEYS, "prioritized", "repeat", "active", ...ENDED_IN[state])(queue),
    args: {
      prefix,
      mode: from(({ state }: { readonly state: RemovedState }) =>
        state === "done" || state === "failed" ? "ended" : state,
      ),
      ids: rest(text),
    },
    reply: list(text),
  }),

  /** Replaces the data of a job, unless the job runs or is done. */
  update: shapeScript({
    name: "queue/steer/jobs-update",
    keys: queueKeys(...LANE_KEYS, "prioritized", "completed"),
    args: { prefix, id: text, json: text },
    reply: oneOf(["missing", "updated", "active", "done"]),
  }),

  /** Records that a worker is alive for the next `forMs`. With 0, records that it has stopped. */
  noteWorker: shapeScript({
    name: "queue/workers/workers-note",
    keys: queueKeys("workers:live", "workers:ended"),
    args: {
      worker: text,
      /** The number of jobs that this worker can hold at once. */
      places: int,
      forMs: int,
      done: from(({ ended = NONE }: EndedAttempts) => ended.done),
      failed: from(({ ended = NONE }: EndedAttempts) => ended.failed),
      busyMs: from(({ ended = NONE }: EndedAttempts) => ended.busyMs),
    },
  }),

  /** Counts the jobs that are left. Looks at one page of the blocked lanes. */
  leftOnPage: shapeScript({
    name: "queue/workers/jobs-left",
    keys: queueKeys(...LANE_KEYS, "prioritized", "active"),
    args: { prefix, soonMs: int, page: text },
    reply: { others: int, parked: int, blocked: int, delayed: int, nextPage: text },
  }),

  /** Counts the live workers of all processes, and the jobs that these workers can hold at once. */
  workers: shapeScript({
    name: "queue/workers/workers-look",
    keys: queueKeys("workers:live"),
    reply: { workers: int, places: int },
  }),

  /** Reads the attempts of all workers that ended in about the last minute. */
  ended: shapeScript({
    name: "queue/workers/ended-look",
    keys: queueKeys("workers:ended"),
    reply: { ...ENDED, overMs: int },
  }),
};

type EndedAttempts = {
  /** The worker's attempts that ended since its previous report. */
  readonly ended?: Ended | undefined;
};

/** The jobs that are left in a queue. */
export interface JobsLeft {
  /** How many could run now, or are due soon. */
  readonly runnable: number;
  /** How many due jobs cannot run. */
  readonly blocked: number;
  /** How many jobs are due later. */
  readonly delayed: number;
}
export type Moved = ScriptOutput<typeof steeringScripts.move>;
export type LiveWorkers = ScriptOutput<typeof steeringScripts.workers>;
export type EndedSince = ScriptOutput<typeof steeringScripts.ended>;

/** The number of jobs of a queue, by state. */
export interface QueueCounts {
  readonly waiting: number;
  readonly active: number;
  readonly delayed: number;
  readonly done: number;
  readonly failed: number;
}

export type PageRequest = Omit<ScriptInput<typeof steeringScripts.page>, keyof QueueName>;

function kindOf(jobSet: JobShelf): string {
  if (jobSet === "wait") return "line";
  if (jobSet === "active") return "list";
  return jobSet === "completed" || jobSet === "failed" ? "newest" : "zset";
}

interface SettingsRead {
  readonly generation: number;
  readonly nowMs: number;
  readonly pairs: readonly { readonly name: string; readonly record: string }[];
}

/** Reads overridden settings. A record has the format `<at>|<until, or nothing>|<JSON>`. */
function readSettings({ generation, nowMs, pairs }: SettingsRead): HandSettings {
  const settings = pairs.map(({ name, record }) => {
    const [atMs = "", untilMs = ""] = record.split("|", 2);
    const text = record.slice(`${atMs}|${untilMs}|`.length);
    const forMs = untilMs === "" ? Infinity : Number(untilMs) - nowMs;
    return { name, text, atMs: Number(atMs), forMs };
  });
  return { generation, settings };
}
