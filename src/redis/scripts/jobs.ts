import type { RunDeclaration } from "../../core/queue-store.ts";
import { baseOf, type QueueName } from "./keys.ts";
import { defineScript, type Script } from "./script.ts";

export interface JobsBegin extends QueueName {
  readonly id: string;
  /** The deadline that it keeps, in ms since 1970. */
  readonly startByMs: number;
}

export const jobsBegin: Script<JobsBegin, void> = defineScript({
  name: "queue/jobs-begin",
  keys: (input) => [baseOf(input) + input.id],
  args: ({ startByMs }) => [startByMs],
  decode: () => undefined,
});

/** Where a job keeps it. */
export const BEGUN_FIELD = "sluice:begun";

export interface JobsForget extends QueueName {
  /** So many are kept … */
  readonly most: number;
  /** … for so long. */
  readonly forMs: number;
}

/** True if there may be more to remove. */
export const jobsForget: Script<JobsForget, boolean> = defineScript({
  name: "queue/jobs-forget",
  keys: (input) => [`${baseOf(input)}completed`],
  // By the clock of a worker, as BullMQ notes when a job was done.
  args: (input) => [baseOf(input), input.most, Date.now() - input.forMs],
  decode: (reply) => Number(reply) === 1,
});

export interface RunsDeclare extends QueueName, RunDeclaration {}

/** False if the run is not due any more, and nothing was written. */
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
