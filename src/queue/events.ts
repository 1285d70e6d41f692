import type { Emitter } from "../core/events.ts";

/** What becomes of a queue's jobs, whichever process does it. */
export interface QueueEvents {
  /** A job waits for a worker: it has come, has come back, or its time has come. */
  readonly waiting: { readonly jobId: string };
  /** A worker has taken a job; it runs as soon as its slot comes. */
  readonly active: { readonly jobId: string };
  /** A job waits for a later time. `atMs` is in ms since 1970. */
  readonly delayed: { readonly jobId: string; readonly atMs: number };
  /** A job is done. `result` is what its handler returned, as JSON holds it; null for nothing. */
  readonly done: { readonly jobId: string; readonly result: unknown };
  /** A job has failed for good; it is a dead letter now. */
  readonly failed: { readonly jobId: string; readonly reason: string };
  /**
   * An attempt has failed and there will be another. `attempt` is the one that failed: 1 is the first. It is told once
   * the job is back in the queue: `delayed`, `waiting` or `active` of the next attempt may come before it.
   */
  readonly retrying: { readonly jobId: string; readonly attempt: number; readonly reason: string };
  /** A handler tells how far it is. */
  readonly progress: { readonly jobId: string; readonly progress: unknown };
  /** A job's worker has died or stands still; the job waits for another. */
  readonly stalled: { readonly jobId: string };
  /** A job was removed by its id, or by a purge. */
  readonly removed: { readonly jobId: string };
}

export type QueueEventName = keyof QueueEvents;

export type QueueListener<Name extends QueueEventName> = (event: QueueEvents[Name]) => unknown;

/** The fields of an event, as BullMQ reads them from its stream. */
export interface StoredEvent {
  readonly jobId: string;
  readonly [field: string]: unknown;
}

type Readers = {
  readonly [Name in QueueEventName]: {
    /** BullMQ's name of the event. */
    readonly stored: string;
    readonly read: (event: StoredEvent) => QueueEvents[Name];
  };
};

const readId = ({ jobId }: StoredEvent): { readonly jobId: string } => ({ jobId });

/** Each event of ours: how BullMQ calls it, and what is read from it. */
export const EVENT_READERS: Readers = {
  waiting: { stored: "waiting", read: readId },
  active: { stored: "active", read: readId },
  delayed: { stored: "delayed", read: ({ jobId, delay }) => ({ jobId, atMs: Number(delay) }) },
  done: {
    stored: "completed",
    read: ({ jobId, returnvalue }) => ({ jobId, result: returnvalue ?? null }),
  },
  failed: {
    stored: "failed",
    read: ({ jobId, failedReason }) => ({ jobId, reason: textOf(failedReason) }),
  },
  retrying: {
    // BullMQ has no such event: our workers write it, see retry-events.ts.
    stored: "sluice-retrying",
    read: ({ jobId, attempt, reason }) => ({
      jobId,
      attempt: Number(attempt),
      reason: textOf(reason),
    }),
  },
  progress: { stored: "progress", read: ({ jobId, data }) => ({ jobId, progress: data }) },
  stalled: { stored: "stalled", read: readId },
  removed: { stored: "removed", read: readId },
};

export const EVENT_NAMES: readonly QueueEventName[] = Object.keys(
  EVENT_READERS,
) as QueueEventName[];

/** How many events BullMQ keeps, about. */
export const KEPT_EVENTS = 10_000;

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** What all the events of a queue are heard with. */
export interface QueueEmitter extends Emitter<QueueEvents> {
  /**
   * Calls a listener on each event of this kind, over all workers, from the next call of this queue on.
   * The first listener opens a connection to Redis; while Redis is away, it is tried again each second.
   * What a listener throws goes to the logger.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is no function.
   * @throws {@link ClosedError} after the sluice was closed.
   */
  on: Emitter<QueueEvents>["on"];
}
