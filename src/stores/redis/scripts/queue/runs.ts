/** Scripts of recurring jobs: of each schedule at most one run waits, and the next one is planned as it begins. */
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

/** What is known of the times of a cron schedule, to compute the next one. */
export interface CronState {
  readonly nowMs: number;
  /** The first time that is not counted yet. */
  readonly atMs: number;
  /** Whether the run at hand is the one for that time. */
  readonly isInTime: boolean;
  readonly cron: string;
  readonly timeZone: string;
}

/** The next time of a cron schedule that is yet to come, and how many have passed before it, uncounted. */
export interface NextCron extends Omit<CronState, "nowMs"> {
  readonly nextMs: number;
  readonly passed: number;
}

/**
 * The run that waits next, with the fields of its hash, and whether the schedule is new; or the present, from which the next
 * time of cron is to be computed.
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
  /** The worker goes on with it. */
  | { readonly says: "go"; readonly isOfSchedule: boolean }
  /** It is no longer there, or counted as missed: nothing is left to do with it. */
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
      /** Its fields as BullMQ stores them, and ours. */
      fields: json<Readonly<Record<string, string | number>>>(),
      /** The next time of cron, in ms since 1970, computed from an earlier answer. */
      cronMs: optional(int, 0),
    },
    reply: mapped(DECLARED, ({ nowMs, id, ...run }): RunDeclared =>
      id === undefined ? { nowMs } : { id, ...run },
    ),
  }),

  /** Asks what a worker does with a run: wait for its slot, begin it, or leave it out since it is too late. */
  begin: shapeScript({
    name: "queue/runs/runs-begin",
    keys: keysOf,
    args: { prefix, ...RUN, step: word<"look" | "begin" | "miss">(), ...NEXT },
    reply: ANSWER,
  }),

  /** Removes a run that waits for its next attempt, and plans the next one. `"gone"` if it does not wait for one. */
  drop: shapeScript({
    name: "queue/runs/runs-drop",
    keys: keysOf,
    args: { prefix, ...RUN, ...NEXT },
    reply: ANSWER,
  }),

  /** Takes note of what became of a run that had begun. */
  settle: shapeScript({
    name: "queue/runs/runs-settle",
    keys: keysOf,
    args: {
      prefix,
      ...RUN,
      /** Whether it has begun as a run of this schedule for certain. */
      hasBegun: flag,
    },
  }),

  /** Ends a schedule, and removes its runs that wait, wherever they do. */
  end: shapeScript({
    name: "queue/runs/runs-end",
    keys: keysOf,
    args: { prefix, name: text },
    reply: {
      /** Whether there was such a schedule. */
      isEnded: flag,
      /** The ids of the runs that were removed. */
      removed: rest(text),
    },
  }),
};

/** A schedule as it is declared. */
export type RunDeclaration = Omit<ScriptInput<typeof runScripts.declare>, keyof QueueName>;
/** What a worker is about to do with a run. */
export type RunStep = Omit<ScriptInput<typeof runScripts.begin>, keyof QueueName>;

/** BullMQ's keys that the scripts of schedules write. */
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
