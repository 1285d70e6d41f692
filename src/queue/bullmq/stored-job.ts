/**
 * How a job is stored in BullMQ: its key in the name, and our options beside BullMQ's. BullMQ stores options that it
 * does not know as they are, and its workers read those of the job at hand when an attempt ends. No documentation
 * promises either; checked with bullmq 6.7.0 (`moveToFailed` and `shouldRetryJob` in job.js).
 *
 * Some fields of a job's hash are read and written by the names that they have in Redis, since no method of BullMQ does
 * it. No upstream issue known; checked with bullmq 6.7.0.
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
 * The delay of a job that is on its way to its lane; there it is delayed by a day. If anything is lost on the way, the
 * job comes due by itself, and joins its lane then.
 */
export const PARK_MS = 10_000;

/** Our options of a job, kept with BullMQ's; only those that are not the default. */
interface OwnOptions {
  /** The job's name: BullMQ's carries the key. */
  readonly name?: string;
  readonly cost?: Cost;
  /** How long after it is due a job may start its first attempt. */
  readonly maxWaitMs?: number;
  /** The end of that time, in ms since 1970; absent for recurring jobs, each of which is due at another time. */
  readonly startByMs?: number;
  readonly maxBackoffMs?: number;
  /** How long one attempt may take, instead of the worker's limit. */
  readonly timeoutMs?: number;
  /** How many plain calls the job counts as, if it is not 1. */
  readonly share?: number;
  /** If its key is ordered, what a dead letter does to it; as `lua/lib/lanes/order.lua` reads it. */
  readonly ordered?: LaneOrder;
  /** What its producer was part of: a traceparent, of 55 characters. */
  readonly trace?: string;
}

export type StoredOptions = JobsOptions & { sluice?: OwnOptions };

/** A job of BullMQ's whose data is of a known type. */
export type Stored<Data> = StoredJob<Data, unknown> & { opts: StoredOptions };

const KEYLESS = "job";
const KEYED = "key ";
/** How many lines of a job's log are kept: the last ones. */
const KEPT_LINES = 100;
/** How many stacks of failed attempts are kept: the last attempt's, since each of a thousand may have many lines. */
const KEPT_STACKS = 1;

/** For jobs that say nothing else: how often one is tried, and the delay that its backoff begins with. */
const DEFAULT_ATTEMPTS = 20;
export const DEFAULT_BASE_MS = 1_000;

function exponential(baseMs: number = DEFAULT_BASE_MS): BackoffOptions {
  return { type: "exponential", delay: baseMs, jitter: 1 };
}

/** BullMQ's name of a job carries the key: a dashboard then shows whose job it is. */
export function storedName(key: string | undefined): string {
  return key === undefined ? KEYLESS : KEYED + key;
}

/** The text of a stored job's key. */
export function encodedKeyOf({ name }: Pick<Stored<unknown>, "name">): string | undefined {
  return name.startsWith(KEYED) ? name.slice(KEYED.length) : undefined;
}

/**
 * What is stored of a job that is enqueued now, by the clock of Redis: only what differs from the defaults, since BullMQ
 * reads a job's options each time it moves the job; and since when its delay counts. A job that waits for a moment counts
 * from the latest time that it may be, so that it is not early; another from the earliest, so that no worker has it
 * before. Its deadline counts from the latest, so that it has its whole time.
 */
export function storedOptions(
  options: OrderedJobOptions,
  clock: Pick<RedisClock, "earliestMs" | "latestMs">,
  share?: number,
): { readonly opts: StoredOptions; readonly storedAtMs: number } {
  const { priority = "normal", at, attempts, backoff, dedupeId, dedupeMs, every, cron } = options;
  const nowMs = options.delayMs ? clock.latestMs() : clock.earliestMs();
  const delay = at === undefined ? (options.delayMs ?? 0) : Number(at) - nowMs;
  // A schedule has no need of deduplication: its name keeps it single.
  const isOnce = every === undefined && cron === undefined;
  const dueAtMs = Math.max(nowMs + delay, clock.latestMs());
  const own = ownOptions(options, isOnce ? dueAtMs : undefined);
  const sluice = { ...own, ...(share !== undefined && { share }) };
  const opts: StoredOptions = {
    // BullMQ runs lower numbers first, and jobs without one before all others: so every job has one.
    priority: PRIORITIES.indexOf(priority) + 1,
    // This very delay marks a job that is on its way to its lane.
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
 * Fills the defaults into a job that was fetched: BullMQ reads them when its handler fails or logs. It also reads them
 * when a handler has succeeded and Redis refuses the result, so it would be too late to fill them in once one fails.
 */
export function fillDefaults({ opts }: Pick<Stored<unknown>, "opts">): void {
  opts.attempts ||= DEFAULT_ATTEMPTS;
  opts.backoff ??= exponential();
  opts.keepLogs ??= KEPT_LINES;
  opts.stackTraceLimit ??= KEPT_STACKS;
}

const producers = new WeakMap<object, string>();

/** What the producer of a job that was read was part of, if something followed it. */
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
 * A job's hash, names and values in turns, as BullMQ reads what its own fetch returns. BullMQ is not told of which schedule
 * it is a run: as its worker fetched one, it would plan the next.
 */
export function readFields(fields: readonly string[], id: string): JobJson {
  const json = loadBullmq().raw2NextJobData([fields, id, 0, 0])[0] as JobJson;
  if (json.repeatJobKey === undefined) return json;
  const { repeatJobKey: _ofJob, ...rest } = json;
  const { repeatJobKey: _ofOpts, ...opts } = json.opts;
  return { ...rest, opts };
}

/** The schedule whose run a job is, of its hash; undefined for any other job. */
export function scheduleOf(fields: readonly string[]): string | undefined {
  for (let at = 0; at < fields.length; at += 2) if (fields[at] === SCHEDULE) return fields[at + 1];
  return undefined;
}

const RUN_ID = /^repeat:([^:]+):\d+$/;

/** The run of a schedule that a job of this id is; undefined for any other job. */
export function runNameOf(id: string): RunName | undefined {
  const name = RUN_ID.exec(id)?.[1];
  return name === undefined ? undefined : { name, id };
}

/** Has BullMQ try the job at hand again after `delayMs`, if its attempt fails and others are left. */
export function setBackoff({ opts }: Pick<Stored<unknown>, "opts">, delayMs: number): void {
  opts.backoff = { type: "fixed", delay: delayMs };
}

function startByMsOf({ sluice, delay = 0 }: StoredOptions, storedAtMs: number): number | undefined {
  const { maxWaitMs, startByMs } = sluice ?? {};
  return startByMs ?? (maxWaitMs === undefined ? undefined : storedAtMs + delay + maxWaitMs);
}

/**
 * How often a worker has died with the job, how often while it ran, and the start of its last run: written by BullMQ, by
 * `lua/queue/workers/jobs-recall.lua` and by `jobs-begin.lua`. BullMQ keeps its count when a failed job is retried
 * (taskforcesh/bullmq#3555).
 */
const DEATHS = ["stc", "sluice:deaths", "sluice:ran"];
/** Set when somebody has cancelled the job; written by `lua/queue/steer/jobs-cancel.lua`. */
const CANCELLED_FIELD = "sluice:cancelled";
/** The name of the schedule whose run a job is: BullMQ's "repeat job key". */
const SCHEDULE = "rjk";
/** The place that a job came to when it first joined its lane; written by `lua/lib/lanes/join.lua`. */
const SEQ = "sluiceSeq";

/**
 * When the job became due again, in ms since 1970: for a retry, after a replay, or since its worker died. Written here, by
 * the worker's backend and by `lua/queue/steer/jobs-move.lua`; read by `lua/queue/lanes/oldest-look.lua`, too.
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
    // Nothing stays of a job that was removed at the same time.
    if ((await client.hget(key, "name")) === null) await client.hdel(key, DUE);
  }
}

/** Reads when a job became due again; undefined if it was due only once. */
export async function readDue(queue: Queue, id: string): Promise<number | undefined> {
  const client = await queue.getBackend().client;
  const text = await client.hget(queue.toKey(id), DUE);
  return text === null ? undefined : Number(text);
}

/** What is known of the error that failed a job, as JSON; written when it becomes a dead letter. */
export const FAILURE = "sluice:failure";

/** Reads that of some failed jobs. */
export async function readFailures(
  queue: Queue,
  ids: readonly string[],
): Promise<readonly FailureFacts[]> {
  const client = await queue.getBackend().client;
  const found = await Promise.all(ids.map((id) => client.hget(queue.toKey(id), FAILURE)));
  return found.map(parseErrorFacts);
}

/** Whether a job is on its way to its lane, in which it has never been. */
export async function isOnItsWay(queue: Queue, { id }: Stored<unknown>): Promise<boolean> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // One that was in its lane, and waits for its next attempt, may be delayed by just as much.
  const [delay, seq] = await Promise.all([client.hget(key, "delay"), client.hget(key, SEQ)]);
  return delay === String(PARK_MS) && seq === null;
}

/** Whether a job was cancelled before it was taken: its fields are names and values in turns. */
export function wasCancelled(fields: readonly string[]): boolean {
  return fields.some((name, index) => index % 2 === 0 && name === CANCELLED_FIELD);
}

/** Makes a job like one that nobody has cancelled. */
export async function forgetCancel(
  stored: Pick<Queue, "getBackend" | "toKey">,
  id: string,
): Promise<void> {
  const client = await stored.getBackend().client;
  await client.hdel(stored.toKey(id), CANCELLED_FIELD);
}

/** Makes a failed job like a new one: its workers' deaths are forgotten, and its `maxWaitMs` counts from now, on Redis' clock. */
export async function renew(
  queue: Queue,
  { id, opts }: Stored<unknown>,
  clock: RedisClock,
): Promise<void> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // A run of a schedule is a job of its own from then on.
  await client.hdel(key, ...DEATHS, FAILURE, CANCELLED_FIELD, SCHEDULE);
  await clock.ready();
  await client.hset(key, { [DUE]: clock.latestMs() });
  const { maxWaitMs } = opts.sluice ?? {};
  const written = maxWaitMs === undefined ? null : await client.hget(key, "opts");
  if (maxWaitMs === undefined || written === null) return;
  // As they are stored, since BullMQ has shorter names for some of them there.
  const options = JSON.parse(written) as StoredOptions;
  const sluice = { ...options.sluice, startByMs: clock.latestMs() + maxWaitMs };
  await client.hset(key, { opts: JSON.stringify({ ...options, sluice }) });
}
