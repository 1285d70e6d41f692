import type { JobShelf, PageRequest } from "../../../../core/stores/queue/steering.ts";
import type { QueueCounts } from "../../../../core/stores/queue/store.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { laneOf, lanesState } from "./lanes.ts";
import { defineScript, type Script } from "../script.ts";

export const jobsPage: Script<QueueName & PageRequest, { ids: string[]; end: string }> =
  defineScript({
    name: "queue/steer/jobs-page",
    keys: (input) => {
      const { shelf } = input;
      return [
        typeof shelf === "string" ? baseOf(input) + shelf : laneOf({ ...input, key: shelf.lane }),
      ];
    },
    args: (input) => {
      const { shelf, from, lookedAt, most, parked, key = "", name = "" } = input;
      const where =
        parked === "below" ? parked : parked === undefined ? "" : parked ? "lane" : "free";
      return [baseOf(input), from, lookedAt, most, kindOf(shelf), where, key, name];
    },
    decode: (reply) => {
      const [end, ...ids] = reply as [string, ...string[]];
      return { ids, end };
    },
  });

function kindOf(shelf: JobShelf): string {
  if (shelf === "wait") return "line";
  if (shelf === "active") return "list";
  return shelf === "completed" || shelf === "failed" ? "newest" : "zset";
}

const COUNTED = ["wait", "prioritized", "active", "delayed", "completed", "failed"];

export const jobsCount: Script<QueueName, QueueCounts> = defineScript({
  name: "queue/steer/jobs-count",
  keys: (input) => [...COUNTED.map((list) => baseOf(input) + list), lanesState(input)],
  args: () => [],
  decode: (reply) => {
    const [waiting = 0, active = 0, delayed = 0, done = 0, failed = 0] = (
      reply as (number | string)[]
    ).map(Number);
    return { waiting, active, delayed, done, failed };
  },
});
