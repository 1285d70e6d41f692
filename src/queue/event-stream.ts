import type { EventEmitter } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import type { QueueEvents as StoredEvents } from "bullmq";
import { reasonOf } from "../core/describe-value.ts";
import { createEmitter } from "../core/emitter.ts";
import { ClosedError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { storedQueueName, type ConnectQueue } from "./connection.ts";
import {
  EVENT_NAMES,
  EVENT_READERS,
  KEPT_EVENTS,
  type QueueEmitter,
  type QueueEventName,
  type QueueEvents,
  type StoredEvent,
} from "./events.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { createErrorReports } from "./report-errors.ts";
import type { StoredAccess } from "./stored-queue.ts";

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
    const { QueueEvents: Reader } = loadBullmq();
    stored = new Reader(storedQueueName(name), options);
    createErrorReports(`The events of queue "${name}"`, logger)(stored);
    for (const event of EVENT_NAMES) forward(stored, event);
  }

  function forward<Name extends QueueEventName>(events: EventEmitter, event: Name): void {
    const { stored: storedName, read } = EVENT_READERS[event];
    events.on(storedName, (given: StoredEvent) => {
      if (emitter.isHeard(event)) emitter.emit(event, read(given));
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
