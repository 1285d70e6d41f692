import type { RunDeclaration } from "../../core/queue-store.ts";
import { defineScript, type Script } from "../script.ts";
import { baseOf, type QueueName } from "./queue-keys.ts";

export interface RunsDeclare extends QueueName, RunDeclaration {}

/** False if the run is not due any more, and nothing was written. */
export const runsDeclare: Script<RunsDeclare, boolean> = defineScript({
  name: "runs-declare",
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
