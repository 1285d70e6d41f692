import type { ConnectionOptions } from "bullmq";
import type { LaneStore } from "../core/lane-store.ts";
import type { RunDeclaration } from "../core/run-declaration.ts";

/** So many done jobs are kept, for so long: those that were done last. */
export interface KeptJobs {
  readonly most: number;
  readonly forMs: number;
}

/** A connection to Redis that BullMQ can use, made where Redis is known. */
export interface QueueConnection {
  readonly client: ConnectionOptions;
  /** Rejects when Redis cannot be reached within this time. */
  untilReady(timeoutMs: number): Promise<void>;
  /** What Redis answers; rejects when it does not within this time. A late answer is nobody's. */
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
  isReady(): boolean;
  /** The lanes of queues, on this connection. */
  readonly lanes: LaneStore;
  /** Removes those of a queue's done jobs that are no longer kept. */
  forgetDone(queue: string, kept: KeptJobs): Promise<void>;
  /** Notes which deadline a job has kept by beginning, in ms since 1970. */
  noteBegun(queue: string, id: string, startByMs: number): Promise<void>;
  /** The deadline that a job has kept by beginning; undefined if none. */
  begunBy(queue: string, id: string): Promise<number | undefined>;
  /** Gives a schedule and its due run what is declared now; false if the run is not due any more. */
  declareRun(queue: string, declaration: RunDeclaration): Promise<boolean>;
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
