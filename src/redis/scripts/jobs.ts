import type { BegunJob, HeldJob, JobPast, RunDeclaration } from "../../core/queue-store.ts";
import { baseOf, type QueueName } from "./keys.ts";
import { defineScript, type Script } from "./script.ts";

export interface JobsBegin extends QueueName, BegunJob {}

export const jobsBegin: Script<JobsBegin, void> = defineScript({
  name: "queue/jobs-begin",
  keys: (input) => [baseOf(input) + input.id],
  args: ({ startByMs, isSuspect }) => [startByMs ?? "", isSuspect ? 1 : 0],
  decode: () => undefined,
});

export interface JobsRecall extends QueueName {
  readonly id: string;
}

export const jobsRecall: Script<JobsRecall, JobPast> = defineScript({
  name: "queue/jobs-recall",
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
  name: "queue/jobs-held",
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

export interface JobsForget extends QueueName {
  /** How many are kept at most, and for how long. */
  readonly most: number;
  readonly forMs: number;
}

/** True if there may be more to remove. */
export const jobsForget: Script<JobsForget, boolean> = defineScript({
  name: "queue/jobs-forget",
  keys: (input) => [`${baseOf(input)}completed`],
  // By the clock of this worker: BullMQ stores the time at which a job was done by a worker's clock, too.
  args: (input) => [baseOf(input), input.most, Date.now() - input.forMs],
  decode: (reply) => Number(reply) === 1,
});

export interface RunsDeclare extends QueueName, RunDeclaration {}

/** False if the run is no longer due; then nothing is written. */
export const runsDeclare: Script<RunsDeclare, boolean> = defineScript({
  name: "queue/runs-declare",
  keys: (input) => {
    const base = baseOf(input);
    return [`${base}repeat`, `${base}repeat:${input.name}`, base + input.id, `${base}active`];
  },
  args: ({ name, id, dueAtMs, schedule, run }) => [
    name,
    id,
    dueAtMs,
    JSON.stringify({ schedule, run }),
  ],
  decode: (reply) => Number(reply) === 1,
});
