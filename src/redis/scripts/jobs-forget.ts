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
  args: (input) => [baseOf(input), input.most, input.forMs],
  decode: (reply) => Number(reply) === 1,
});
