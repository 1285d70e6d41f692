/**
 * Scripts for recurring jobs. Each schedule has at most one waiting run. When that run begins, the
 * script plans the next one.
 */
import { queueKeys, type QueueName } from "../keys.ts";
import { shapeScript, type ScriptInput } from "../script.ts";
import { flag, int, json, list, mapped, optional, rest, text, word } from "../shape.ts";
import { prefix } from "./lanes.ts";

/** A run of a schedule. */
const RUN = {
  /** The schedule's name. */
  name: text,
  id: text,
};
export interface RunName {
  readonly name: string;
  readonly id: string;
}

/** The state of a cron schedule from which the worker computes the next run's time. */
export interface CronState {
  readonly nowMs: number;
  /** The first scheduled time that is not yet counted as run or missed. */
  readonly atMs: number;
  /** True if the current run is the one for `atMs`. */
  readonly isInTime: boolean;
  readonly cron: string;
  readonly timeZone: string;
}

/**
 * The next future time of a cron schedule. `passed` is the number of earlier times that have passed
 * without being counted.
 */
export interface NextCron extends Omit<CronState, "nowMs"> {
  readonly nextMs: number;
  readonly passed: number;
}

/**
 * The reply to a declared schedule. Either the next waiting run, with the fields of its hash and
 * whether the schedule is new. Or only Redis's current time: the caller then computes the next time
 * of the cron expression from it, and declares the schedule again.
 */
export type RunDeclared =
  | {
      readonly id: string;
      readonly fields: readonly string[];
      readonly isNew: boolean;
      readonly nowMs?: undefined;
    }
  | { readonly nowMs: number };

export type RunAnswer =
  /** The worker takes the next step of the run. */
  | { readonly says: "go"; readonly isOfSchedule: boolean }
  /**
   * The run no longer exists (`"gone"`), or counts as missed (`"left out"`). The worker stops
   * handling the run.
   */
  | { readonly says: "gone" | "left out" }
  | ({ readonly says: "next time?" } & CronState);

const DECLARED = {
  nowMs: int,
  id: optional(text),
  fields: list(text),
  isNew: flag,
};

const ANSWER = mapped(
  {
    what: int,
    isOfSchedule: flag,
    nowMs: int,
    atMs: int,
    isInTime: flag,
    cron: text,
    timeZone: text,
  },
  ({ what, isOfSchedule, ...cron }): RunAnswer => {
    if (what === 1) return { says: "go", isOfSchedule };
    if (what === 2) return { says: "left out" };
    return what === 3 ? { says: "next time?", ...cron } : { says: "gone" };
  },
);

const NEXT = { next: optional(json<NextCron>()) };

export const runScripts = {
  declare: shapeScript({
    name: "queue/runs/runs-declare",
    bringsJobs: true,
    keys: keysOf,
    args: {
      prefix,
      name: text,
      /** The fields of the schedule: those of BullMQ, and those that Sluice adds. */
      fields: json<Readonly<Record<string, string | number>>>(),
      /**
       * The next time of the cron expression, in ms since 1970. The caller passes this time in a
       * second request, because it computes the time from the first reply.
       */
      cronMs: optional(int, 0),
    },
    reply: mapped(DECLARED, ({ nowMs, id, ...run }): RunDeclared =>
      id === undefined ? { nowMs } : { id, ...run },
    ),
  }),

  /** Decides what a worker does with a run: wait for its slot, start it, or skip it because it is too late. */
  begin: shapeScript({
    name: "queue/runs/runs-begin",
    keys: keysOf,
    args: { prefix, ...RUN, step: word<"look" | "begin" | "miss">(), ...NEXT },
    reply: ANSWER,
  }),

  /**
   * Removes a run that waits for its next attempt, and plans the next run. The reply is `"gone"` if
   * the run does not wait for an attempt.
   */
  drop: shapeScript({
    name: "queue/runs/runs-drop",
    keys: keysOf,
    args: { prefix, ...RUN, ...NEXT },
    reply: ANSWER,
  }),

  /** Records how a started run ended. */
  settle: shapeScript({
    name: "queue/runs/runs-settle",
    keys: keysOf,
    args: {
      prefix,
      ...RUN,
      /** True if the run has definitely started as a run of this schedule. */
      hasBegun: flag,
    },
  }),

  /** Ends a schedule, and removes its waiting runs from all lists and lanes. */
  end: shapeScript({
    name: "queue/runs/runs-end",
    keys: keysOf,
    args: { prefix, name: text },
    reply: {
      /** True if the schedule existed. */
      isEnded: flag,
      /** The ids of the runs that were removed. */
      removed: rest(text),
    },
  }),
};

/** The declaration of a schedule. */
export type RunDeclaration = Omit<ScriptInput<typeof runScripts.declare>, keyof QueueName>;
/** The step of a run that a worker is about to take. */
export type RunStep = Omit<ScriptInput<typeof runScripts.begin>, keyof QueueName>;

/** Returns the Redis keys of BullMQ that the schedule scripts write. */
function keysOf({ name, ...queue }: QueueName & { readonly name: string }): readonly string[] {
  return queueKeys(
    "wait",
    "delayed",
    "events",
    "meta",
    "marker",
    "active",
    "prioritized",
    "pc",
    "failed",
    "repeat",
    `repeat:${name}`,
  )(queue);
}
