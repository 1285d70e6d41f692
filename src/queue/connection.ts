import type { ConnectionOptions } from "bullmq";

/** A connection to Redis that BullMQ can use, made where Redis is known. */
interface QueueConnection {
  readonly client: ConnectionOptions;
  /** Rejects when Redis cannot be reached within this time. */
  untilReady(timeoutMs: number): Promise<void>;
  isReady(): boolean;
  close(): void;
}

export type ConnectQueue = (use: "producer" | "worker") => QueueConnection;

/** One hash tag per queue: a cluster keeps all its keys on one node, and spreads the queues. */
export function storedQueueName(name: string): string {
  return `{${name}}`;
}
