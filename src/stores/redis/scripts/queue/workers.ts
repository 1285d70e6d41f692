import type {
  Ended,
  EndedSince,
  LiveWorkers,
  OldestJob,
} from "../../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export interface WorkersNote extends QueueName {
  readonly worker: string;
  readonly places: number;
  readonly forMs: number;
  readonly ended?: Ended | undefined;
}

const NONE: Ended = { done: 0, failed: 0, busyMs: 0 };

const endedKey = (input: QueueName): string => `${baseOf(input)}workers:ended`;

export const workersNote: Script<WorkersNote, void> = defineScript({
  name: "queue/workers/workers-note",
  keys: (input) => [`${baseOf(input)}workers:live`, endedKey(input)],
  args: ({ worker, places, forMs, ended = NONE }) => [
    worker,
    places,
    forMs,
    ended.done,
    ended.failed,
    ended.busyMs,
  ],
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

export const endedLook: Script<QueueName, EndedSince> = defineScript({
  name: "queue/workers/ended-look",
  keys: (input) => [endedKey(input)],
  args: () => [],
  decode: (reply) => {
    const [done, failed, busyMs, overMs] = reply as readonly [number, number, number, number];
    return { done, failed, busyMs, overMs };
  },
});

/** Where to look for it: in the lanes of these keys, and perhaps among the jobs that are in none. */
export interface OldestLook extends QueueName {
  readonly ofKeys: readonly string[];
  readonly others: boolean;
}

export const oldestLook: Script<OldestLook, OldestJob | undefined> = defineScript({
  name: "queue/lanes/oldest-look",
  keys: (input) =>
    ["wait", "prioritized", "delayed", "workers:live"].map((name) => baseOf(input) + name),
  args: (input) => [baseOf(input), Number(input.others), ...input.ofKeys],
  decode: (reply) => {
    const [id, sinceMs] = reply as readonly string[];
    return id === undefined ? undefined : { id, sinceMs: Number(sinceMs) };
  },
});
