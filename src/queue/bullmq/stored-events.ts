import type { Queue, QueueEvents as StoredEvents, Worker } from "bullmq";
import { readErrorFacts } from "../failure.ts";
import { storedQueueName, type QueueConnection } from "./connection.ts";
import { loadBullmq } from "./load-bullmq.cjs";

/** How many events BullMQ keeps, about. */
const KEPT_EVENTS = 10_000;
const MARK = "sluice-listening";

/**
 * BullMQ has no event for a failed attempt that will be repeated: the worker's `failed` is local, so our workers publish
 * this one. No upstream issue known; checked with bullmq 6.7.0 (`QueueEventsListener` in queue-events.d.ts). It can go
 * when BullMQ has one.
 */
export const RETRYING = "sluice-retrying";

/**
 * Publishes a mark, and resolves with its place in the stream: a reader that starts there misses nothing. BullMQ reads from
 * "now" on, anew with each read, and so misses what comes between two reads until the first event has come
 * (taskforcesh/bullmq#2874 in part; checked with bullmq 6.7.0, `consumeEvents` in queue-events.js).
 */
export function markEvents(queue: Queue): Promise<string> {
  return queue.getBackend().publishEvent({ event: MARK }, KEPT_EVENTS);
}

/** Reads all events after that place. */
export function openStoredEvents(
  queue: string,
  options: {
    readonly connection: QueueConnection;
    readonly prefix: string;
    readonly lastEventId: string;
  },
): StoredEvents {
  const { connection, prefix, lastEventId } = options;
  const { QueueEvents } = loadBullmq();
  return new QueueEvents(storedQueueName(queue), {
    connection: connection.client,
    prefix,
    lastEventId,
  });
}

/** Publishes each failed attempt that will be repeated. */
export function publishRetries<Data, Result>(stored: Worker<Data, Result>): void {
  stored.on("failed", (job, error) => {
    // For a job that has ended, BullMQ publishes that it has failed.
    if (job?.id === undefined || job.finishedOn !== undefined) return;
    const { id: jobId, attemptsMade: attempt } = job;
    const facts = JSON.stringify(readErrorFacts(error));
    const fields = { event: RETRYING, jobId, attempt, reason: error.message, facts };
    // An event that is lost in an outage is lost: the job itself is not.
    stored
      .getBackend()
      .publishEvent(fields, KEPT_EVENTS)
      .catch(() => undefined);
  });
}
