import type { Queue } from "bullmq";
import type { Stored } from "./stored-job.ts";

/** The job that has a dedupeId, of which this is the id if there is one; or else the next run of the schedule of this name. */
export async function findDeduped<Data>(
  queue: Queue,
  dedupeId: string,
  id: string | undefined,
): Promise<Stored<Data> | undefined> {
  const held =
    id === undefined ? undefined : ((await queue.getJob(id)) as Stored<Data> | undefined);
  // Without a dedupeMs, one that has ended has given it up.
  const holds = held?.finishedOn === undefined || held.opts.deduplication?.ttl !== undefined;
  if (held !== undefined && holds) return held;
  const next = (await queue.getJobScheduler(dedupeId))?.next;
  if (next === undefined) return undefined;
  return (await queue.getJob(`repeat:${dedupeId}:${next}`)) as Stored<Data> | undefined;
}
