import type { LaneStore } from "../core/lane-store.ts";
import { readJob, type Stored } from "./job.ts";
import { PARK_MS } from "./lane.ts";
import { loadBullmq } from "./load-bullmq.cjs";

/** Sets a job back that was fetched and has not begun: others fetch it in its turn, and no attempt is used. */
export async function setBack<Data>(
  stored: Stored<Data>,
  token: string,
  parts: {
    readonly queue: string;
    readonly lanes: Pick<LaneStore, "join">;
    /** The weight of a key's lane, if it is not 1. */
    readonly weightOf: (key: string | undefined) => number | undefined;
  },
): Promise<never> {
  const { queue, lanes, weightOf } = parts;
  const { id, key } = readJob(stored);
  const { DelayedError, WaitingError } = loadBullmq();
  if (key === undefined) {
    await stored.moveToWait(token);
    throw new WaitingError();
  }
  // BullMQ would fetch it after all that come out of lanes: they lie in its list, and this one would have a priority.
  await stored.moveToDelayed(Date.now() + PARK_MS, token);
  // Not left to the feeder: the connection may be closed as soon as this job has ended.
  await lanes.join(queue, [{ id, weight: weightOf(key) }]);
  throw new DelayedError();
}
