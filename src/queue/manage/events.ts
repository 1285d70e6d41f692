import { setTimeout as pause } from "node:timers/promises";
import type { Payloads } from "../../core/codec.ts";
import type { CodecError, PayloadKind } from "../../core/errors.ts";
import { isThenable, reasonOf } from "../../core/describe.ts";
import { ClosedError } from "../../core/errors.ts";
import { createEmitter, type Emitter } from "../../core/events/events.ts";
import type { Logger } from "../../core/logger.ts";
import { parseErrorFacts, type FailureFacts } from "../failure.ts";
import { readFailures } from "../bullmq/stored-job.ts";
import { createErrorReports, type QueueConnection } from "../bullmq/connection.ts";
import {
  CANCELLED_EARLY,
  markEvents,
  readEvent,
  RETRYING,
  type StoredEvent,
} from "../bullmq/stored-events.ts";
import type { StreamReading } from "../../stores/redis/queue/stream-reader.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";

/** The events of a queue's jobs, in any process. */
export interface QueueEvents {
  /** A job waits for a worker, because it is new, has returned to the queue, or its delay is over. */
  readonly waiting: { readonly jobId: string };
  /** A worker has fetched a job. The handler starts as soon as the job has its slot. */
  readonly active: { readonly jobId: string };
  /** A job waits for a later time. `atMs` is in ms since 1970. */
  readonly delayed: { readonly jobId: string; readonly atMs: number };
  /**
   * A job is done. `result` is what its handler returned, as JSON; null for nothing. If this process cannot decode it,
   * `result` is undefined and `unreadable` says why.
   */
  readonly done: {
    readonly jobId: string;
    readonly result: unknown;
    readonly unreadable?: CodecError | undefined;
  };
  /**
   * A job has failed for the last time and is a dead letter now. The event includes the code, status and causes of the
   * job's error.
   */
  readonly failed: { readonly jobId: string; readonly reason: string } & FailureFacts;
  /**
   * An attempt has failed and the job will be retried. `attempt` is the number of the failed attempt: 1 for the first.
   * This event comes once the job is back in the queue, so `delayed`, `waiting` or `active` of the next attempt may
   * come before this event.
   */
  readonly retrying: {
    readonly jobId: string;
    readonly attempt: number;
    readonly reason: string;
  } & FailureFacts;
  /** A handler has stored its progress. If this process cannot decode it, `unreadable` says why. */
  readonly progress: {
    readonly jobId: string;
    readonly progress: unknown;
    readonly unreadable?: CodecError | undefined;
  };
  /** The worker of a job has died or hangs. The job waits for another worker. */
  readonly stalled: { readonly jobId: string };
  /**
   * A job was cancelled before it began. The event `removed` follows. If the job was running, `failed` is emitted
   * instead.
   */
  readonly cancelled: { readonly jobId: string };
  /** A job was removed, by its id, by a filter, or by a purge. A `drain()` of the whole queue emits no such event. */
  readonly removed: { readonly jobId: string };
}

export type QueueEventName = keyof QueueEvents;

export type QueueListener<Name extends QueueEventName> = (event: QueueEvents[Name]) => unknown;

type Readers = {
  readonly [Name in QueueEventName]: {
    /** BullMQ's name of the event. */
    readonly stored: string;
    readonly read: (event: StoredEvent) => QueueEvents[Name];
  };
};

const readId = ({ jobId }: StoredEvent): { readonly jobId: string } => ({ jobId });

/** The name of each event in BullMQ, and the function that reads the event. */
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
    stored: RETRYING,
    read: ({ jobId, attempt, reason, facts }) => ({
      jobId,
      attempt: Number(attempt),
      reason: textOf(reason),
      ...parseErrorFacts(facts),
    }),
  },
  progress: { stored: "progress", read: ({ jobId, data }) => ({ jobId, progress: data }) },
  stalled: { stored: "stalled", read: readId },
  cancelled: { stored: CANCELLED_EARLY, read: readId },
  removed: { stored: "removed", read: readId },
};

export const EVENT_NAMES: readonly QueueEventName[] = Object.keys(
  EVENT_READERS,
) as QueueEventName[];

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Emits the events of a queue. */
export interface QueueEmitter extends Emitter<QueueEvents> {
  /**
   * Calls the listener for each event of this kind, from all workers. The listener gets every event that the next call
   * on this queue causes, or that comes later. The first listener opens a connection to Redis, which all queues of a
   * sluice share. While Redis is unreachable, the queue tries to connect each second. Errors of listeners are logged.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is not a function.
   * @throws {@link ClosedError} after the sluice was closed.
   */
  on: Emitter<QueueEvents>["on"];
}

/** Emits the events of one queue. The first listener opens the connection for them. */
export interface EventStream extends QueueEmitter {
  /** Starts to listen. Resolves once all later events will be received. Rejects as {@link StoredAccess} does. */
  listen(): Promise<void>;
  close(): Promise<void>;
}

export interface EventStreamSettings {
  readonly name: string;
  readonly access: StoredAccess;
  readonly connection: QueueConnection;
  readonly logger: Logger;
  readonly payloads: Pick<Payloads, "decode">;
}

/** The field of an event that contains a payload, and the kind of this payload. */
const PAYLOADS: Partial<
  Record<QueueEventName, { readonly field: string; readonly kind: PayloadKind }>
> = {
  done: { field: "result", kind: "result" },
  progress: { field: "progress", kind: "progress" },
};

const RETRY_MS = 1_000;

export function createEventStream(settings: EventStreamSettings): EventStream {
  const { name, access, connection, logger, payloads } = settings;
  const emitter = createEmitter<QueueEvents>(`queue "${name}"`, EVENT_NAMES, logger);
  const closed = new AbortController();
  const eventOf = new Map(EVENT_NAMES.map((event) => [EVENT_READERS[event].stored, event]));
  let reading: StreamReading | undefined;
  let beginning: Promise<void> | undefined;
  let isWanted = false;
  let lastReason: string | undefined;
  /**
   * Resolves when the latest delayed event was emitted. Undefined if no event waits until the error of a job was read.
   */
  let emitting: Promise<void> | undefined;

  function listen(): Promise<void> {
    beginning ??= begin().catch((error: unknown) => {
      beginning = undefined;
      throw error;
    });
    return beginning;
  }

  async function begin(): Promise<void> {
    const { stream, lastId } = await access.askAtOnce(markEvents);
    if (closed.signal.aborted) throw new ClosedError(`Queue "${name}"`);
    const { onError, onReady } = createErrorReports(`The events of queue "${name}"`, logger);
    const onEntry = (fields: readonly string[]): void => forward(readEvent(fields));
    reading = connection.readStream(stream, { lastId, onEntry, onError, onReady });
  }

  function forward(given: StoredEvent): void {
    const event = eventOf.get(given["event"] as string);
    if (event === undefined || !emitter.hasListener(event)) return;
    const payload = EVENT_READERS[event].read(given);
    const { field, kind } = PAYLOADS[event] ?? {};
    const stored = field && (payload as Readonly<Record<string, unknown>>)[field];
    const decoded = kind && payloads.decode(stored, { kind, id: payload.jobId });
    if (event === "failed") emitWithFacts(payload as QueueEvents["failed"]);
    else if (isThenable(decoded)) emitDecoded(event, payload, { field: field!, decoded });
    else if (emitting === undefined) emitter.emit(event, payload);
    else emitInTurn(emitting, () => emitter.emit(event, payload));
  }

  /**
   * Reads the code, status and causes of the job's error, then emits `failed`. BullMQ's event has only the error
   * message. Later events wait until the error was read.
   */
  function emitWithFacts(payload: QueueEvents["failed"]): void {
    const reading = access
      .askAtOnce((queue) => readFailures(queue, [payload.jobId]))
      .catch((): readonly FailureFacts[] => []);
    emitInTurn(Promise.all([reading, emitting]), ([[found]]) =>
      emitter.emit("failed", { ...payload, ...found }),
    );
  }

  /** Emits an event once its payload was decoded, or could not be decoded. Later events wait. */
  function emitDecoded<Name extends QueueEventName>(
    event: Name,
    payload: QueueEvents[Name],
    { field, decoded }: { readonly field: string; readonly decoded: PromiseLike<unknown> },
  ): void {
    const read = Promise.resolve(decoded).then(
      (value) => ({ [field]: value }),
      (unreadable: unknown) => ({ [field]: undefined, unreadable }),
    );
    emitInTurn(Promise.all([read, emitting]), ([found]) =>
      emitter.emit(event, { ...payload, ...found }),
    );
  }

  function emitInTurn<T>(turn: Promise<T>, emit: (value: T) => void): void {
    const emitted = turn.then(emit).finally(() => {
      if (emitting === emitted) emitting = undefined;
    });
    emitting = emitted;
  }

  /** Starts to listen. Resolves after the first try. If it fails, tries again each second until a try succeeds. */
  async function keepTryingToListen(): Promise<void> {
    try {
      await listen();
    } catch (error) {
      if (closed.signal.aborted) return;
      warn(error);
      void pause(RETRY_MS, undefined, { signal: closed.signal, ref: false }).then(
        keepTryingToListen,
        () => undefined,
      );
    }
  }

  /** Logs an outage once, not for each failed try. */
  function warn(error: unknown): void {
    const reason = reasonOf(error);
    if (reason === lastReason) return;
    lastReason = reason;
    logger.warn(
      { queue: name, reason },
      "Could not listen to the queue's events; retrying in 1 s.",
    );
  }

  return {
    listen,
    on(event, listener, options) {
      if (closed.signal.aborted) throw new ClosedError(`Queue "${name}"`);
      const stop = emitter.on(event, listener, options);
      if (isWanted) return stop;
      isWanted = true;
      access.waitFor(keepTryingToListen());
      return stop;
    },
    off: (event, listener) => emitter.off(event, listener),
    async close() {
      closed.abort();
      reading?.stop();
      await emitting;
    },
  };
}
