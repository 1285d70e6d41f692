/** Scripts that add, start and end the jobs that BullMQ stores. */
import { baseOf, queueKeys, type QueueName } from "../keys.ts";
import { shapeScript, type ScriptInput, type ScriptOutput } from "../script.ts";
import {
  constant,
  flag,
  flat,
  from,
  fromEach,
  int,
  list,
  mapped,
  oneOf,
  optional,
  readerOf,
  rest,
  text,
  type Read,
} from "../shape.ts";
import type { AddedFlow } from "./flows.ts";
import { HELD_JOB, prefix, type LaneJob } from "./lanes.ts";

/**
 * What happens to a new job whose `dedupeId` another job already has:
 *
 * - `"first"` drops the new job.
 * - `"last"` replaces the data of the other job.
 * - `"again"` runs the new job after the other one.
 */
export type DedupeMode = "first" | "last" | "again";

/** A job to store, unless a stored job has the same id or dedupeId. */
export interface AddedJob {
  /** The id that the caller chose. If undefined, the job gets the queue's next number. */
  readonly id: string | undefined;
  readonly name: string;
  /** The job's data, as JSON. */
  readonly json: string;
  /** The job's options in BullMQ's format, as JSON. */
  readonly opts: string;
  readonly timestamp: number;
  readonly delay: number;
  readonly priority: number;
  /**
   * True if the job joins its key's lane immediately. `weights` then sets the weights of the lane
   * and of its parent keys.
   */
  readonly isParked: boolean;
  readonly weights: LaneJob["weights"];
  readonly dedupe: AddedDedupe | undefined;
  /** The most jobs of the key that wait, and which of them stay. Undefined for no limit. */
  readonly keep: { readonly mode: "newest" | "oldest"; readonly most: number } | undefined;
  /** The id of the outbox row that the job comes from. A row is stored only once. */
  readonly row?: string | undefined;
  /** What the job waits for. Undefined for a job without parents. */
  readonly flow?: AddedFlow | undefined;
  /** The jobs that wait for this job, as `"<queue>:<id>"`. The job then has an id. */
  readonly children?: readonly string[] | undefined;
}

/** What happens if another job has the dedupeId of a job. */
interface AddedDedupe {
  readonly id: string;
  readonly mode: DedupeMode | "debounce";
  readonly ttl: number | undefined;
  /** Set for a debounced job: how long it waits after each new job. */
  readonly waitMs?: number | undefined;
  /** The most that a debounced job waits after the first job of its burst. */
  readonly mostMs?: number | undefined;
  /** True if the running job is cancelled. */
  readonly cancels?: boolean | undefined;
}

/** Jobs to store. Either all of them are stored, or none. */
type AddedJobs = {
  readonly jobs: readonly AddedJob[];
  /** True if a job's key is ordered. Such requests reach the queue in the order in which they were sent. */
  readonly isOrdered?: boolean;
  /**
   * The maximum numbers of waiting jobs: `all` for the whole queue, and `perKey` for each key.
   * Undefined for no limit.
   */
  readonly most:
    | { readonly all?: number | undefined; readonly perKey?: number | undefined }
    | undefined;
  /**
   * The id of the outbox that the jobs come from, and the time in ms since 1970, on the clock of Redis, after which
   * nothing is stored. Undefined for jobs without rows.
   */
  readonly outbox?: { readonly id: string; readonly untilMs: number } | undefined;
};

/**
 * The reply if no job was stored because too many jobs would wait. `key` is the key with too many
 * jobs. It is undefined if the whole queue has too many.
 */
const NO_ROOM = readerOf({ waiting: int, limit: int, key: optional(text) });
export type NoRoom = Read<typeof NO_ROOM>;

const JOBS_MET = rest({ id: text, isNew: flag, fields: { read: readFields } });
/**
 * The stored job for one requested job: the new job, or an earlier job with the same id or
 * dedupeId.
 *
 * `fields` is the hash of an earlier job. It is empty if that job no longer exists. It is undefined
 * for a new job, and if the reply had no room for it.
 */
export type JobMet = Read<typeof JOBS_MET>[number];

/**
 * How a job ended, as stored. `facts` contains the fields of the error that made the job fail, as
 * JSON, or `""` if there are none.
 */
export type JobEnd =
  | { readonly state: "done"; readonly json: string }
  | { readonly state: "failed"; readonly reason: string; readonly facts: string }
  | { readonly state: "cancelled" }
  | { readonly state: "missing" };

const STORED_END = { state: int, text, facts: text };

/** The name of a Redis key that exists during a replay of dead letters. No job has this name. */
export const REPLAYING = "replaying:";

/** Returns the Redis key with the ids of the rows of an outbox whose jobs were stored. No job has this key. */
export function outboxRowsKey(queue: QueueName, outbox: string): string {
  return `${baseOf(queue)}outbox:${outbox}`;
}

const ADD_KEYS = queueKeys(
  "wait",
  "delayed",
  "events",
  "meta",
  "marker",
  "prioritized",
  "active",
  "pc",
  "id",
);

/**
 * How long Redis remembers that a process waits for a job, and how long Redis keeps the job's
 * result for that process. This is longer than the interval at which a process renews its waits.
 */
const AWAITED_MS = 600_000;
const awaitedMs = constant(AWAITED_MS);

type JobName = QueueName & { readonly id: string };
const jobKey = ({ id, ...queue }: JobName): readonly string[] => [baseOf(queue) + id];

export const jobScripts = {
  /**
   * Stores jobs in order, either all or none. Returns the stored job for each requested job, or the
   * reason why none was stored.
   */
  addJobs: shapeScript({
    name: "queue/enqueue/jobs-add",
    bringsJobs: true,
    orderOf: ({ isOrdered, ...queue }: QueueName & Pick<AddedJobs, "isOrdered">) =>
      isOrdered === true ? baseOf(queue) : undefined,
    keys: ({ outbox, ...queue }: QueueName & Pick<AddedJobs, "outbox">) => [
      ...ADD_KEYS(queue),
      outboxRowsKey(queue, outbox?.id ?? ""),
    ],
    args: {
      prefix,
      request: from(({ jobs, most, outbox }: AddedJobs) => {
        const heads = jobs.map(({ json: _json, ...head }) => head);
        return JSON.stringify({ most, untilMs: outbox?.untilMs, jobs: heads });
      }),
      json: fromEach(({ jobs }: AddedJobs) => jobs.map(({ json }) => json)),
    },
    decode: (reply): readonly JobMet[] | NoRoom =>
      typeof (reply as readonly unknown[])[0] === "number"
        ? NO_ROOM.read(reply)
        : JOBS_MET.read(reply),
  }),

  /** Starts the job that was stored to run after another job with its dedupeId, if that other job has ended. */
  letFollow: shapeScript({
    name: "queue/enqueue/jobs-follow",
    keys: ({ dedupeId, ...queue }: QueueName & { readonly dedupeId: string }) => [
      ...queueKeys("delayed", "marker")(queue),
      dedupeKeys(queue, dedupeId)[1],
    ],
    args: { prefix, id: text },
  }),

  /**
   * Checks whether a worker has fetched a due job. If not, wakes another worker that waits for
   * jobs, if there is one.
   */
  wakeFor: shapeScript({
    name: "queue/enqueue/jobs-watch",
    keys: ({ id, ...queue }: JobName) =>
      queueKeys(id, `${id}:lock`, "delayed", "marker", "meta")(queue),
    args: { prefix, id: text },
    reply: oneOf(["taken", "woken", "waiting"]),
  }),

  /** Records that a job starts. */
  noteBegun: shapeScript({
    name: "queue/workers/jobs-begin",
    keys: jobKey,
    args: {
      /** The deadline that the job meets by starting now, in ms since 1970. */
      startByMs: optional(int),
      /** True if a worker died while it held this job. If the next worker dies too, the job may be the cause. */
      isSuspect: flag,
    },
  }),

  /** Reads the recorded starts of a job that was fetched again after a worker died while it held the job. */
  recall: shapeScript({
    name: "queue/workers/jobs-recall",
    keys: jobKey,
    reply: {
      /** The number of workers known to have died while they ran this job: `2`. */
      deaths: int,
      /** The deadline that the job met by starting, in ms since 1970. Undefined if it met none. */
      keptMs: optional(int),
    },
  }),

  /** Lists the jobs whose locks a worker holds. */
  heldBy: shapeScript({
    name: "queue/workers/jobs-held",
    keys: queueKeys("active"),
    args: {
      prefix,
      /** The prefix of the worker's lock tokens. */
      tokens: text,
    },
    reply: flat(HELD_JOB),
  }),

  /**
   * Removes the done jobs that exceed the limits, without the oldest `skip` jobs. Keeps jobs whose children were not
   * notified, and returns them in `needed`.
   */
  forgetDone: shapeScript({
    name: "queue/ends/jobs-forget",
    keys: queueKeys("completed"),
    args: {
      prefix,
      /** The maximum number of done jobs that are kept. */
      count: int,
      /** How long done jobs are kept, in ms. */
      forMs: int,
      awaitedMs,
      skip: int,
    },
    reply: { isMore: flag, needed: list(text) },
  }),

  /**
   * Removes the dead letters that exceed the limits, except during a replay of dead letters. Passes over the oldest
   * `skip` dead letters. `needed` contains those that are kept because their children were not notified.
   */
  forgetFailed: shapeScript({
    name: "queue/ends/failed-forget",
    keys: queueKeys("failed", REPLAYING),
    args: {
      prefix,
      /** The maximum number of dead letters that are kept. Undefined for no limit. */
      count: optional(int),
      /** How long dead letters are kept, in ms. Undefined for no limit. */
      forMs: optional(int),
      skip: int,
    },
    reply: { removed: int, stayed: int, isMore: flag, needed: list(text) },
  }),

  /**
   * Reads how each of up to a thousand jobs ended. For a job that has not ended, the reply is
   * undefined. Redis then keeps that job's later result for this process for ten minutes, even if
   * the job itself is removed.
   */
  awaitJobs: shapeScript({
    name: "queue/ends/jobs-await",
    keys: queueKeys("completed", "failed"),
    args: { prefix, process: text, awaitedMs, ids: rest(text) },
    reply: mapped(rest(STORED_END), (ends) => ends.map(readEnd)),
  }),

  /**
   * Cancels `awaitJobs` for up to a thousand jobs. Redis then no longer keeps the results of these
   * jobs for this process.
   */
  unawaitJobs: shapeScript({
    name: "queue/ends/jobs-unawait",
    keys: ({ ids, ...queue }: QueueName & { readonly ids: readonly string[] }) =>
      queueKeys(...ids.flatMap((id) => [`awaited:${id}`, `outcome:${id}`]))(queue),
    args: { process: text },
  }),

  /** Reads the time of the server that stores a queue, in µs since 1970. */
  clock: shapeScript({
    name: "clock-read",
    keys: queueKeys("meta"),
    reply: mapped({ seconds: int, us: int }, ({ seconds, us }) => seconds * 1_000_000 + us),
  }),
};

export type AddRequest = AddedJobs & Pick<QueueName, "queue">;
export type WakeResult = ScriptOutput<typeof jobScripts.wakeFor>;
type About<Name extends keyof typeof jobScripts> = Omit<
  ScriptInput<(typeof jobScripts)[Name]>,
  keyof QueueName
>;
/** The limits for kept dead letters: how many, and for how long. */
export type KeptFailed = Omit<About<"forgetFailed">, "skip">;

function readFields(reply: unknown): readonly string[] | undefined {
  return Array.isArray(reply) ? (reply as readonly string[]) : undefined;
}

function readEnd({ state, text, facts }: Read<typeof STORED_END>): JobEnd | undefined {
  if (state === 1) return { state: "done", json: text };
  if (state === 2) return { state: "failed", reason: text, facts };
  if (state === 3) return { state: "cancelled" };
  return state === -1 ? { state: "missing" } : undefined;
}

/**
 * Returns the two Redis keys of a dedupeId. The first has the job that has the dedupeId. The second
 * is a hash with a running job and the job that follows it.
 */
export function dedupeKeys(name: QueueName, dedupeId: string): readonly [string, string] {
  const base = baseOf(name);
  return [`${base}de:${dedupeId}`, `${base}again:${dedupeId}`];
}
