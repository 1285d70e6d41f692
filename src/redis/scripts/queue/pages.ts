import type { JobShelf, PageRequest } from "../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { laneOf } from "./lanes.ts";
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
