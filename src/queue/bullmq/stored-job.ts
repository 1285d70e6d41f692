/**
 * How a job is stored in BullMQ: its key in the name, and our options beside BullMQ's. BullMQ stores options that it
 * does not know unchanged, and its workers read those of the current job when an attempt ends. No documentation
 * promises either; checked with bullmq 6.7.0 (`moveToFailed` and `shouldRetryJob` in job.js).
 *
 * Some fields of a job's hash are read and written by their names in Redis, because BullMQ has no method for that. No
 * upstream issue known; checked with bullmq 6.7.0.
 */
import type { BackoffOptions, JobJson, JobsOptions, Queue, Job as StoredJob } from "bullmq";
import { decodeKey } from "../../core/key-path.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import type { RunName } from "../../stores/redis/scripts/queue/runs.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import type { Cost } from "../../throttle/costs.ts";
import { parseErrorFacts, type FailureFacts } from "../failure.ts";
import type { Job } from "../job.ts";
import type { LaneOrder, OrderedJobOptions } from "../options.ts";
import { loadBullmq } from "./load-bullmq.cjs";

/**
 * The delay of a job on its way to its lane. In the lane it is delayed by a day. If something is lost on the way, the
 * job comes due by itself and joins its lane then.
 */
export const PARK_MS = 10_000;

/** Our options of a job, stored beside BullMQ's. Only values other than the defaults are stored. */
interface OwnOptions {
  /** The job's name. BullMQ's own name of it carries the key. */
  readonly name?: string;
  readonly cost?: Cost;
  /** How long after it is due a job may start its first attempt. */
  readonly maxWaitMs?: number;
  /** The end of that time, in ms since 1970; absent for recurring jobs, whose runs are due at different times. */
  readonly startByMs?: number;
  readonly maxBackoffMs?: number;
  /** How long one attempt may take, instead of the worker's limit. */
  readonly timeoutMs?: number;
  /** How many plain calls the job counts as, if not 1. */
  readonly share?: number;
  /** If its key is ordered, what a dead letter does to the key. `lua/lib/lanes/order.lua` reads it. */
  readonly ordered?: LaneOrder;
  /** The traceparent of its producer, of 55 characters. */
  readonly trace?: string;
}

export type StoredOptions = JobsOptions & { sluice?: OwnOptions };

/** A job of BullMQ's whose data is of a known type. */
export type Stored<Data> = StoredJob<Data, unknown> & { opts: StoredOptions };

const KEYLESS = "job";
const KEYED = "key ";
/** How many lines of a job's log are kept: the last ones. */
const KEPT_LINES = 100;
/** How many stacks of failed attempts are kept: only the last one, because each may have many lines. */
const KEPT_STACKS = 1;

/** For jobs without these options: the most attempts, and the first delay of the backoff. */
const DEFAULT_ATTEMPTS = 20;
export const DEFAULT_BASE_MS = 1_000;

function exponential(baseMs: number = DEFAULT_BASE_MS): BackoffOptions {
  return { type: "exponential", delay: baseMs, jitter: 1 };
}

/** BullMQ's name of a job carries the key, so that a dashboard shows whose job it is. */
export function storedName(key: string | undefined): string {
  return key === undefined ? KEYLESS : KEYED + key;
}

/** The text of a stored job's key. */
export function encodedKeyOf({ name }: Pick<Stored<unknown>, "name">): string | undefined {
  return name.startsWith(KEYED) ? name.slice(KEYED.length) : undefined;
}

/**
 * Returns what to store of a job that is enqueued now, by the clock of Redis, and since when its delay counts. Only
 * options that differ from the defaults are stored, because BullMQ reads a job's options each time it moves the job.
 *
 * The delay counts from the latest time that it may be now, so that the job is not early. Without a delay, the time is
 * the earliest, so that no worker takes the job before it. The deadline counts from the latest time, so that the job
 * has all of it.
 */
export function storedOptions(
  options: OrderedJobOptions,
  clock: Pick<RedisClock, "earliestMs" | "latestMs">,
  share?: number,
): { readonly opts: StoredOptions; readonly storedAtMs: number } {
  const { priority = "normal", at, attempts, backoff, dedupeId, dedupeMs, every, cron } = options;
  const nowMs = options.delayMs ? clock.latestMs() : clock.earliestMs();
  const delay = at === undefined ? (options.delayMs ?? 0) : Number(at) - nowMs;
  // A schedule needs no deduplication, because its name is unique.
  const isOnce = every === undefined && cron === undefined;
  const dueAtMs = Math.max(nowMs + delay, clock.latestMs());
  const own = ownOptions(options, isOnce ? dueAtMs : undefined);
  const sluice = { ...own, ...(share !== undefined && { share }) };
  const opts: StoredOptions = {
    // BullMQ runs lower numbers first, and jobs without a number before all others, so every job has one.
    priority: PRIORITIES.indexOf(priority) + 1,
    // Exactly this delay marks a job that is on its way to its lane.
    ...(delay > 0 && { delay: delay === PARK_MS ? PARK_MS + 1 : delay }),
    ...(attempts !== undefined && { attempts }),
    ...(backoff !== undefined && { backoff: exponential(backoff.baseMs) }),
    ...(dedupeId !== undefined &&
      isOnce && { deduplication: { id: dedupeId, ...(dedupeMs && { ttl: dedupeMs }) } }),
    ...(Object.keys(sluice).length > 0 && { sluice }),
  };
  return { opts, storedAtMs: nowMs };
}

function ownOptions(
  { name, cost, maxWaitMs, backoff, timeoutMs, ordered }: OrderedJobOptions,
  dueAtMs: number | undefined,
): OwnOptions {
  const hasDeadline = maxWaitMs !== undefined && dueAtMs !== undefined;
  return {
    ...(name !== undefined && { name }),
    ...(cost !== undefined && { cost }),
    ...(maxWaitMs !== undefined && { maxWaitMs }),
    ...(hasDeadline && { startByMs: dueAtMs + maxWaitMs }),
    ...(backoff?.maxMs !== undefined && { maxBackoffMs: backoff.maxMs }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(ordered !== undefined && { ordered }),
  };
}

/**
 * Fills the defaults into a fetched job. BullMQ reads them when its handler fails or logs. It also reads them when a
 * handler has succeeded and Redis refuses the result, so it would be too late to fill them in after a failure.
 */
export function fillDefaults({ opts }: Pick<Stored<unknown>, "opts">): void {
  opts.attempts ||= DEFAULT_ATTEMPTS;
  opts.backoff ??= exponential();
  opts.keepLogs ??= KEPT_LINES;
  opts.stackTraceLimit ??= KEPT_STACKS;
}

const producers = new WeakMap<object, string>();

/** Returns the trace of a job's producer; undefined if the producer was not traced. */
export function producerOf(job: Job<unknown>): string | undefined {
  return producers.get(job);
}

export function readJob<Data>(stored: Stored<Data>): Job<Data> {
  const { id, data, timestamp, priority: number, opts, attemptsMade } = stored;
  const text = encodedKeyOf(stored);
  const { name, cost, timeoutMs, trace } = opts.sluice ?? {};
  const job: Job<Data> = {
    id: id!,
    name,
    data,
    key: text === undefined ? undefined : decodeKey(text),
    cost,
    priority: PRIORITIES[number - 1] ?? "normal",
    timeoutMs,
    dedupeId: opts.deduplication?.id ?? runNameOf(id!)?.name,
    attempts: opts.attempts || DEFAULT_ATTEMPTS,
    attemptsMade,
    enqueuedAtMs: timestamp,
    dueAtMs: timestamp + delayOf(opts),
    startedAtMs: stored.processedOn,
    endedAtMs: stored.finishedOn,
    startByMs: attemptsMade === 0 ? startByMsOf(opts, timestamp) : undefined,
    result: stored.returnvalue ?? undefined,
  };
  if (trace !== undefined) producers.set(job, trace);
  return job;
}

/** How long after it was stored a job is due. */
function delayOf({ delay = 0 }: StoredOptions): number {
  return delay === PARK_MS ? 0 : delay;
}

/**
 * Reads a job's hash, names and values in turns, as BullMQ reads what its own fetch returns. The schedule of a run is
 * left out, because BullMQ's worker would plan the next run as it fetched one.
 */
export function readFields(fields: readonly string[], id: string): JobJson {
  const json = loadBullmq().raw2NextJobData([fields, id, 0, 0])[0] as JobJson;
  if (json.repeatJobKey === undefined) return json;
  const { repeatJobKey: _ofJob, ...rest } = json;
  const { repeatJobKey: _ofOpts, ...opts } = json.opts;
  return { ...rest, opts };
}

/** Returns the schedule whose run a job is, from its hash; undefined for any other job. */
export function scheduleOf(fields: readonly string[]): string | undefined {
  for (let at = 0; at < fields.length; at += 2) if (fields[at] === SCHEDULE) return fields[at + 1];
  return undefined;
}

const RUN_ID = /^repeat:([^:]+):\d+$/;

/** Returns the run of a schedule that has this id; undefined for any other job. */
export function runNameOf(id: string): RunName | undefined {
  const name = RUN_ID.exec(id)?.[1];
  return name === undefined ? undefined : { name, id };
}

/** Makes BullMQ retry this job after `delayMs`, if its attempt fails and others are left. */
export function setBackoff({ opts }: Pick<Stored<unknown>, "opts">, delayMs: number): void {
  opts.backoff = { type: "fixed", delay: delayMs };
}

function startByMsOf({ sluice, delay = 0 }: StoredOptions, storedAtMs: number): number | undefined {
  const { maxWaitMs, startByMs } = sluice ?? {};
  return startByMs ?? (maxWaitMs === undefined ? undefined : storedAtMs + delay + maxWaitMs);
}

/**
 * How often a worker has died with the job, how often while the job ran, and the start of its last run. BullMQ,
 * `lua/queue/workers/jobs-recall.lua` and `jobs-begin.lua` write them. BullMQ keeps its count when a failed job is
 * retried (taskforcesh/bullmq#3555).
 */
const DEATHS = ["stc", "sluice:deaths", "sluice:ran"];
/** Set when the job was cancelled; written by `lua/queue/steer/jobs-cancel.lua`. */
const CANCELLED_FIELD = "sluice:cancelled";
/** The name of the schedule whose run a job is: BullMQ's "repeat job key". */
const SCHEDULE = "rjk";
/** The position that a job got when it first joined its lane; written by `lua/lib/lanes/join.lua`. */
const SEQ = "sluiceSeq";

/**
 * When the job became due again, in ms since 1970: for a retry, after a replay, or when its worker died. Written here,
 * by the worker's backend and by `lua/queue/steer/jobs-move.lua`; also read by `lua/queue/lanes/oldest-look.lua`.
 */
export const DUE = "sluice:due";

/** Notes that jobs became due again just now. */
export async function noteDue(
  backend: Pick<ReturnType<Queue["getBackend"]>, "client" | "toKey">,
  ids: readonly string[],
  clock: RedisClock,
): Promise<void> {
  if (ids.length === 0) return;
  await clock.ready();
  const client = await backend.client;
  const nowMs = clock.latestMs();
  for (const id of ids) {
    const key = backend.toKey(id);
    await client.hset(key, { [DUE]: nowMs });
    // Leaves no field behind for a job that was removed at the same time.
    if ((await client.hget(key, "name")) === null) await client.hdel(key, DUE);
  }
}

/** Reads when a job became due again; undefined if it was due only once. */
export async function readDue(queue: Queue, id: string): Promise<number | undefined> {
  const client = await queue.getBackend().client;
  const text = await client.hget(queue.toKey(id), DUE);
  return text === null ? undefined : Number(text);
}

/** The facts of the error that failed a job, as JSON; written when it becomes a dead letter. */
export const FAILURE = "sluice:failure";

/** Reads the facts of the errors of some failed jobs. */
export async function readFailures(
  queue: Queue,
  ids: readonly string[],
): Promise<readonly FailureFacts[]> {
  const client = await queue.getBackend().client;
  const found = await Promise.all(ids.map((id) => client.hget(queue.toKey(id), FAILURE)));
  return found.map(parseErrorFacts);
}

/** True if a job is on its way to its lane and has never been in it. */
export async function isOnItsWay(queue: Queue, { id }: Stored<unknown>): Promise<boolean> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // A job that was in its lane and waits for its next attempt may have the same delay.
  const [delay, seq] = await Promise.all([client.hget(key, "delay"), client.hget(key, SEQ)]);
  return delay === String(PARK_MS) && seq === null;
}

/** True if a job was cancelled before it was fetched. The fields are names and values in turns. */
export function wasCancelled(fields: readonly string[]): boolean {
  return fields.some((name, index) => index % 2 === 0 && name === CANCELLED_FIELD);
}

/** Removes the mark that a job was cancelled. */
export async function forgetCancel(
  stored: Pick<Queue, "getBackend" | "toKey">,
  id: string,
): Promise<void> {
  const client = await stored.getBackend().client;
  await client.hdel(stored.toKey(id), CANCELLED_FIELD);
}

/**
 * Resets a failed job like a new one: the deaths of its workers are forgotten, and its `maxWaitMs` counts from now, on
 * Redis' clock.
 */
export async function renew(
  queue: Queue,
  { id, opts }: Stored<unknown>,
  clock: RedisClock,
): Promise<void> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // From now on, a run of a schedule is an ordinary job.
  await client.hdel(key, ...DEATHS, FAILURE, CANCELLED_FIELD, SCHEDULE);
  await clock.ready();
  await client.hset(key, { [DUE]: clock.latestMs() });
  const { maxWaitMs } = opts.sluice ?? {};
  const written = maxWaitMs === undefined ? null : await client.hget(key, "opts");
  if (maxWaitMs === undefined || written === null) return;
  // Read from Redis, because BullMQ stores some options under shorter names.
  const options = JSON.parse(written) as StoredOptions;
  const sluice = { ...options.sluice, startByMs: clock.latestMs() + maxWaitMs };
  await client.hset(key, { opts: JSON.stringify({ ...options, sluice }) });
}
