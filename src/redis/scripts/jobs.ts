import type { RunDeclaration } from "../../core/queue-store.ts";
import { baseOf, type QueueName } from "./keys.ts";
import { defineScript, type Script } from "./script.ts";

export interface JobsBegin extends QueueName {
  readonly id: string;
  /** The deadline that the job keeps, in ms since 1970. */
  readonly startByMs: number;
}

export const jobsBegin: Script<JobsBegin, void> = defineScript({
  name: "queue/jobs-begin",
  keys: (input) => [baseOf(input) + input.id],
  args: ({ startByMs }) => [startByMs],
  decode: () => undefined,
});

/** The field of a job's hash that holds it. */
export const BEGUN_FIELD = "sluice:begun";

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
