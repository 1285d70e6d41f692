import type { createRedisBackend } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import { isMissingRights } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { QueueConnection } from "../../stores/redis/backend.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";

export type { QueueConnection };
export type ConnectQueue = (use: "producer" | "worker") => QueueConnection;

/**
 * Returns the queue's name in BullMQ. The name is a hash tag, so that a Redis cluster keeps all keys of one queue on
 * one node, and distributes the queues.
 */
export function storedQueueName(name: string): string {
  return `{${name}}`;
}

/** The events that BullMQ's queues and workers both emit. */
interface Reporter {
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "ready", listener: () => void): unknown;
}

/** Logs the errors of a connection, and detects when an outage is over. */
interface ErrorReports {
  readonly onError: (error: Error) => void;
  readonly onReady: () => void;
  readonly watch: (stored: Reporter) => void;
}

/**
 * Logs errors for which no caller's promise rejects. An outage is logged once, although each attempt to reconnect, and
 * each new BullMQ object, reports the same error again.
 */
export function createErrorReports(source: string, logger: Logger): ErrorReports {
  let lastMessage: string | undefined;

  function onError(error: Error): void {
    if (error.message === lastMessage) return;
    lastMessage = error.message;
    // Logs only the message, because errors of ioredis contain the command and so the data of jobs.
    const reason = reasonOf(error.message);
    logger.error({ reason }, `${source} met an error: ${reason}${remedy(error)}`);
  }

  function onReady(): void {
    lastMessage = undefined;
  }

  return {
    onError,
    onReady,
    watch(stored) {
      stored.on("error", onError);
      stored.on("ready", onReady);
    },
  };
}

function remedy({ message }: Error): string {
  if (!isMissingRights(message)) return "";
  return ". Give its Redis user the rights that docs/guides/production/redis.md names.";
}

/** The index of the current time among the keys and arguments of each BullMQ script that Sluice runs. */
export const TIME_AT: Readonly<Record<string, number>> = {
  moveStalledJobsToWait: 9 + 2,
  moveToDelayed: 11 + 1,
  moveToFinished: 14 + 1,
  retryJob: 11 + 1,
};

/**
 * Creates a BullMQ backend whose scripts use the time of Redis, so that all processes agree. Without this, BullMQ uses
 * the clock of the calling process for delays, retries and end times. Upstream says to synchronise the clocks
 * (OptimalBits/bull#1288); checked with bullmq 6.7.0. `test/integration/upstream/bullmq-times.test.ts` compares the
 * list above with BullMQ's scripts. New jobs get their time in `stored-queue.ts`.
 */
export function onRedisTime(create: typeof createRedisBackend, clock: RedisClock): typeof create {
  return (...settings) => {
    const backend = create(...settings);
    const execute = backend.execCommand.bind(backend);
    backend.execCommand = (client, name, args) => {
      const at = TIME_AT[name];
      if (at === undefined) return execute(client, name, args) as unknown;
      const send = (): unknown => {
        // Uses the latest time that it may be in Redis, so that a delayed job never starts early.
        args[at] = clock.latestMs();
        return execute(client, name, args);
      };
      const ready = clock.ready();
      return ready === undefined ? send() : ready.then(send);
    };
    return backend;
  };
}
