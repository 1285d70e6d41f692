import type { EventEmitter } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { QueueEvents as StoredEvents, type Worker as StoredWorker } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import { ClosedError } from "../../core/errors.ts";
import { createEmitter, type Emitter } from "../../core/events.ts";
import type { Logger } from "../../core/logger.ts";
import { storedQueueName, type ConnectQueue } from "../connection.ts";
import { createErrorReports, type StoredAccess } from "../stored-queue.ts";

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
interface StoredEvent {
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
const KEPT_EVENTS = 10_000;

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

/** The events of one queue, heard over one connection that is opened when somebody first wants to hear. */
export interface EventStream extends QueueEmitter {
  /** Resolves once every later event is heard. Rejects as {@link StoredAccess} does. */
  listen(): Promise<void>;
  close(): Promise<void>;
}

export interface EventStreamSettings {
  readonly name: string;
  readonly access: StoredAccess;
  readonly connect: ConnectQueue;
  readonly prefix: string;
  readonly logger: Logger;
}

const RETRY_MS = 1_000;
/** What BullMQ may take to close its connection; with Redis away it would wait for it. */
const CLOSE_GRACE_MS = 2_000;
const MARK = { event: "sluice-listening" };

export function createEventStream(settings: EventStreamSettings): EventStream {
  const { name, access, connect, prefix, logger } = settings;
  const emitter = createEmitter<QueueEvents>(`queue "${name}"`, EVENT_NAMES, logger);
  const closed = new AbortController();
  let stored: StoredEvents | undefined;
  let connection: ReturnType<ConnectQueue> | undefined;
  let beginning: Promise<void> | undefined;
  let isWanted = false;
  let lastReason: string | undefined;

  function listen(): Promise<void> {
    beginning ??= begin().catch((error: unknown) => {
      beginning = undefined;
      throw error;
    });
    return beginning;
  }

  /** BullMQ listens from "now" on, anew with each read, and so misses what comes between two reads. A mark of ours is a fixed place. */
  async function begin(): Promise<void> {
    const lastEventId = await access.askAtOnce((queue) =>
      queue.getBackend().publishEvent(MARK, KEPT_EVENTS),
    );
    if (closed.signal.aborted) throw new ClosedError(`Queue "${name}"`);
    // BullMQ opens a copy of it; it itself is never opened.
    connection = connect("listener");
    const options = { connection: connection.client, prefix, lastEventId };
    stored = new StoredEvents(storedQueueName(name), options);
    createErrorReports(`The events of queue "${name}"`, logger)(stored);
    for (const event of EVENT_NAMES) forward(stored, event);
  }

  function forward<Name extends QueueEventName>(events: EventEmitter, event: Name): void {
    const { stored: storedName, read } = EVENT_READERS[event];
    events.on(storedName, (given: StoredEvent) => {
      if (emitter.hasListener(event)) emitter.emit(event, read(given));
    });
  }

  /** Goes on trying until it listens; whoever waits, waits for the first try. */
  async function keepTryingToListen(): Promise<void> {
    try {
      await listen();
    } catch (error) {
      if (closed.signal.aborted) return;
      tell(error);
      void pause(RETRY_MS, undefined, { signal: closed.signal, ref: false }).then(
        keepTryingToListen,
        () => undefined,
      );
    }
  }

  /** An outage once, not with each try. */
  function tell(error: unknown): void {
    const reason = reasonOf(error);
    if (reason === lastReason) return;
    lastReason = reason;
    logger.warn({ queue: name, reason }, "Nobody hears the events of a queue as yet.");
  }

  return {
    listen,
    on(event, listener) {
      if (closed.signal.aborted) throw new ClosedError(`Queue "${name}"`);
      emitter.on(event, listener);
      if (isWanted) return;
      isWanted = true;
      access.waitFor(keepTryingToListen());
    },
    off: (event, listener) => emitter.off(event, listener),
    async close() {
      closed.abort();
      const closing = stored?.close().catch(() => undefined);
      await Promise.race([closing, pause(CLOSE_GRACE_MS, undefined, { ref: false })]);
      connection?.close();
    },
  };
}

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
