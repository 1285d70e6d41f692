import { Queue as StoredQueue } from "bullmq";
import { reasonOf, wordsOf } from "../core/describe.ts";
import {
  ClosedError,
  isMissingRights,
  redisRefusalOf,
  SluiceError,
  StoreUnavailableError,
} from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { storedQueueName, type QueueConnection } from "./connection.ts";

/** BullMQ's queue behind ours: opened when it is first needed, and asked with a time limit. */
export interface StoredAccess {
  /**
   * BullMQ's queue, once Redis answers and whoever wants to hear of the queue's events hears them.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link StoreUnavailableError} when Redis is away; it says `outcome`.
   */
  open(outcome?: string): Promise<StoredQueue>;
  /** Asks BullMQ's queue for what takes one round trip or two. Throws as `open` does, also when the answer is late. */
  ask<T>(question: Question<T>): Promise<T>;
  /** The same, without the wait for whoever wants to hear of events. */
  askAtOnce<T>(question: Question<T>): Promise<T>;
  /** The answer to a question of one's own, if it comes within the time that began then, by `performance.now()`. */
  inTimeSince<T>(startedAtMs: number, question: Promise<T>): Promise<T>;
  /** Takes a job out of the jobs that have failed; whether it was one of them. Of many who ask, one hears yes. */
  takeFailed(id: string): Promise<boolean>;
  /** Has a job hold a dedupeId until it ends, unless another job holds it; whether it does so only now. */
  holdDedupeId(dedupeId: string, id: string): Promise<boolean>;
  /** Has `open` wait for this, which ends in time whatever comes of it. */
  waitFor(beginning: Promise<void>): void;
  close(): Promise<void>;
}

/** So much of its time a question has once its queue is open. */
const LEAST_LEFT = 0.25;

type Question<T> = (stored: StoredQueue) => Promise<T>;

export interface StoredSettings {
  readonly name: string;
  /** It is closed with the queue. */
  readonly connection: QueueConnection;
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
}

export function createStoredAccess(settings: StoredSettings): StoredAccess {
  const { name, connection, prefix, timeoutMs, logger } = settings;
  let stored: StoredQueue | undefined;
  let beginning: Promise<void> | undefined;
  let isClosed = false;
  const reportErrors = createErrorReports(`Queue "${name}"`, logger);

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Queue "${name}"`);
  }

  /** BullMQ's queue asks once what server it is on, and fails for good if that fails: the next question makes another then. */
  function create(): StoredQueue {
    const queue = new StoredQueue(storedQueueName(name), { connection: connection.client, prefix });
    reportErrors(queue);
    queue.waitUntilReady().catch(() => {
      if (stored === queue) stored = undefined;
      queue.close().catch(() => undefined);
    });
    return queue;
  }

  /** BullMQ's queue is made once Redis answers: made before, it would wait for it without end. */
  async function reach(outcome = "nothing was changed"): Promise<StoredQueue> {
    assertOpen();
    try {
      await connection.untilReady(timeoutMs);
    } catch (cause) {
      assertOpen();
      const refusal = redisRefusalOf(cause);
      const problem = refusal === undefined ? "could not be reached" : "refused it";
      const met = cause instanceof Error ? ` (${wordsOf(cause)})` : "";
      const what = `Redis ${problem} within ${timeoutMs} ms${met}; ${outcome}`;
      const text = `${what}. ${refusal?.remedy ?? "See that Redis runs"}, and try again.`;
      throw new StoreUnavailableError(text, cause);
    }
    assertOpen();
    stored ??= create();
    return stored;
  }

  async function open(outcome?: string): Promise<StoredQueue> {
    const queue = await reach(outcome);
    await beginning;
    assertOpen();
    return queue;
  }

  function inTimeSince<T>(startedAtMs: number, question: Promise<T>): Promise<T> {
    const leftMs = timeoutMs - (performance.now() - startedAtMs);
    // A process that stood still meanwhile has not used up the time of Redis.
    return connection.inTime(Math.max(leftMs, timeoutMs * LEAST_LEFT), question);
  }

  async function answer<T>(opening: Promise<StoredQueue>, question: Question<T>): Promise<T> {
    const startedAtMs = performance.now();
    const queue = await opening;
    try {
      return await inTimeSince(startedAtMs, question(queue));
    } catch (cause) {
      assertOpen();
      if (cause instanceof SluiceError) throw cause;
      const refusal = redisRefusalOf(cause);
      const problem =
        refusal === undefined
          ? `Redis gave no answer within ${timeoutMs} ms; it may or may not have done what it was asked`
          : `Redis refused it: ${refusal.reason}`;
      const remedy = refusal?.remedy ?? "See that Redis runs, and try again";
      throw new StoreUnavailableError(`${problem}. ${remedy}.`, cause);
    }
  }

  const ask: StoredAccess["ask"] = (question) => answer(open(), question);

  return {
    open,
    ask,
    askAtOnce: (question) => answer(reach(), question),
    inTimeSince,
    takeFailed: (id) => ask((queue) => connection.takeOut(queue.toKey("failed"), id)),
    holdDedupeId: (dedupeId, id) =>
      ask((queue) => connection.setIfFree(queue.toKey(`de:${dedupeId}`), id)),
    waitFor(begun) {
      beginning = begun;
    },
    async close() {
      if (isClosed) return;
      isClosed = true;
      await stored?.close();
      connection.close();
    },
  };
}

/** What a queue and a worker of BullMQ's have in common. */
interface Reporter {
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "ready", listener: () => void): unknown;
}

/**
 * Reports what goes wrong where no caller waits; an outage once, not with each attempt to reconnect, nor with each
 * of those that take one another's place.
 */
export function createErrorReports(who: string, logger: Logger): (stored: Reporter) => void {
  let lastMessage: string | undefined;
  return (stored) => {
    stored.on("error", (error) => {
      if (error.message === lastMessage) return;
      lastMessage = error.message;
      // The message alone: errors of ioredis carry the command, and with it the data of jobs.
      const reason = reasonOf(error.message);
      logger.error({ reason }, `${who} met an error: ${reason}${remedy(error)}`);
    });
    stored.on("ready", () => {
      lastMessage = undefined;
    });
  };
}

function remedy({ message }: Error): string {
  if (!isMissingRights(message)) return "";
  return ". Give its Redis user the rights that docs/topologies.md names.";
}
