import { defineScript, type Script } from "../script.ts";
import { baseOf, type QueueName } from "./queue-keys.ts";

export interface JobsForget extends QueueName {
  /** So many are kept … */
  readonly most: number;
  /** … for so long. */
  readonly forMs: number;
}

/** True if there may be more to remove. */
export const jobsForget: Script<JobsForget, boolean> = defineScript({
  name: "jobs-forget",
  keys: (input) => [`${baseOf(input)}completed`],
  // By the clock of a worker, as BullMQ notes when a job was done.
  args: (input) => [baseOf(input), input.most, Date.now() - input.forMs],
  decode: (reply) => Number(reply) === 1,
});
