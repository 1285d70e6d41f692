import type { Queue, Worker } from "bullmq";
import { readErrorFacts } from "../failure.ts";

/** About how many events BullMQ keeps. */
const KEPT_EVENTS = 10_000;
const MARK = "sluice-listening";

/**
 * The event that our workers publish when an attempt has failed and will be retried. BullMQ has no such event: the
 * `failed` event of its worker reaches only the same process. No upstream issue known; checked with bullmq 6.7.0
 * (`QueueEventsListener` in queue-events.d.ts). Remove this event when BullMQ has one.
 */
export const RETRYING = "sluice-retrying";

/**
 * Our scripts publish this event before they remove a job that was cancelled (`lua/lib/lanes/states/cancelled.lua`).
 */
export const CANCELLED_EARLY = "sluice-cancelled";

/** The Redis stream in which BullMQ stores the events of a queue. */
export interface EventLog {
  /** The key of the stream. */
  readonly stream: string;
  /** The id of the stream's last entry. */
  readonly lastId: string;
}

/** Publishes a mark, and resolves with its position in the stream. A reader that starts there misses no event. */
export async function markEvents(queue: Queue): Promise<EventLog> {
  const lastId = await queue.getBackend().publishEvent({ event: MARK }, KEPT_EVENTS);
  return { stream: queue.toKey("events"), lastId };
}

/** The fields of an event in BullMQ's stream. */
export interface StoredEvent {
  readonly jobId: string;
  readonly [field: string]: unknown;
}

/** The event fields that BullMQ stores as JSON. */
const AS_JSON = new Set(["data", "returnvalue"]);

/**
 * Reads an entry of the event stream as BullMQ's `QueueEvents` does. The field `event` is the event's name. Checked
 * with bullmq 6.7.0 (`consumeEvents` in queue-events.js).
 */
export function readEvent(fields: readonly string[]): StoredEvent {
  const event: Record<string, unknown> = {};
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const name = fields[at]!;
    const value = fields[at + 1]!;
    event[name] = AS_JSON.has(name) ? parsed(value) : value;
  }
  return event as StoredEvent;
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}

/** Publishes an event for each failed attempt that will be retried. */
export function publishRetries<Data, Result>(stored: Worker<Data, Result>): void {
  stored.on("failed", (job, error) => {
    // If the job has ended, BullMQ itself publishes a `failed` event.
    if (job?.id === undefined || job.finishedOn !== undefined) return;
    const { id: jobId, attemptsMade: attempt } = job;
    const facts = JSON.stringify(readErrorFacts(error));
    const fields = { event: RETRYING, jobId, attempt, reason: error.message, facts };
    // An outage of Redis loses the event, but not the job.
    stored
      .getBackend()
      .publishEvent(fields, KEPT_EVENTS)
      .catch(() => undefined);
  });
}
