import type { Queue as StoredQueue } from "bullmq";
import type { Stored, StoredOptions } from "./job.ts";
import type { StoredAccess } from "./stored-queue.ts";

/** BullMQ's codes for a job that is not there, and for one that has not failed. */
const NOT_THERE: readonly unknown[] = [-1, -3];
/** How often the job's worker has died: BullMQ gives a job up after so many of them, and would at once. */
const STALLED_COUNT = "stc";

/** Puts a failed job back into the queue, as if it had never run. False when it is no dead letter; of many who ask at once, one hears true. */
export function replayJob(access: StoredAccess, id: string): Promise<boolean> {
  return access.ask(async (stored) => {
    const job = (await stored.getJob(id)) as Stored<unknown> | undefined;
    if (job === undefined || job.finishedOn === undefined) return false;
    await freshen(stored, job);
    const isHeldAnew = await holdDedupeId(access, job);
    try {
      await job.retry("failed", { resetAttemptsMade: true, resetAttemptsStarted: true });
      return true;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && NOT_THERE.includes(error.code)))
        throw error;
      const left = await stored.getJob(id);
      // Somebody else has replayed it, and it holds its dedupeId; or it has ended since, or was purged.
      const isThere = left?.name !== undefined && left.finishedOn === undefined;
      if (isHeldAnew && !isThere) await job.removeDeduplicationKey();
      // It was purged while it was freshened: what was written since is all that there is of it.
      if (left !== undefined && left.name === undefined) await stored.remove(id);
      return false;
    }
  });
}

/** It gave its dedupeId up as it failed; one that holds for a time holds for that time. Whether it was free. */
async function holdDedupeId(access: StoredAccess, { id, opts }: Stored<unknown>): Promise<boolean> {
  const { id: dedupeId, ttl } = opts.deduplication ?? {};
  if (dedupeId === undefined || ttl !== undefined) return false;
  return access.holdDedupeId(dedupeId, id!);
}

/** Before it goes back, since a worker may have it at once. */
async function freshen(stored: StoredQueue, { id, opts }: Stored<unknown>): Promise<void> {
  const client = await stored.getBackend().client;
  const key = stored.toKey(id!);
  await client.hdel(key, STALLED_COUNT);
  const { maxWaitMs } = opts.sluice ?? {};
  const written = maxWaitMs === undefined ? null : await client.hget(key, "opts");
  if (maxWaitMs === undefined || written === null) return;
  // As they are stored, since BullMQ has shorter names for some of them there.
  const options = JSON.parse(written) as StoredOptions;
  const sluice = { ...options.sluice, startByMs: Date.now() + maxWaitMs };
  await client.hset(key, { opts: JSON.stringify({ ...options, sluice }) });
}
