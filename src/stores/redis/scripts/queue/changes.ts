import type { JobMove, Moved, RemovedState } from "../../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { laneKeys } from "./lanes.ts";
import { defineScript, type Script } from "../script.ts";

const MOVES = ["refused", "moved", "same"] as const;

export const jobsMove: Script<QueueName & JobMove & { ids: readonly string[] }, Moved> =
  defineScript({
    name: "queue/steer/jobs-move",
    keys: (input) => laneKeys(input, ["prioritized", "repeat"]),
    args: (input) => {
      const { at, onlyDelayed, ids } = input;
      const [ms, inMs] = "ms" in at ? [at.ms, ""] : ["", at.inMs];
      return [baseOf(input), ms, inMs, Number(onlyDelayed), ...ids];
    },
    decode: (reply) => {
      const [atMs, ...moves] = reply as readonly [string, ...number[]];
      return { atMs: Number(atMs), moves: moves.map((move) => MOVES[move]!) };
    },
  });

/** BullMQ's names of the sets of ended jobs. */
const ENDED_IN: Readonly<Record<RemovedState, readonly string[]>> = {
  pending: [],
  done: ["completed"],
  failed: ["failed"],
  any: ["completed", "failed"],
};

export const jobsRemove: Script<
  QueueName & { state: RemovedState; ids: readonly string[] },
  string[]
> = defineScript({
  name: "queue/steer/jobs-remove",
  keys: (input) => laneKeys(input, ["prioritized", "repeat", "active", ...ENDED_IN[input.state]]),
  args: (input) => [baseOf(input), modeOf(input.state), ...input.ids],
  decode: (reply) => reply as string[],
});

function modeOf(state: RemovedState): string {
  return state === "done" || state === "failed" ? "ended" : state;
}

const UPDATES = ["missing", "updated", "active", "done"] as const;

export interface JobsUpdate extends QueueName {
  readonly id: string;
  readonly json: string;
}

export const jobsUpdate: Script<JobsUpdate, (typeof UPDATES)[number]> = defineScript({
  name: "queue/steer/jobs-update",
  keys: (input) => laneKeys(input, ["prioritized", "completed"]),
  args: (input) => [baseOf(input), input.id, input.json],
  decode: (reply) => UPDATES[Number(reply)]!,
});
