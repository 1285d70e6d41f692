import type { LiveWorkers } from "../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export interface WorkersNote extends QueueName {
  readonly worker: string;
  readonly places: number;
  readonly forMs: number;
}

export const workersNote: Script<WorkersNote, void> = defineScript({
  name: "queue/workers/workers-note",
  keys: (input) => [`${baseOf(input)}workers:live`],
  args: ({ worker, places, forMs }) => [worker, places, forMs],
  decode: () => undefined,
});

export const workersLook: Script<QueueName, LiveWorkers> = defineScript({
  name: "queue/workers/workers-look",
  keys: (input) => [`${baseOf(input)}workers:live`],
  args: () => [],
  decode: (reply) => {
    const [workers, places] = reply as readonly [number, number];
    return { workers, places };
  },
});
