import type { Worker as StoredWorker } from "bullmq";
import { EVENT_READERS, KEPT_EVENTS } from "./events.ts";

/** BullMQ tells of a failed attempt to its own process only; this tells all who listen to the queue. */
export function publishRetries<Data, Result>(stored: StoredWorker<Data, Result>): void {
  stored.on("failed", (job, error) => {
    // A job that has ended has failed for good, of which BullMQ tells.
    if (job?.id === undefined || job.finishedOn !== undefined) return;
    const event = EVENT_READERS.retrying.stored;
    const fields = { event, jobId: job.id, attempt: job.attemptsMade, reason: error.message };
    // An event that is lost in an outage is lost: the job itself is not.
    stored
      .getBackend()
      .publishEvent(fields, KEPT_EVENTS)
      .catch(() => undefined);
  });
}
