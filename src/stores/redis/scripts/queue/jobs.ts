/** Scripts of the jobs that BullMQ stores: how they are added, begin and end. */
import { baseOf, queueKeys, type QueueName } from "../keys.ts";
import { shapeScript, type ScriptInput, type ScriptOutput } from "../script.ts";
import {
  constant,
  flag,
  flat,
  from,
  fromEach,
  int,
  mapped,
  oneOf,
  optional,
  readerOf,
  rest,
  text,
  type Read,
} from "../shape.ts";
import { HELD_JOB, prefix, type LaneJob } from "./lanes.ts";

/** What happens to a job whose `dedupeId` another has: the first is kept, the last one's data, or it runs again. */
export type DedupeMode = "first" | "last" | "again";

/** A job to be stored, if none is there that has its id or its dedupeId. */
export interface AddedJob {
  /** An id of its own; without one it gets the next number. */
  readonly id: string | undefined;
  readonly name: string;
  /** Its data, as JSON. */
  readonly json: string;
  /** Its options as BullMQ stores them, as JSON. */
  readonly opts: string;
  readonly timestamp: number;
  readonly delay: number;
  readonly priority: number;
  /** Whether it joins the lane of its key at once, and with which weights. */
  readonly isParked: boolean;
  readonly weights: LaneJob["weights"];
  readonly dedupe:
    | { readonly id: string; readonly mode: DedupeMode; readonly ttl: number | undefined }
    | undefined;
}

/** Jobs to be stored, all or none. */
type AddedJobs = {
  readonly jobs: readonly AddedJob[];
  /** How many jobs may wait in a queue, of all keys together and of each; undefined for any number. */
  readonly most:
    | { readonly all?: number | undefined; readonly perKey?: number | undefined }
    | undefined;
};

/** Why no job was stored: too many would wait, of one key or, without one, of all. */
const NO_ROOM = readerOf({ waiting: int, limit: int, key: optional(text) });
export type NoRoom = Read<typeof NO_ROOM>;

const JOBS_MET = rest({ id: text, isNew: flag, fields: { read: readFields } });
/**
 * What is stored of a job that was to be added: this one, or the fields of an earlier one's hash, none if it is gone; they are
 * undefined where those of others were too many for one reply.
 */
export type JobMet = Read<typeof JOBS_MET>[number];

/** How a job ended, as it is stored. `facts` are those of the error that failed it, as JSON; empty without one. */
export type JobEnd =
  | { readonly state: "done"; readonly json: string }
  | { readonly state: "failed"; readonly reason: string; readonly facts: string }
  | { readonly state: "cancelled" }
  | { readonly state: "missing" };

const STORED_END = { state: int, text, facts: text };

/** The name of a lock that Redis holds during a replay of dead letters. No job has this name. */
export const REPLAYING = "replaying:";

/**
 * How long Redis remembers that a process waits for a job, and how long it keeps the job's result for that process. Longer
 * than the time after which a process renews its waits.
 */
const AWAITED_MS = 600_000;
const awaitedMs = constant(AWAITED_MS);

type JobName = QueueName & { readonly id: string };
const jobKey = ({ id, ...queue }: JobName): readonly string[] => [baseOf(queue) + id];

export const jobScripts = {
  /** Stores jobs in their order, all or none; says for each what is stored then, or why none is. */
  addJobs: shapeScript({
    name: "queue/enqueue/jobs-add",
    bringsJobs: true,
    keys: queueKeys(
      "wait",
      "delayed",
      "events",
      "meta",
      "marker",
      "prioritized",
      "active",
      "pc",
      "id",
    ),
    args: {
      prefix,
      request: from(({ jobs, most }: AddedJobs) => {
        const heads = jobs.map(({ json: _json, ...head }) => head);
        return JSON.stringify({ most, jobs: heads });
      }),
      json: fromEach(({ jobs }: AddedJobs) => jobs.map(({ json }) => json)),
    },
    decode: (reply): readonly JobMet[] | NoRoom =>
      typeof (reply as readonly unknown[])[0] === "number"
        ? NO_ROOM.read(reply)
        : JOBS_MET.read(reply),
  }),

  /** Lets the job go that was to run once more after one of this dedupeId, if that one has ended. */
  letFollow: shapeScript({
    name: "queue/enqueue/jobs-follow",
    keys: ({ dedupeId, ...queue }: QueueName & { readonly dedupeId: string }) => [
      ...queueKeys("delayed", "marker")(queue),
      dedupeKeys(queue, dedupeId)[1],
    ],
    args: { prefix, id: text },
  }),

  /**
   * Checks whether a worker has taken a job that is due. If none has, another worker is woken, unless none waits for jobs.
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
      /** The deadline that it keeps by that, in ms since 1970. */
      startByMs: optional(int),
      /** Whether a worker has died with it: if the next one does too, it may be the cause. */
      isSuspect: flag,
    },
  }),

  /** Reads what is known of the starts of a job that was fetched again, after a worker has died with it. */
  recall: shapeScript({
    name: "queue/workers/jobs-recall",
    keys: jobKey,
    reply: {
      /** How many workers have died while it ran, of those deaths that are known: `2`. */
      deaths: int,
      /** The deadline that it has kept by starting, in ms since 1970; undefined if none. */
      keptMs: optional(int),
    },
  }),

  /** Lists the jobs whose locks a worker holds. */
  heldBy: shapeScript({
    name: "queue/workers/jobs-held",
    keys: queueKeys("active"),
    args: {
      prefix,
      /** The start of the tokens of the worker's locks. */
      tokens: text,
    },
    reply: flat(HELD_JOB),
  }),

  /** Removes done jobs that are no longer kept; true if there may be more. */
  forgetDone: shapeScript({
    name: "queue/ends/jobs-forget",
    keys: queueKeys("completed"),
    args: {
      prefix,
      /** How many are kept at most. */
      count: int,
      /** How long they are kept. */
      forMs: int,
      awaitedMs,
    },
    reply: flag,
  }),

  /** Removes dead letters that are no longer kept, unless somebody replays some. */
  forgetFailed: shapeScript({
    name: "queue/ends/failed-forget",
    keys: queueKeys("failed", REPLAYING),
    args: {
      prefix,
      /** How many are kept at most; by default any number. */
      count: optional(int),
      /** How long they are kept; by default for ever. */
      forMs: optional(int),
    },
    reply: { removed: int, isMore: flag },
  }),

  /**
   * Reads how each job of up to a thousand ended, undefined if it has not: then its result is kept for this process from now
   * on for ten minutes, also when the job is no longer kept.
   */
  awaitJobs: shapeScript({
    name: "queue/ends/jobs-await",
    keys: queueKeys("completed", "failed"),
    args: { prefix, process: text, awaitedMs, ids: rest(text) },
    reply: mapped(rest(STORED_END), (ends) => ends.map(readEnd)),
  }),

  /** Ends that for up to a thousand jobs. */
  unawaitJobs: shapeScript({
    name: "queue/ends/jobs-unawait",
    keys: ({ ids, ...queue }: QueueName & { readonly ids: readonly string[] }) =>
      queueKeys(...ids.flatMap((id) => [`awaited:${id}`, `outcome:${id}`]))(queue),
    args: { process: text },
  }),

  /** The time of the server that holds a queue, in µs since 1970. */
  clock: shapeScript({
    name: "clock-read",
    keys: queueKeys("meta"),
    reply: mapped({ seconds: int, us: int }, ({ seconds, us }) => seconds * 1_000_000 + us),
  }),
};

export type AddRequest = AddedJobs & Pick<QueueName, "queue">;
/** What came of a job for which a worker was woken. */
export type WakeResult = ScriptOutput<typeof jobScripts.wakeFor>;
type About<Name extends keyof typeof jobScripts> = Omit<
  ScriptInput<(typeof jobScripts)[Name]>,
  keyof QueueName
>;
/** Which dead letters are kept. */
export type KeptFailed = About<"forgetFailed">;

function readFields(reply: unknown): readonly string[] | undefined {
  return Array.isArray(reply) ? (reply as readonly string[]) : undefined;
}

function readEnd({ state, text, facts }: Read<typeof STORED_END>): JobEnd | undefined {
  if (state === 1) return { state: "done", json: text };
  if (state === 2) return { state: "failed", reason: text, facts };
  if (state === 3) return { state: "cancelled" };
  return state === -1 ? { state: "missing" } : undefined;
}

/** The job that has a dedupeId; the hash of one that runs and of one that follows it. */
export function dedupeKeys(name: QueueName, dedupeId: string): readonly [string, string] {
  const base = baseOf(name);
  return [`${base}de:${dedupeId}`, `${base}again:${dedupeId}`];
}
