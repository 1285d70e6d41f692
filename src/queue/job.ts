import type { BackoffOptions, Job as StoredJob, JobsOptions } from "bullmq";
import { PRIORITIES, type Priority } from "../core/priority.ts";

/** Queued work, as producers and handlers see it. */
export interface Job<Data> {
  readonly id: string;
  readonly data: Data;
  /** The tenant, account or endpoint that the job is for. */
  readonly key: string | undefined;
  readonly priority: Priority;
  /** When it was enqueued, in ms since 1970 on the producer's clock. */
  readonly enqueuedAtMs: number;
}

/** How one job is queued. */
export interface EnqueueOptions {
  /** The tenant, account or endpoint that the job is for. */
  readonly key?: string | undefined;
  /** Who leaves the queue, and then the line, first. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** How long to wait before the job may start. Defaults to 0. */
  readonly delayMs?: number | undefined;
  /** How often the job is tried before it is kept as failed. Defaults to 5. */
  readonly attempts?: number | undefined;
  /** The wait before try n + 1 is a random part of `baseMs` × 2^(n − 1). Defaults to 1,000 ms. */
  readonly backoff?: { readonly baseMs: number } | undefined;
}

/** A job of BullMQ's whose data is of a known type. */
export type Stored<Data> = StoredJob<Data, unknown>;

const KEYLESS = "job";
const KEYED = "key ";

/** BullMQ's name of a job carries the key: a dashboard then shows whose job it is. */
export function storedName(key: string | undefined): string {
  return key === undefined ? KEYLESS : KEYED + key;
}

/** Only what differs from the defaults is stored: BullMQ reads a job's options with each move of it. */
export function storedOptions(options: EnqueueOptions): JobsOptions {
  const { priority = "normal", delayMs = 0, attempts, backoff } = options;
  return {
    // BullMQ runs lower numbers first, and 0 before all that have one: so every job has one.
    priority: PRIORITIES.indexOf(priority) + 1,
    ...(delayMs > 0 && { delay: delayMs }),
    ...(attempts !== undefined && { attempts }),
    ...(backoff !== undefined && { backoff: exponential(backoff.baseMs) }),
  };
}

/** Puts the defaults into the job at hand, where BullMQ looks for them when a handler fails. */
export function fillDefaults({ opts }: Pick<Stored<unknown>, "opts">): void {
  opts.attempts ||= 5;
  opts.backoff ??= exponential(1_000);
}

function exponential(baseMs: number): BackoffOptions {
  return { type: "exponential", delay: baseMs, jitter: 1 };
}

export function readJob<Data>(stored: Stored<Data>): Job<Data> {
  const { id, data, name, timestamp, priority: number } = stored;
  return {
    id: id!,
    data,
    key: name.startsWith(KEYED) ? name.slice(KEYED.length) : undefined,
    priority: PRIORITIES[number - 1] ?? "normal",
    enqueuedAtMs: timestamp,
  };
}
