import type { JobsOptions, Job as StoredJob } from "bullmq";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { PRIORITIES, type Priority } from "../core/options.ts";
import type { Cost } from "../throttle/costs.ts";
import { PARK_MS } from "./lanes/weights.ts";
import { DEFAULT_ATTEMPTS, exponential, type EnqueueOptions } from "./options.ts";

/** Queued work, as producers and handlers see it. */
export interface Job<Data> {
  readonly id: string;
  readonly data: Data;
  /** The tenant, account or endpoint that the job is for. */
  readonly key: string | undefined;
  /** What each attempt takes of the bucket; undefined is 1 call. */
  readonly cost: Cost | undefined;
  readonly priority: Priority;
  /** When it was enqueued, in ms since 1970 on the producer's clock. */
  readonly enqueuedAtMs: number;
  /** Until when its first attempt must start, in ms since 1970; undefined if it need not, or one has been made. */
  readonly startByMs: number | undefined;
}

/** What BullMQ knows nothing of, kept with a job's options; only what is not the default. */
interface OwnOptions {
  readonly cost?: Cost;
  /** The time, from when the job is due, in which its first attempt must start. */
  readonly maxWaitMs?: number;
  /** The same, in ms since 1970; not of recurring jobs, each of which is due at another time. */
  readonly startByMs?: number;
  readonly maxBackoffMs?: number;
  /** How many plain calls it stands for, if it is not 1. */
  readonly share?: number;
}

/** The options of a stored job; BullMQ keeps those that it does not know as they are. */
export type StoredOptions = JobsOptions & { sluice?: OwnOptions };

/** A job of BullMQ's whose data is of a known type. */
export type Stored<Data> = StoredJob<Data, unknown> & { opts: StoredOptions };

const KEYLESS = "job";
const KEYED = "key ";
/** A job's log is bounded: its last lines are kept. */
const KEPT_LINES = 100;
/** Of its attempts, the last tells what was wrong in the end: each of a thousand may have a stack of many lines. */
const KEPT_STACKS = 1;

/** BullMQ's name of a job carries the key: a dashboard then shows whose job it is. */
export function storedName(key: string | undefined): string {
  return key === undefined ? KEYLESS : KEYED + key;
}

/** Only what differs from the defaults is stored: BullMQ reads a job's options with each move of it. */
export function storedOptions(options: EnqueueOptions, share?: number): StoredOptions {
  const {
    priority = "normal",
    at,
    attempts,
    backoff,
    dedupeId,
    dedupeMs,
    every,
    cron,
    maxWaitMs,
  } = options;
  const nowMs = Date.now();
  const delay = at === undefined ? (options.delayMs ?? 0) : Number(at) - nowMs;
  // A schedule has no need of deduplication: its name keeps it single.
  const isOnce = every === undefined && cron === undefined;
  const own = ownOptions(options, isOnce ? nowMs + Math.max(0, delay) : undefined);
  const sluice = { ...own, ...(share !== undefined && { share }) };
  return {
    // BullMQ runs lower numbers first, and 0 before all that have one: so every job has one.
    priority: PRIORITIES.indexOf(priority) + 1,
    // Only what is on its way to its lane waits for just so long.
    ...(delay > 0 && { delay: delay === PARK_MS ? PARK_MS + 1 : delay }),
    // By the clock that its deadline was reckoned with.
    ...(isOnce && maxWaitMs !== undefined && { timestamp: nowMs }),
    ...(attempts !== undefined && { attempts }),
    ...(backoff !== undefined && { backoff: exponential(backoff.baseMs) }),
    ...(dedupeId !== undefined &&
      isOnce && { deduplication: { id: dedupeId, ...(dedupeMs && { ttl: dedupeMs }) } }),
    ...(Object.keys(sluice).length > 0 && { sluice }),
  };
}

function ownOptions(
  { cost, maxWaitMs, backoff }: EnqueueOptions,
  dueAtMs: number | undefined,
): OwnOptions {
  const hasDeadline = maxWaitMs !== undefined && dueAtMs !== undefined;
  return {
    ...(cost !== undefined && { cost }),
    ...(maxWaitMs !== undefined && { maxWaitMs }),
    ...(hasDeadline && { startByMs: dueAtMs + maxWaitMs }),
    ...(backoff?.maxMs !== undefined && { maxBackoffMs: backoff.maxMs }),
  };
}

/**
 * Puts the defaults into the job at hand, where BullMQ looks for them when a handler fails or logs; and when a handler
 * has succeeded and Redis refuses to hear of it, so that it is too late when one fails.
 */
export function fillDefaults({ opts }: Pick<Stored<unknown>, "opts">): void {
  opts.attempts ||= DEFAULT_ATTEMPTS;
  opts.backoff ??= exponential();
  opts.keepLogs ??= KEPT_LINES;
  opts.stackTraceLimit ??= KEPT_STACKS;
}

export function readJob<Data>(stored: Stored<Data>): Job<Data> {
  const { id, data, name, timestamp, priority: number, opts, attemptsMade } = stored;
  const { cost } = opts.sluice ?? {};
  return {
    id: id!,
    data,
    key: name.startsWith(KEYED) ? name.slice(KEYED.length) : undefined,
    cost,
    priority: PRIORITIES[number - 1] ?? "normal",
    enqueuedAtMs: timestamp,
    startByMs: attemptsMade === 0 ? startByMsOf(opts, timestamp) : undefined,
  };
}

function startByMsOf({ sluice, delay = 0 }: StoredOptions, storedAtMs: number): number | undefined {
  const { maxWaitMs, startByMs } = sluice ?? {};
  return startByMs ?? (maxWaitMs === undefined ? undefined : storedAtMs + delay + maxWaitMs);
}

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);
/** BullMQ's ids: a number, or for a run of a recurring job its schedule's name and time. */
const SHAPE = /^(\d{1,20}|repeat:[^:]{1,256}:\d{1,20})$/;

/**
 * The id, or undefined if no job can have it: a job's key in Redis ends with its id, so one such as
 * `meta` would name what belongs to the queue itself.
 *
 * @throws {@link InvalidOptionError} for what is no id at all.
 */
export function readJobId(where: string, id: unknown): string | undefined {
  const read = JOB_ID.safeParse(id);
  if (read.success) return SHAPE.test(read.data) ? read.data : undefined;
  throw new InvalidOptionError({ where, option: "id", value: id, remedy: REMEDY });
}
