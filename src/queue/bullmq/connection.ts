import type { ConnectionOptions } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import { isMissingRights } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { QueueConnection as Connection } from "../../core/stores/queue/store.ts";

/** A connection to Redis that BullMQ can use, made where Redis is known. */
export type QueueConnection = Connection<ConnectionOptions>;

export type ConnectQueue = (use: "producer" | "worker") => QueueConnection;

/** One hash tag per queue: a cluster keeps all its keys on one node, and spreads the queues. */
export function storedQueueName(name: string): string {
  return `{${name}}`;
}

/** What BullMQ's queues and workers have in common. */
interface Reporter {
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "ready", listener: () => void): unknown;
}

/** Hears what happens to a connection. */
interface ErrorReports {
  readonly onError: (error: Error) => void;
  readonly onReady: () => void;
  readonly watch: (stored: Reporter) => void;
}

/**
 * Logs the errors for which no caller waits. An outage is logged once: not at each try to reconnect, and not for
 * each of several objects that replace one another.
 */
export function createErrorReports(source: string, logger: Logger): ErrorReports {
  let lastMessage: string | undefined;

  function onError(error: Error): void {
    if (error.message === lastMessage) return;
    lastMessage = error.message;
    // The message alone: errors of ioredis carry the command, and with it the data of jobs.
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
  return ". Give its Redis user the rights that docs/topologies.md names.";
}
