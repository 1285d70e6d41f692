import type { ConnectionOptions } from "bullmq";
import type { LaneStore } from "../core/lane-store.ts";

/** A connection to Redis that BullMQ can use, made where Redis is known. */
export interface QueueConnection {
  readonly client: ConnectionOptions;
  /** Rejects when Redis cannot be reached within this time. */
  untilReady(timeoutMs: number): Promise<void>;
  isReady(): boolean;
  /** The lanes of queues, on this connection. */
  readonly lanes: LaneStore;
  /** Takes a member out of a sorted set; whether it was in there. */
  takeOut(key: string, member: string): Promise<boolean>;
  /** Sets a key that has no value; whether it had none. */
  setIfFree(key: string, value: string): Promise<boolean>;
  close(): void;
}

export type ConnectQueue = (use: "producer" | "worker" | "listener") => QueueConnection;

/** One hash tag per queue: a cluster keeps all its keys on one node, and spreads the queues. */
export function storedQueueName(name: string): string {
  return `{${name}}`;
}
