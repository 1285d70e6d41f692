/** Stores checked jobs in Redis, and reports which jobs were stored. */
import type { Queue as StoredQueue } from "bullmq";
import type { Payloads } from "../../core/codec.ts";
import {
  redisRefusalOf,
  SluiceError,
  StoreUnavailableError,
  type RedisRefusal,
} from "../../core/errors.ts";
import { errorTypeOf, type Observing } from "../../core/events/observer.ts";
import { decodeKey } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { RunDeclaration } from "../../stores/redis/scripts/queue/runs.ts";
import type { AddedJob, AddRequest, WakeResult } from "../../stores/redis/scripts/queue/jobs.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import { addJobs, addLookedUpJobs, type NewJob } from "../bullmq/stored-queue.ts";
import type { QueueConnection } from "../bullmq/connection.ts";
import { PARK_MS, readJob, storedName, storedOptions } from "../bullmq/stored-job.ts";
import { storeSchedule } from "../bullmq/stored-schedule.ts";
import { QueueFullError } from "../errors.ts";
import { decodeJob, mapInTurns, type Job } from "../job.ts";
import type { Flows } from "../manage/flows.ts";
import { parkFromProducer, type ParkParts } from "../lanes/park.ts";
import type { WeightsOf } from "../lanes/lane-options.ts";
import {
  isDebounced,
  isRecurring,
  withDefaults,
  type JobOptionsRead,
  type OrderedJobOptions,
} from "../options.ts";
import type { Turn } from "./call-order.ts";
import type { TakenData } from "./data.ts";
import { queuedJob, type JobSource, type QueuedJob } from "./job-handle.ts";
import { isLinked, linkJobs, parentsFirst, type JobToLink, type Links } from "./parents.ts";
import type { QueueSettingsLive } from "./settings.ts";

/** The data and options of a job that will be stored. */
export interface JobToStore<Data> extends TakenData<Data>, Omit<JobToLink, "options"> {
  readonly options: OrderedJobOptions;
  /** The id of the outbox row that the job comes from. The job then has an id. */
  readonly row?: string | undefined;
}

export interface StoringParts {
  readonly name: string;
  readonly bucket: OwnedBucket;
  readonly connection: QueueConnection;
  readonly logger: Logger;
  /** The weights of a key's lane and of its parent keys. */
  readonly weightsOf: WeightsOf;
  readonly settings: Pick<QueueSettingsLive, "now" | "current">;
  readonly observing?: Observing | undefined;
  readonly jobs: JobSource;
  readonly flows: Flows;
  readonly payloads: Payloads;
  /** Checks that a worker fetches a stored job. */
  readonly wakes: Pick<WakeWatch, "watch">;
}

/** The limits of one round trip: the most pending jobs, and the outbox with its time limit. */
type Bounds = Pick<AddRequest, "most" | "outbox">;

/** What concerns all jobs of one call. */
interface CallParts {
  /** Set for the jobs of an outbox. */
  readonly outbox?: AddRequest["outbox"];
  /** The turn of a call with ordered keys. It ends once all jobs of the call are sent to Redis. */
  readonly turn?: Turn | undefined;
}

interface Storing<Data, Result> {
  /** Stores jobs in one round trip. */
  store(entries: readonly JobToStore<Data>[], call?: CallParts): Promise<QueuedJob<Data, Result>[]>;
  /**
   * Stores jobs in as many round trips as needed. For the jobs of an outbox, Redis rejects each round trip that arrives
   * too late.
   */
  storeMany(
    entries: readonly JobToStore<Data>[],
    call?: CallParts,
  ): Promise<QueuedJob<Data, Result>[]>;
}

/** A job as it is stored in Redis, and whether this call has stored it. */
interface StoredNow<Data> {
  readonly job: Job<Data>;
  readonly isNew: boolean;
}

/** The most jobs in one round trip, and the most characters of their data if a script checks for existing jobs. */
const PER_ROUND_TRIP = 1_000;
const CHARACTERS_PER_SCRIPT = 4_000_000;

export function createStoring<Data, Result>(parts: StoringParts): Storing<Data, Result> {
  const { name, bucket, connection, logger, weightsOf, jobs: source, wakes } = parts;
  const { access } = source;
  const open = (): Promise<StoredQueue> => access.open("nothing was stored");
  const { settings } = parts;
  const parking: ParkParts = { name, logger, lanes: connection.lanes, weightsOf, open };

  async function store(
    given: readonly JobToStore<Data>[],
    { outbox, turn }: CallParts = {},
  ): Promise<QueuedJob<Data, Result>[]> {
    const startedAtMs = performance.now();
    const [queue, { defaults, maxBacklog }] = await Promise.all([open(), settings.current()]);
    const entries =
      defaults === undefined
        ? given
        : given.map((entry) => ({ ...entry, options: withDefaults(entry.options, defaults) }));
    const [first] = entries;
    const isSchedule = first !== undefined && isRecurring(first.options);
    const storing = isSchedule
      ? storeRecurring(queue, first).then((job) => [job])
      : storeOnce(queue, entries, { most: maxBacklog, outbox, turn });
    const sent = (error?: unknown): void => {
      const observer = parts.observing?.observer;
      if (observer === undefined) return;
      const of = [name, errorTypeOf(error)] as const;
      observer.series("messaging.client.sent.messages", ...of).add(entries.length);
      observer
        .series("messaging.client.operation.duration", ...of)
        .add(performance.now() - startedAtMs);
    };
    try {
      const jobs = await confirmed(access.inTimeSince(startedAtMs, storing));
      sent();
      watchOne(jobs);
      return jobs.map(({ job, isNew }) => queuedJob(job, source, isNew));
    } catch (error) {
      sent(error);
      throw asMemoryFull(error, entries.length);
    }
  }

  /** Watches one of the jobs that were stored together. The worker that fetches this job finds the other jobs. */
  function watchOne(jobs: readonly StoredNow<Data>[]): void {
    const found = jobs.find(({ isNew }) => isNew);
    if (found === undefined) return;
    const { id, dueAtMs } = found.job;
    wakes.watch(id, dueAtMs - access.clock.earliestMs());
  }

  async function storeRecurring(
    queue: StoredQueue,
    entry: JobToStore<Data>,
  ): Promise<StoredNow<Data>> {
    const { json, value: data } = entry;
    const declare = (run: RunDeclaration) => connection.runs.declare({ queue: name, ...run });
    const { job, isNew } = await storeSchedule<Data>(
      queue,
      { declare, clock: access.clock },
      entry,
    );
    // The returned job has the stored data, because a run that a worker holds keeps its earlier data.
    const isOurs = JSON.stringify(job.data) === json;
    return { job: await decodeJob(parts.payloads, isOurs ? { ...job, data } : job), isNew };
  }

  /** Returns how many calls of cost 1 a job counts as, in its lane's turns and in forecasts. Undefined means 1. */
  function shareOf({ key, cost }: JobOptionsRead): number | undefined {
    if (cost === undefined) return undefined;
    const share = bucket.stepsOf({ key, cost }).sharedMs / bucket.stepsOf({ key }).sharedMs;
    return Number.isFinite(share) && share > 0 && share !== 1 ? share : undefined;
  }

  async function storeOnce(
    queue: StoredQueue,
    entries: readonly JobToStore<Data>[],
    { turn, ...bounds }: Bounds & Pick<CallParts, "turn">,
  ): Promise<StoredNow<Data>[]> {
    const { clock } = access;
    const trace = parts.observing?.traces?.producer();
    await clock.ready();
    const links = entries.some(isLinked)
      ? await linkJobs({ queue: name, flows: parts.flows, weightsOf }, entries)
      : undefined;
    const bulk = entries.map(({ json, value, options: given }, index) => {
      const mustWait = links?.jobs[index]!.mustWait ?? false;
      // The delay of a job with parents begins when these have ended.
      const waiting = mustWait ? { ...given, delayMs: undefined, at: undefined } : given;
      const options = isDebounced(given) ? { ...given, delayMs: given.dedupe.waitMs } : waiting;
      const { opts: own, storedAtMs } = storedOptions(options, clock, shareOf(options));
      const opts = trace === undefined ? own : { ...own, sluice: { ...own.sluice, trace } };
      const isParked = options.key !== undefined && opts.delay === undefined && !mustWait;
      return {
        name: storedName(options.key),
        json,
        value,
        opts: isParked ? { ...opts, delay: PARK_MS } : opts,
        storedAtMs,
        isParked,
      };
    });
    if (bounds.most !== undefined || entries.some(needsLook)) {
      const storing = storeLookedUp(queue, entries, bulk, { ...bounds, links, turn });
      const stored = await storing.catch(async (error: unknown) => {
        if (hasStoredNothing(error)) await links?.retract().catch(() => undefined);
        throw error;
      });
      await links?.settle();
      return stored;
    }
    const jobs = await addJobs(queue, bulk);
    const parked = jobs.filter((_job, index) => bulk[index]!.isParked);
    if (parked.length > 0) await parkFromProducer(parking, parked);
    return jobs.map((job) => ({ job: readJob(job), isNew: true }));
  }

  /** Stores jobs of which some may exist already. The new jobs join their lanes at once. */
  async function storeLookedUp(
    queue: StoredQueue,
    entries: readonly JobToStore<Data>[],
    bulk: readonly (NewJob<Data> & { readonly isParked: boolean })[],
    {
      links,
      turn,
      ...bounds
    }: Bounds & Pick<CallParts, "turn"> & { readonly links: Links | undefined },
  ): Promise<StoredNow<Data>[]> {
    const jobs = entries.map(({ options, row }, index) => {
      const { key } = options;
      const { isParked, ...job } = bulk[index]!;
      const { id = options.id, flow, children } = links?.jobs[index] ?? {};
      const own = { id, isParked, weights: weightsOf(key), dedupe: dedupeOf(options), row };
      return { ...job, own: { ...own, keep: keepOf(options), flow, children } };
    });
    const isOrdered = entries.some(({ options }) => options.ordered !== undefined);
    const met = await addLookedUpJobs(queue, jobs, async (added) => {
      await turn?.begun;
      const adding = connection.addJobs({ queue: name, jobs: added, isOrdered, ...bounds });
      turn?.end();
      const stored = await adding;
      if ("limit" in stored) {
        const key = stored.key === undefined ? undefined : decodeKey(stored.key);
        const facts = { ...stored, key, asked: added.length, storedCount: 0 };
        throw new QueueFullError({ queue: name, ...facts });
      }
      return stored;
    });
    return mapInTurns(met, async ({ stored, isNew }) => ({
      job: await decodeJob(parts.payloads, readJob(stored)),
      isNew,
    }));
  }

  return {
    store,
    async storeMany(entries, { outbox, turn } = {}) {
      const order = parentsFirst(name, entries);
      const ordered = order.map((index) => entries[index]!);
      const jobs: QueuedJob<Data, Result>[] = [];
      while (jobs.length < ordered.length) {
        const some = roundTripFrom(ordered, jobs.length, settings.now.maxBacklog !== undefined);
        const isLast = jobs.length + some.length === ordered.length;
        const own = isLast ? turn : turn && { ...turn, end: () => undefined };
        const stored = store(some, { outbox, turn: own }).catch((error) =>
          Promise.reject(afterOthers(jobs, error)),
        );
        jobs.push(...(await stored));
      }
      const given: QueuedJob<Data, Result>[] = [];
      for (const [at, index] of order.entries()) given[index] = jobs[at]!;
      return given;
    },
  };
}

/**
 * True if this job may meet another one: by its id, its dedupeId, or the bound of its key. Also true for flows, and for
 * ordered keys, because a job that joins its lane in a second round trip could be overtaken.
 */
function needsLook(job: JobToStore<unknown>): boolean {
  const { id, dedupeId, keep, ordered } = job.options;
  return isLinked(job) || [id, dedupeId, keep, ordered].some((option) => option !== undefined);
}

function keepOf({ keep, keepAtMost = 1 }: JobOptionsRead): AddedJob["keep"] {
  return keep === undefined ? undefined : { mode: keep, most: keepAtMost };
}

function dedupeOf(options: JobOptionsRead): AddedJob["dedupe"] {
  const { dedupeId, dedupe = "first", dedupeMs, cancelRunning } = options;
  if (dedupeId === undefined) return undefined;
  const common = { id: dedupeId, ttl: dedupeMs, cancels: cancelRunning };
  if (typeof dedupe !== "object") return { ...common, mode: dedupe };
  const { mode, waitMs, maxDelayMs } = dedupe;
  return { ...common, mode, waitMs, mostMs: maxDelayMs };
}

/**
 * Returns the jobs for the round trip that begins with job `first`. The round trip is bounded, because Redis is blocked
 * while a script stores its jobs.
 */
function roundTripFrom<Data>(
  entries: readonly JobToStore<Data>[],
  first: number,
  isBounded: boolean,
): JobToStore<Data>[] {
  const some = entries.slice(first, first + PER_ROUND_TRIP);
  if (!isBounded && !some.some(needsLook)) return some;
  let characters = 0;
  const end = some.findIndex(({ json }, index) => {
    characters += json.length;
    return index > 0 && characters > CHARACTERS_PER_SCRIPT;
  });
  return end < 0 ? some : some.slice(0, end);
}

/** The beginning of ioredis's error message for a command that was not sent. */
const UNSENT = "Stream isn't writeable";

/** Waits until Redis confirms the jobs. If Redis does not confirm them, the error says whether they may be stored. */
async function confirmed<Answer>(storing: Promise<Answer>): Promise<Answer> {
  try {
    return await storing;
  } catch (cause) {
    // The error says that the queue is full.
    if (cause instanceof SluiceError) throw cause;
    const isUnsent = cause instanceof Error && cause.message.startsWith(UNSENT);
    const refusal = redisRefusalOf(cause);
    const problem = isUnsent
      ? "Redis could not be reached; nothing was stored"
      : `${whatRedisDid(refusal)}; it may or may not be stored. With an id or a dedupeId, a retry is safe`;
    const remedy = `${refusal?.remedy ?? "See that Redis runs"}, and try again.`;
    throw new StoreUnavailableError(`${problem}. ${remedy}`, cause, { mayBeStored: !isUnsent });
  }
}

/** True if a script has certainly stored none of its jobs. Redis runs a script completely or not at all. */
function hasStoredNothing(error: unknown): boolean {
  if (error instanceof QueueFullError) return true;
  return (
    error instanceof Error && (error.message.startsWith(UNSENT) || /\bOOM /.test(error.message))
  );
}

function whatRedisDid(refusal: RedisRefusal | undefined): string {
  if (refusal === undefined) return "Redis did not confirm the job";
  return `Redis refused the job: ${refusal.reason}`;
}

/** Returns the error of a failed round trip, with the number of jobs that earlier round trips stored. */
function afterOthers(stored: readonly unknown[], error: unknown): unknown {
  if (error instanceof QueueFullError) {
    const { queue, limit, waiting, key, asked } = error;
    return new QueueFullError({ queue, limit, waiting, key, asked, storedCount: stored.length });
  }
  if (!(error instanceof StoreUnavailableError) || stored.length === 0) return error;
  const message = `The first ${stored.length} jobs are stored. For the next ones: ${error.message}`;
  const facts = { mayBeStored: error.mayBeStored, storedCount: stored.length };
  return new StoreUnavailableError(message, error.cause, facts);
}

/** Returns a clearer error if Redis rejected the jobs because its memory is full. Returns any other error unchanged. */
function asMemoryFull(error: unknown, jobs: number): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  const { cause } = error;
  if (!(cause instanceof Error) || !/\bOOM /.test(cause.message)) return error;
  // A single job is certainly not stored: each job is stored by its own script, and Redis runs a script completely or
  // not at all.
  const mayBeStored = jobs > 1;
  const outcome = mayBeStored ? "some of the jobs may be stored" : "nothing was stored";
  const remedy = "Give it more (maxmemory), or let workers drain its queues, and try again.";
  return new StoreUnavailableError(`The memory of Redis is full; ${outcome}. ${remedy}`, cause, {
    mayBeStored,
  });
}

interface WakeWatch {
  /** Watches a job that is due in this many ms. */
  watch(id: string, dueInMs?: number): void;
  close(): void;
}

const FIRST_LOOK_MS = 250;
/** After this time, each worker has asked Redis for jobs by itself. */
const LAST_LOOK_MS = 4_000;
/**
 * Jobs that are due later than this are not watched. A worker that asks in the meantime learns when these jobs are due.
 */
const MOST_DUE_MS = 5_000;
const MOST_TIMERS = 100;

/**
 * Checks that a worker fetches a stored job. An enqueued job wakes one idle worker. If that worker is frozen or its
 * connection is dead, no other worker asks for the job soon. So the producer checks a moment later, and wakes another
 * worker if the job is still there. Only one check runs at a time, on behalf of all jobs stored since the last check.
 * This takes at most four commands a second, and one every four seconds while jobs wait for their turn anyway.
 */
export function createWakeWatch(look: (id: string) => Promise<WakeResult>): WakeWatch {
  /** The ids of the watched job, and of the latest job that was stored during this watch. */
  let watched: string | undefined;
  let latest: string | undefined;
  let lookMs = FIRST_LOOK_MS;
  const timers = new Set<NodeJS.Timeout>();

  function later(ms: number, act: () => void): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      act();
    }, ms).unref();
    timers.add(timer);
  }

  function begin(id: string): void {
    watched = id;
    later(lookMs, () => void lookAt(id));
  }

  async function lookAt(id: string): Promise<void> {
    // If Redis is unreachable, the check ends. No worker can fetch the job now, and all workers ask for jobs when Redis
    // is back.
    const result = await look(id).catch((): WakeResult => "taken");
    lookMs = result === "taken" ? FIRST_LOOK_MS : Math.min(2 * lookMs, LAST_LOOK_MS);
    const isOver = result !== "woken" || lookMs === LAST_LOOK_MS;
    const next = isOver ? latest : id;
    if (isOver) latest = undefined;
    watched = undefined;
    if (next !== undefined) begin(next);
  }

  function watchNow(id: string): void {
    if (watched === undefined) begin(id);
    else latest = id;
  }

  return {
    watch(id, dueInMs = 0) {
      if (dueInMs <= 0) watchNow(id);
      else if (dueInMs <= MOST_DUE_MS && timers.size < MOST_TIMERS) {
        later(dueInMs, () => watchNow(id));
      }
    },
    close() {
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
      watched = "";
    },
  };
}
