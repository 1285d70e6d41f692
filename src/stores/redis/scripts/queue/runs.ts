import type {
  RunAnswer,
  RunDeclaration,
  RunDeclared,
  RunDrop,
  RunName,
  RunsEnded,
  RunStep,
} from "../../../../core/stores/queue/runs.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

/** BullMQ's keys that the scripts of schedules write. */
const NAMES = [
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
];

function keysOf({ prefix, queue, name }: QueueName & { readonly name: string }): readonly string[] {
  const base = baseOf({ prefix, queue });
  return [...NAMES, `repeat:${name}`].map((key) => base + key);
}

export interface RunsDeclare extends QueueName, RunDeclaration {}

export const runsDeclare: Script<RunsDeclare, RunDeclared> = defineScript({
  name: "queue/runs/runs-declare",
  bringsJobs: true,
  keys: (input) => keysOf(input),
  args: (input) => {
    const { name, fields, cronMs = 0 } = input;
    return [baseOf(input), name, JSON.stringify(fields), cronMs];
  },
  decode(reply) {
    const [nowMs, id, fields, isNew] = reply as [number | string, string?, string[]?, number?];
    if (id === undefined || fields === undefined) return { nowMs: Number(nowMs) };
    return { id, fields, isNew: Number(isNew) === 1 };
  },
});

export interface RunsBegin extends QueueName, RunStep {}

export const runsBegin: Script<RunsBegin, RunAnswer> = defineScript({
  name: "queue/runs/runs-begin",
  keys: (input) => keysOf(input),
  args: (input) => {
    const { name, id, step, next } = input;
    return [baseOf(input), name, id, step, next === undefined ? "" : JSON.stringify(next)];
  },
  decode: readAnswer,
});

export const runsDrop: Script<QueueName & RunDrop, RunAnswer> = defineScript({
  name: "queue/runs/runs-drop",
  keys: (input) => keysOf(input),
  args: (input) => {
    const { name, id, next } = input;
    return [baseOf(input), name, id, next === undefined ? "" : JSON.stringify(next)];
  },
  decode: readAnswer,
});

function readAnswer(reply: unknown): RunAnswer {
  const [what, ofSchedule, nowMs, atMs, inTime, cron, timeZone] = reply as readonly unknown[];
  const isOfSchedule = Number(ofSchedule) === 1;
  switch (Number(what)) {
    case 1:
      return { says: "go", isOfSchedule };
    case 2:
      return { says: "left out" };
    case 3: {
      const at = { nowMs: Number(nowMs), atMs: Number(atMs), isInTime: Number(inTime) === 1 };
      return { says: "next time?", ...at, cron: String(cron), timeZone: String(timeZone) };
    }
    default:
      return { says: "gone" };
  }
}

export interface RunsSettle extends QueueName, RunName {
  /** Whether it has begun as a run of this schedule for certain. */
  readonly hasBegun: boolean;
}

export const runsSettle: Script<RunsSettle, void> = defineScript({
  name: "queue/runs/runs-settle",
  keys: (input) => keysOf(input),
  args: (input) => [baseOf(input), input.name, input.id, input.hasBegun ? 1 : 0],
  decode: () => undefined,
});

export const runsEnd: Script<QueueName & { readonly name: string }, RunsEnded> = defineScript({
  name: "queue/runs/runs-end",
  keys: (input) => keysOf(input),
  args: (input) => [baseOf(input), input.name],
  decode(reply) {
    const [isEnded, ...removed] = reply as [number, ...string[]];
    return { isEnded: Number(isEnded) === 1, removed };
  },
});
