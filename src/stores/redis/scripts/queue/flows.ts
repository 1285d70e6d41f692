/** Scripts for flows, in which jobs wait for other jobs: children for their parents, in any queues. */
import { queueKeys, type QueueName } from "../keys.ts";
import { shapeScript } from "../script.ts";
import { flag, from, fromEach, int, list, oneOf, optional, rest, text, word } from "../shape.ts";
import { LANE_KEYS, prefix } from "./lanes.ts";

/** What happens to a child if one of its parents fails. */
export type OnParentFailure = "fail" | "skip" | "run";

/** What a new job waits for, as the script stores it. Jobs are named `"<queue>:<id>"`. */
export interface AddedFlow {
  /** Each parent, and its outcome if that is known already: `"m"` for missing, `"c"` for cancelled. */
  readonly parents: readonly (readonly [parent: string, outcome: "" | "m" | "c"])[];
  readonly onFailure: OnParentFailure;
  /** True for the final job of a group to which jobs may be added. */
  readonly open?: boolean | undefined;
  /** How long the final job waits for jobs that were announced and not stored. */
  readonly producerTimeoutMs?: number | undefined;
  /** When the child is due after its parents have ended: `"in <ms>"`, or `"at <ms since 1970>"`. */
  readonly hold: string;
  readonly weights?: readonly number[] | undefined;
}

/** How a parent ended, as a letter: done, failed, cancelled or removed, missing. Or a dead letter is replayed. */
export type OutcomeLetter = "d" | "f" | "c" | "m" | "r";

/** A job of a queue, and the job that waits for it, as `"<queue>:<id>"`. */
const CHILD = { id: text, child: text };

export interface EndedParent {
  /** The parent's name, as `"<queue>:<id>"`. */
  readonly name: string;
  readonly outcome: OutcomeLetter;
  /** The result as JSON, or the reason for the failure. */
  readonly text: string;
}

/** The children to release. `parent` is the index of their parent. */
type Released = {
  readonly parents: readonly EndedParent[];
  readonly children: readonly { readonly id: string; readonly parent: number }[];
};

/** The state of a job that is a parent. */
export type ParentState = "pending" | "done" | "failed" | "removed" | "missing" | "long result";
const PARENT_STATES: readonly ParentState[] = [
  "pending",
  "done",
  "failed",
  "removed",
  "missing",
  "long result",
];

export const flowScripts = {
  /** Registers children of the jobs of this queue. Returns the state of each job. */
  awaitParents: shapeScript({
    name: "queue/flows/flows-await",
    bringsJobs: true,
    keys: queueKeys("lanes:state", "id"),
    args: { prefix, children: rest(CHILD) },
    reply: rest(oneOf(["missing", "registered", "cancelled", "unknown"])),
  }),

  /** Reads how jobs of this queue ended, and their children. */
  lookAtParents: shapeScript({
    name: "queue/flows/flows-look",
    keys: queueKeys("completed", "failed"),
    args: {
      prefix,
      /** The most children of each job. */
      most: int,
      /** The most characters of a result. */
      longest: int,
      jobs: rest({ id: text, from: int }),
    },
    reply: rest({ state: oneOf(PARENT_STATES), text, children: list(text) }),
  }),

  /** Records how parents ended, and releases the children that wait for no other parent. */
  releaseChildren: shapeScript({
    name: "queue/flows/flows-release",
    keys: queueKeys(...LANE_KEYS, "prioritized", "failed"),
    args: {
      prefix,
      count: from(({ parents }: Released) => parents.length),
      values: fromEach(({ parents, children }: Released) => [
        ...parents.flatMap(({ name, outcome, text: said }) => [name, outcome, said]),
        ...children.flatMap(({ id, parent }) => [id, parent + 1]),
      ]),
    },
    reply: rest(oneOf(["missing", "recorded", "removed", "resumed"])),
  }),

  /** Adds parents to the final job of an open group, closes the group, or removes parents that were not stored. */
  extendGroup: shapeScript({
    name: "queue/flows/flows-extend",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, id: text, action: word<"add" | "close" | "retract">(), parents: rest(text) },
    reply: oneOf(["closed", "done", "missing"]),
  }),

  /** Removes what jobs with parents have, after BullMQ's own scripts have removed these jobs. */
  forgetParents: shapeScript({
    name: "queue/flows/flows-drop",
    keys: queueKeys("flow:waiting"),
    args: { prefix, ids: rest(text) },
  }),

  /** Reads children that have waited for a while. Starts those that no longer wait for a parent. */
  lookAtWaiting: shapeScript({
    name: "queue/flows/flows-waiting",
    keys: queueKeys(...LANE_KEYS),
    args: {
      prefix,
      /** How soon these children are checked again, in ms. */
      againMs: int,
      most: int,
      mostParents: int,
      /** How long jobs of a group stay announced, unless the group has another time. */
      announcedMs: int,
    },
    reply: rest({ id: text, areAnnounced: flag, parents: list(text) }),
  }),

  /** Removes children that were notified. With `keptMs`, Redis keeps them that long instead. */
  forgetChildren: shapeScript({
    name: "queue/flows/flows-forget",
    keys: queueKeys("lanes:state"),
    args: { prefix, keptMs: optional(int), children: rest(CHILD) },
  }),
};

/** Returns the Redis key of the children of a job. */
export function childrenKey({ id, ...queue }: QueueName & { readonly id: string }): string {
  return queueKeys(`flow:children:${id}`)(queue)[0]!;
}

/** Returns the Redis keys of the parents that a job waits for, and of the outcomes of its other parents. */
export function parentKeys({
  id,
  ...queue
}: QueueName & { readonly id: string }): readonly [string, string] {
  const [awaited, outcomes] = queueKeys(`flow:awaited:${id}`, `flow:outcomes:${id}`)(queue);
  return [awaited!, outcomes!];
}
