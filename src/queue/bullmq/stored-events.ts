import type { Queue, Worker } from "bullmq";
import { readErrorFacts } from "../failure.ts";

/** About how many events BullMQ keeps. */
const KEPT_EVENTS = 10_000;
const MARK = "sluice-listening";

/**
 * BullMQ has no event for a failed attempt that will be repeated: the worker's `failed` is local, so our workers publish
 * this one. No upstream issue known; checked with bullmq 6.7.0 (`QueueEventsListener` in queue-events.d.ts). It can go
 * when BullMQ has one.
 */
export const RETRYING = "sluice-retrying";

/**
 * Our scripts publish this event before they remove a job that was cancelled (`lua/lib/lanes/states/cancelled.lua`).
 */
export const CANCELLED_EARLY = "sluice-cancelled";

/** The events of a queue, as BullMQ stores them. */
export interface EventLog {
  /** The key of their stream. */
  readonly stream: string;
  /** The id of its last entry. */
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

/** The fields that BullMQ stores as JSON. */
const AS_JSON = new Set(["data", "returnvalue"]);

/** Reads an entry of the stream, whose name is `event`, as BullMQ's `QueueEvents` does; checked with bullmq 6.7.0 (`consumeEvents` in queue-events.js). */
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

/** Publishes each failed attempt that will be repeated. */
export function publishRetries<Data, Result>(stored: Worker<Data, Result>): void {
  stored.on("failed", (job, error) => {
    // If the job has ended, BullMQ publishes that it has failed.
    if (job?.id === undefined || job.finishedOn !== undefined) return;
    const { id: jobId, attemptsMade: attempt } = job;
    const facts = JSON.stringify(readErrorFacts(error));
    const fields = { event: RETRYING, jobId, attempt, reason: error.message, facts };
    // The event is lost in an outage, but the job is not.
    stored
      .getBackend()
      .publishEvent(fields, KEPT_EVENTS)
      .catch(() => undefined);
  });
}
