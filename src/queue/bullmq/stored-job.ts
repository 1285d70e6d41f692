/**
 * Stores our jobs as BullMQ jobs. The job's key is part of BullMQ's job name, and our options are stored beside
 * BullMQ's options. This relies on two properties of BullMQ: BullMQ stores unknown options unchanged, and its workers
 * read the options of the current job object when an attempt ends. BullMQ's documentation promises neither; checked
 * with bullmq 6.7.0 (`moveToFailed` and `shouldRetryJob` in job.js).
 *
 * This module reads and writes some fields of a job's hash directly in Redis, because BullMQ has no method for them. No
 * upstream issue known; checked with bullmq 6.7.0.
 */
import type { BackoffOptions, JobJson, JobsOptions, Queue, Job as StoredJob } from "bullmq";
import { decodeKey } from "../../core/key-path.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import type { RunName } from "../../stores/redis/scripts/queue/runs.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import type { Cost } from "../../throttle/costs.ts";
import { parseErrorFacts, type FailureFacts } from "../failure.ts";
import type { Job, JobReference } from "../job.ts";
import type { LaneOrder, OrderedJobOptions } from "../options.ts";
import { loadBullmq } from "./load-bullmq.cjs";

/**
 * The delay of a job that is on its way to its lane. In the lane, the job is delayed by a day. If the job does not
 * reach its lane, it becomes due after this delay, and joins its lane then.
 */
export const PARK_MS = 10_000;

/** Our options of a job, stored beside BullMQ's options. Only values that differ from the defaults are stored. */
interface OwnOptions {
  /** The job's name. It is stored here, because BullMQ's job name contains the key instead. */
  readonly name?: string;
  readonly cost?: Cost;
  /** How long after its due time a job may start its first attempt, in ms. */
  readonly maxWaitMs?: number;
  /**
   * The latest start time according to `maxWaitMs`, in ms since 1970. Absent for recurring jobs, because their runs are
   * due at different times.
   */
  readonly startByMs?: number;
  readonly maxBackoffMs?: number;
  /** The time limit for each attempt, in ms. Replaces the worker's limit. */
  readonly timeoutMs?: number;
  /** How many calls of cost 1 the job counts as. Absent for 1. */
  readonly share?: number;
  /**
   * What happens to the job's key after a dead letter. Absent if the key is not ordered. `lua/lib/lanes/order.lua`
   * reads this.
   */
  readonly ordered?: LaneOrder;
  /** The W3C `traceparent` of the job's producer, with 55 characters. */
  readonly trace?: string;
}

export type StoredOptions = JobsOptions & { sluice?: OwnOptions };

/** A BullMQ job with typed data. */
export type Stored<Data> = StoredJob<Data, unknown> & { opts: StoredOptions };

const KEYLESS = "job";
const KEYED = "key ";
/** How many lines of a job's log are kept: the latest lines. */
const KEPT_LINES = 100;
/** How many stack traces of failed attempts are kept. Only the latest, because each may have many lines. */
const KEPT_STACKS = 1;

/** The defaults for jobs without these options: the most attempts, and the first delay of the backoff. */
const DEFAULT_ATTEMPTS = 20;
export const DEFAULT_BASE_MS = 1_000;

function exponential(baseMs: number = DEFAULT_BASE_MS): BackoffOptions {
  return { type: "exponential", delay: baseMs, jitter: 1 };
}

/** Returns BullMQ's name for a job. The name contains the job's key, so that a dashboard shows whose job it is. */
export function storedName(key: string | undefined): string {
  return key === undefined ? KEYLESS : KEYED + key;
}

/** Returns the encoded key of a stored job. Undefined without a key. */
export function encodedKeyOf({ name }: Pick<Stored<unknown>, "name">): string | undefined {
  return name.startsWith(KEYED) ? name.slice(KEYED.length) : undefined;
}

/**
 * Returns the options to store for a job that is enqueued now, on the clock of Redis, and the time from which the job's
 * delay counts. Only options that differ from the defaults are stored, because BullMQ reads a job's options each time
 * it moves the job.
 *
 * The clock of Redis is known only within a range. A delay counts from the latest time that it may be now, so that the
 * job is not early. Without a delay, the earliest time is used, so that no worker fetches the job before that time. The
 * deadline counts from the latest time, so that the job gets its full `maxWaitMs`.
 */
export function storedOptions(
  options: OrderedJobOptions,
  clock: Pick<RedisClock, "earliestMs" | "latestMs">,
  share?: number,
): { readonly opts: StoredOptions; readonly storedAtMs: number } {
  const { priority = "normal", at, attempts, backoff, dedupeId, dedupeMs, every, cron } = options;
  const nowMs = options.delayMs ? clock.latestMs() : clock.earliestMs();
  const delay = at === undefined ? (options.delayMs ?? 0) : Number(at) - nowMs;
  // BullMQ's deduplication is not used for a schedule, because its name is unique.
  const isOnce = every === undefined && cron === undefined;
  const dueAtMs = Math.max(nowMs + delay, clock.latestMs());
  const own = ownOptions(options, isOnce ? dueAtMs : undefined);
  const sluice = { ...own, ...(share !== undefined && { share }) };
  const opts: StoredOptions = {
    // Every job has a priority number. BullMQ runs lower numbers first, and would run jobs without a number before all
    // other jobs.
    priority: PRIORITIES.indexOf(priority) + 1,
    // A delay of exactly `PARK_MS` marks a job that is on its way to its lane, so another value is stored.
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
 * Fills default options into a fetched job. BullMQ reads these options when the job's handler fails or logs. It also
 * reads them when the handler has succeeded and Redis rejects the result, so filling them in after a failure would be
 * too late.
 */
export function fillDefaults({ opts }: Pick<Stored<unknown>, "opts">): void {
  opts.attempts ||= DEFAULT_ATTEMPTS;
  opts.backoff ??= exponential();
  opts.keepLogs ??= KEPT_LINES;
  opts.stackTraceLimit ??= KEPT_STACKS;
}

const producers = new WeakMap<object, string>();

/** Returns the `traceparent` of a job's producer. Undefined if the producer was not traced. */
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

/** Returns how long after it was stored a job becomes due, in ms. */
function delayOf({ delay = 0 }: StoredOptions): number {
  return delay === PARK_MS ? 0 : delay;
}

/**
 * Reads a job's hash as BullMQ reads the reply of its own fetch. `fields` alternates names and values. The schedule of
 * a run is left out, because BullMQ's worker would otherwise plan the next run.
 */
export function readFields(fields: readonly string[], id: string): JobJson {
  const json = loadBullmq().raw2NextJobData([fields, id, 0, 0])[0] as JobJson;
  if (json.repeatJobKey === undefined) return json;
  const { repeatJobKey: _ofJob, ...rest } = json;
  const { repeatJobKey: _ofOpts, ...opts } = json.opts;
  return { ...rest, opts };
}

/**
 * Returns the name of the schedule to which a run belongs, from the hash of the job. Undefined for a job that is not a
 * run of a schedule.
 */
export function scheduleOf(fields: readonly string[]): string | undefined {
  for (let at = 0; at < fields.length; at += 2) if (fields[at] === SCHEDULE) return fields[at + 1];
  return undefined;
}

const RUN_ID = /^repeat:([^:]+):\d+$/;

/** Returns the schedule's name and the job id if the id belongs to a run. Undefined for any other job id. */
export function runNameOf(id: string): RunName | undefined {
  const name = RUN_ID.exec(id)?.[1];
  return name === undefined ? undefined : { name, id };
}

/** Makes BullMQ retry this job after `delayMs` if the current attempt fails and more attempts are left. */
export function setBackoff({ opts }: Pick<Stored<unknown>, "opts">, delayMs: number): void {
  opts.backoff = { type: "fixed", delay: delayMs };
}

function startByMsOf({ sluice, delay = 0 }: StoredOptions, storedAtMs: number): number | undefined {
  const { maxWaitMs, startByMs } = sluice ?? {};
  return startByMs ?? (maxWaitMs === undefined ? undefined : storedAtMs + delay + maxWaitMs);
}

/**
 * The fields for how often a worker died while it held the job, how often a worker died while the job ran, and when the
 * job last began to run. BullMQ, `lua/queue/workers/jobs-recall.lua` and `jobs-begin.lua` write these fields. BullMQ
 * does not reset its count when a failed job is retried (taskforcesh/bullmq#3555).
 */
const DEATHS = ["stc", "sluice:deaths", "sluice:ran"];
/** The field that marks a cancelled job. `lua/queue/steer/jobs-cancel.lua` writes it. */
const CANCELLED_FIELD = "sluice:cancelled";
/** The field with the name of the schedule to which a run belongs: BullMQ's "repeat job key". */
const SCHEDULE = "rjk";
/** The field with the position that a job got when it first joined its lane. `lua/lib/lanes/join.lua` writes it. */
const SEQ = "sluiceSeq";

/**
 * The field for when the job became due again, in ms since 1970: for a retry, after a replay, or when its worker died.
 * This module, the worker's backend and `lua/queue/steer/jobs-move.lua` write it. `lua/queue/lanes/oldest-look.lua`
 * also reads it.
 */
export const DUE = "sluice:due";

/** Records that jobs became due again just now. */
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
    // If the job was removed at the same time, deletes the field again, so that no hash remains.
    if ((await client.hget(key, "name")) === null) await client.hdel(key, DUE);
  }
}

/** Reads when a job became due again, in ms since 1970. Undefined if the job was due only once. */
export async function readDue(queue: Queue, id: string): Promise<number | undefined> {
  const client = await queue.getBackend().client;
  const text = await client.hget(queue.toKey(id), DUE);
  return text === null ? undefined : Number(text);
}

/**
 * The field with the code, status and causes of the error that failed a job, as JSON. Written when the job becomes a
 * dead letter.
 */
export const FAILURE = "sluice:failure";

/** Reads the codes, statuses and causes of the errors of some failed jobs. */
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
  // The delay alone is not enough: a job that was in its lane and waits for its next attempt may have the same delay.
  const [delay, seq] = await Promise.all([client.hget(key, "delay"), client.hget(key, SEQ)]);
  return delay === String(PARK_MS) && seq === null;
}

/** True if a job was cancelled before it was fetched. `fields` alternates names and values. */
export function wasCancelled(fields: readonly string[]): boolean {
  return fields.some((name, index) => index % 2 === 0 && name === CANCELLED_FIELD);
}

/**
 * The field with the failed parent because of which a job fails, and the reason of the parent's failure.
 * `lua/lib/flows/release.lua` writes it.
 */
const BLAME = "sluice:blame";

/** A parent that has failed, and its reason. */
export interface BlamedParent extends JobReference {
  readonly reason: string;
}

function readBlame(text: string): BlamedParent {
  const [, queue, id, reason] = /^([^:]*):([^\n]*)\n(.*)$/s.exec(text)!;
  return { queue: queue!, id: id!, reason: reason! };
}

/** Returns the failed parent because of which a fetched job must fail. Undefined for other jobs. */
export function blamedParentIn(fields: readonly string[]): BlamedParent | undefined {
  for (let at = 0; at < fields.length; at += 2)
    if (fields[at] === BLAME) return readBlame(fields[at + 1]!);
  return undefined;
}

/** Like {@link blamedParentIn}, for a stored job. */
export async function blamedParentOf(queue: Queue, id: string): Promise<BlamedParent | undefined> {
  const client = await queue.getBackend().client;
  const text = await client.hget(queue.toKey(id), BLAME);
  return text === null ? undefined : readBlame(text);
}

/** Reads whether a job waits for its parents, and whether it is the final job of a group that is open. */
export async function readAwaits(
  queue: Queue,
  id: string,
): Promise<{ readonly awaits: boolean; readonly isGroupOpen: boolean }> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id);
  const [awaits, open] = await Promise.all([
    client.hget(key, "sluice:awaits"),
    client.hget(key, "sluice:open"),
  ]);
  return { awaits: awaits !== null, isGroupOpen: open !== null };
}

/** True if a fetched job has parents. */
export function hasParents(fields: readonly string[]): boolean {
  return fields.some((name, index) => index % 2 === 0 && name === "sluice:parents");
}

/** Reads a job's hash: names and values alternate. Empty if the job does not exist. */
export async function fieldsOf(
  stored: Pick<Queue, "getBackend" | "toKey">,
  id: string,
): Promise<readonly string[]> {
  const client = await stored.getBackend().client;
  return Object.entries(await client.hgetall(stored.toKey(id))).flat();
}

/** True if a job that a worker holds was cancelled. */
export async function isCancelled(
  stored: Pick<Queue, "getBackend" | "toKey">,
  id: string,
): Promise<boolean> {
  const client = await stored.getBackend().client;
  return (await client.hget(stored.toKey(id), CANCELLED_FIELD)) !== null;
}

/** True if the job is locked with this token. */
export async function isLockedBy(
  stored: Pick<Queue, "getBackend" | "toKey">,
  { id, token }: { readonly id: string; readonly token: string },
): Promise<boolean> {
  const client = await stored.getBackend().client;
  return (await client.get(stored.toKey(`${id}:lock`))) === token;
}

/** Removes the field that marks a job as cancelled. */
export async function forgetCancel(
  stored: Pick<Queue, "getBackend" | "toKey">,
  id: string,
): Promise<void> {
  const client = await stored.getBackend().client;
  await client.hdel(stored.toKey(id), CANCELLED_FIELD);
}

/**
 * Resets a failed job as if it were new: deletes the counts of its workers' deaths, and makes its `maxWaitMs` count
 * from now, on the clock of Redis.
 */
export async function renew(
  queue: Queue,
  { id, opts }: Stored<unknown>,
  clock: RedisClock,
): Promise<void> {
  const client = await queue.getBackend().client;
  const key = queue.toKey(id!);
  // Without the schedule field, a run of a schedule becomes an ordinary job.
  await client.hdel(key, ...DEATHS, FAILURE, CANCELLED_FIELD, SCHEDULE, BLAME);
  await clock.ready();
  await client.hset(key, { [DUE]: clock.latestMs() });
  const { maxWaitMs } = opts.sluice ?? {};
  const written = maxWaitMs === undefined ? null : await client.hget(key, "opts");
  if (maxWaitMs === undefined || written === null) return;
  // Uses the options as stored in Redis, because BullMQ stores some options under shorter names.
  const options = JSON.parse(written) as StoredOptions;
  const sluice = { ...options.sluice, startByMs: clock.latestMs() + maxWaitMs };
  await client.hset(key, { opts: JSON.stringify({ ...options, sluice }) });
}
