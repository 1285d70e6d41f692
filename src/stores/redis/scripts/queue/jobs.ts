import type {
  BegunJob,
  HeldJob,
  JobEnd,
  JobPast,
  KeptFailed,
  KeptJobs,
} from "../../../../core/stores/queue/store.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

/** The time of the server that holds a queue, in µs since 1970. */
export const clockRead: Script<QueueName, number> = defineScript({
  name: "clock-read",
  keys: (input) => [`${baseOf(input)}meta`],
  args: () => [],
  decode(reply) {
    const [seconds, us] = reply as readonly string[];
    return Number(seconds) * 1_000_000 + Number(us);
  },
});

export interface JobsBegin extends QueueName, BegunJob {}

export const jobsBegin: Script<JobsBegin, void> = defineScript({
  name: "queue/workers/jobs-begin",
  keys: (input) => [baseOf(input) + input.id],
  args: ({ startByMs, isSuspect }) => [startByMs ?? "", isSuspect ? 1 : 0],
  decode: () => undefined,
});

export interface JobsRecall extends QueueName {
  readonly id: string;
}

export const jobsRecall: Script<JobsRecall, JobPast> = defineScript({
  name: "queue/workers/jobs-recall",
  keys: (input) => [baseOf(input) + input.id],
  args: () => [],
  decode(reply) {
    const [deaths, keptMs] = reply as [number, string];
    return { deaths: Number(deaths), keptMs: keptMs === "" ? undefined : Number(keptMs) };
  },
});

export interface JobsHeld extends QueueName {
  /** How the tokens of a worker begin. */
  readonly tokens: string;
}

export const jobsHeld: Script<JobsHeld, HeldJob[]> = defineScript({
  name: "queue/workers/jobs-held",
  keys: (input) => [`${baseOf(input)}active`],
  args: (input) => [baseOf(input), input.tokens],
  decode(reply) {
    const held: HeldJob[] = [];
    const parts = reply as string[];
    for (let at = 0; at < parts.length; at += 2)
      held.push({ id: parts[at]!, token: parts[at + 1]! });
    return held;
  },
});

export interface JobsForget extends QueueName, KeptJobs {}

/** True if there may be more to remove. */
export const jobsForget: Script<JobsForget, boolean> = defineScript({
  name: "queue/ends/jobs-forget",
  keys: (input) => [`${baseOf(input)}completed`],
  args: (input) => [baseOf(input), input.count, input.forMs, AWAITED_MS],
  decode: (reply) => Number(reply) === 1,
});

export interface FailedForget extends QueueName, KeptFailed {}

/** How many were removed, and whether there may be more to remove. */
export const failedForget: Script<FailedForget, { removed: number; isMore: boolean }> =
  defineScript({
    name: "queue/ends/failed-forget",
    keys: (input) => [`${baseOf(input)}failed`, replayingKey(input)],
    args: (input) => [baseOf(input), input.count ?? "", input.forMs ?? ""],
    decode(reply) {
      const [removed, more] = reply as [number, number];
      return { removed: Number(removed), isMore: Number(more) === 1 };
    },
  });

/** The key of what is there while somebody replays dead letters: none has a job's name. */
export function replayingKey(name: QueueName): string {
  return `${baseOf(name)}replaying:`;
}

/** How long it is noted that a process waits for a job, and then its result kept: longer than waits take to be renewed. */
const AWAITED_MS = 600_000;

export interface JobsAwait extends QueueName {
  readonly process: string;
  /** Up to a thousand. */
  readonly ids: readonly string[];
}

/** For each job how it ended; undefined if it has not. */
export const jobsAwait: Script<JobsAwait, readonly (JobEnd | undefined)[]> = defineScript({
  name: "queue/ends/jobs-await",
  keys: (input) => ["completed", "failed"].map((name) => baseOf(input) + name),
  args: (input) => [baseOf(input), input.process, AWAITED_MS, ...input.ids],
  decode: (reply, { ids }) => {
    const values = reply as readonly (number | string)[];
    return ids.map((_id, index) => readEnd(values.slice(3 * index, 3 * index + 3)));
  },
});

function readEnd([given, text, facts]: readonly (number | string)[]): JobEnd | undefined {
  const state = Number(given);
  if (state === 1) return { state: "done", json: String(text) };
  if (state === 2) return { state: "failed", reason: String(text), facts: String(facts) };
  if (state === 3) return { state: "cancelled" };
  return state === -1 ? { state: "missing" } : undefined;
}

export const jobsTold: Script<JobsAwait, void> = defineScript({
  name: "queue/ends/jobs-told",
  keys: (input) =>
    input.ids.flatMap((id) => ["awaited:", "outcome:"].map((of) => baseOf(input) + of + id)),
  args: ({ process }) => [process],
  decode: () => undefined,
});
