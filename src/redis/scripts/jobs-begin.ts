import { defineScript, type Script } from "../script.ts";
import { baseOf, type QueueName } from "./queue-keys.ts";

export interface JobsBegin extends QueueName {
  readonly id: string;
  /** The deadline that it keeps, in ms since 1970. */
  readonly startByMs: number;
}

export const jobsBegin: Script<JobsBegin, void> = defineScript({
  name: "jobs-begin",
  keys: (input) => [baseOf(input) + input.id],
  args: ({ startByMs }) => [startByMs],
  decode: () => undefined,
});

/** Where a job keeps it. */
export const BEGUN_FIELD = "sluice:begun";
