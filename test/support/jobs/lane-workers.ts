import { inject } from "vitest";
import type { BucketOptions, QueueOptions } from "sluice";
import type { Arrival } from "sluice/testing";
import type { Child, Children } from "../children/child.ts";

/** What `processes/lane-worker.ts` is told. */
export interface LaneWorkerSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly url: string;
  readonly policy: BucketOptions;
  readonly weights?: QueueOptions["weights"];
  /** How long a handler takes after its call. */
  readonly handlerMs?: number;
  /** How many attempts of each job fail, after their call. */
  readonly failFirst?: number;
  readonly concurrency?: number;
  readonly patienceMs?: number | undefined;
  readonly lockMs?: number;
  /** How long it waits for Redis. */
  readonly storeTimeoutMs?: number;
}

/** Starts worker processes, on the project's Redis unless told otherwise. */
export function startLaneWorkers(
  processes: Children,
  count: number,
  settings: Omit<LaneWorkerSettings, "redis"> & { readonly redis?: string },
): Child[] {
  const args = [JSON.stringify({ redis: inject("redisUrl"), ...settings })];
  return Array.from({ length: count }, () => processes.start("workers/lane-worker.ts", args));
}

/** One call of a job, as the downstream saw it. */
export interface JobCall {
  readonly job: string;
  /** The names of a path with commas between them. */
  readonly key: string;
  readonly attempt: number;
  readonly pid: number;
  readonly atMs: number;
  /** The slot on which it left. */
  readonly slotMs: number;
}

export function jobCalls(arrivals: readonly Arrival[]): JobCall[] {
  return arrivals.map(({ headers, atMs }) => ({
    job: String(headers["x-job"]),
    key: String(headers["x-key"]),
    attempt: Number(headers["x-attempt"]),
    pid: Number(headers["x-pid"]),
    slotMs: Number(headers["x-slot-ms"]),
    atMs,
  }));
}
