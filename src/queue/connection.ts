import type { ConnectionOptions } from "bullmq";
import type { QueueConnection as Connection } from "../core/queue-store.ts";

/** A connection to Redis that BullMQ can use, made where Redis is known. */
export type QueueConnection = Connection<ConnectionOptions>;

export type ConnectQueue = (use: "producer" | "worker" | "subscriber") => QueueConnection;

/** One hash tag per queue: a cluster keeps all its keys on one node, and spreads the queues. */
export function storedQueueName(name: string): string {
  return `{${name}}`;
}
