/** Scripts of lanes, in which jobs with a key wait for their turn, and of the workers that fetch from there. */
import { baseOf, queueKeys, type QueueName } from "../keys.ts";
import { shapeScript, type ScriptInput } from "../script.ts";
import {
  constant,
  endlessMs,
  flag,
  flat,
  from,
  int,
  json,
  list,
  mapped,
  oneOf,
  optional,
  rest,
  text,
  type Read,
} from "../shape.ts";

/** BullMQ's keys of a queue that the scripts of lanes write. */
export const LANE_KEYS = ["wait", "delayed", "events", "meta", "marker"] as const;

/** The prefix of the names of all Redis keys of a queue. */
export const prefix = from(baseOf);

/** A job that joins its lane. */
export interface LaneJob {
  readonly id: string;
  /** The new weights of its lane and of the heads above it, the widest first; undefined leaves the weights as they are. */
  readonly weights?: readonly number[] | undefined;
  /** Set for a job that a worker returns because its key has no room: the ms until the key has room again. */
  readonly roomInMs?: number | undefined;
  /** The part of the job's key that has no room: a head of its path. Undefined: the whole key. */
  readonly aside?: string | undefined;
  /** Moves a job in its lane behind all others of its priority; elsewhere the job stays where it is. */
  readonly isAnew?: boolean | undefined;
}

const ARRIVALS = ["turn", "probe", "expired"] as const;

/** Why a worker gets a job: in turn; alone, to probe whether its key has room; or because its deadline has passed. */
export type Arrival = (typeof ARRIVALS)[number];

/** An active job that this worker has locked. */
export interface TakenJob {
  readonly id: string;
  readonly arrival: Arrival;
  /** The key of an ordered lane, which gives no other job until this one has ended. */
  readonly orderedKey: string | undefined;
  readonly token: string;
  /** The fields of the job's hash in BullMQ's format: each name is followed by its value. */
  readonly fields: readonly string[];
}

/** Decides whether a worker may start the jobs that it has fetched. */
const ORDERS_SEEN = {
  isPaused: flag,
  /** Changes whenever the reply of `orders` would change. */
  version: text,
};
export type WorkerOrders = Read<typeof ORDERS_SEEN>;

/** The reply to a worker that fetches jobs. */
export interface Taken {
  readonly jobs: readonly TakenJob[];
  /** How many jobs are parked in all lanes. */
  readonly parked: number;
  /** The number of jobs that all workers hold, with and without a lane. */
  readonly active: number;
  /** Ms until the next job may be due. 0: a job may be due now. Undefined: no next job is known. */
  readonly nextMs: number | undefined;
  /** True if more jobs are due or expired than one request handles. */
  readonly isMoreDue: boolean;
  readonly orders: WorkerOrders;
}

/** What a worker reports about lanes when it takes jobs. */
type LaneUpdates = {
  /** The started probes: the key of each, and whether it got its slot at once. */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again; `"*"` for all. */
  readonly woken: readonly string[];
  /** Keys of ordered lanes whose running job has ended or failed with a retry, so that the lane can continue. */
  readonly ended: readonly string[];
};

/** A pause of one key, or of the whole queue. */
export interface PauseSeen {
  /** Undefined for the whole queue. */
  readonly key: string | undefined;
  /** Ms until it ends; Infinity without an end. */
  readonly forMs: number;
}

/** Paused keys, each with the time that is left, in one list. */
export const PAUSED_KEY = { key: text, forMs: endlessMs };

/** A job whose lock a worker holds. */
export const HELD_JOB = { id: text, token: text };
export type HeldJob = Read<typeof HELD_JOB>;

/** The number of jobs that start before a given job, and their cost in calls of cost 1. */
interface Before {
  readonly before: number;
  readonly callsBefore: number;
}

/**
 * Where a job is:
 *
 * - in the lane of its key;
 * - in the queue, to be fetched;
 * - fetched by a worker, but not started: only jobs with the same key, or without a key, count as before it;
 * - delayed: the jobs that would start first if this job were due now count as before it;
 * - with a worker that runs it.
 */
export type JobPosition =
  | ({ readonly in: "lane"; readonly key: string } & Before)
  | ({ readonly in: "queue" } & Before)
  | ({ readonly in: "hand"; readonly key: string | undefined } & Before)
  | ({ readonly in: "delay"; readonly key: string | undefined; readonly dueInMs: number } & Before)
  | { readonly in: "worker" };

/** In a lane: the number of jobs before it, and their calls; else -1 to -4 and numbers, as `lanes-look.lua` says. */
type PositionSeen = readonly [key: string, before: number, number?, number?, number?];

const COUNTED = { key: optional(text), jobs: int, calls: int };
const DUE_JOBS = { inMs: int, ofKeys: list(COUNTED) };
/** Delayed jobs that come due at about the same time. */
export type DueJobs = Read<typeof DUE_JOBS>;

const SEEN_LANES = list({
  key: text,
  /** The number of waiting jobs, including those that workers have fetched but not started. */
  jobs: int,
  weight: int,
  /** Ms until the lane takes turns again. Until then it is skipped, because its key has no room. */
  asideMs: int,
  /** The cost of these jobs, in calls of cost 1. */
  calls: int,
});
const SEEN_HEADS = list({ key: text, weight: int, asideMs: int });
const SEEN_DUE = list(DUE_JOBS);
const DEADLINES = list({ id: text, key: text, before: int, inMs: int, callsBefore: int });

/** The lanes of a queue, as they were read. */
export interface LanesSeen {
  readonly lanes: Read<typeof SEEN_LANES>;
  /** The heads of the paths of these lanes. */
  readonly heads: Read<typeof SEEN_HEADS>;
  /** The number of lanes that this reply leaves out, and of their jobs. */
  readonly others: { readonly lanes: number; readonly jobs: number };
  /** The number of pending jobs outside lanes: jobs without a lane, and jobs already taken from their lane. */
  readonly laneless: number;
  /** The cost of these jobs outside lanes, in calls of cost 1. */
  readonly lanelessCalls: number;
  /** The position of the requested job; undefined if the queue does not have it. */
  readonly jobPosition: JobPosition | undefined;
  /**
   * If the requested job is delayed: the delayed jobs that are due before it, the earliest first. Jobs with the same key are
   * included only if they have the same priority.
   */
  readonly due: Read<typeof SEEN_DUE>;
  /** The number of further such jobs that `due` leaves out. */
  readonly moreDue: number;
  /** The jobs with the earliest deadlines. */
  readonly deadlines: Read<typeof DEADLINES>;
}

/** The most lanes and deadlines in one reply, because Redis serves no other request during a script. */
const MOST_LANES = 500;
const MOST_DEADLINES = 1_000;

export const laneScripts = {
  /** Parks jobs that BullMQ stores as delayed. Jobs in any other state are unchanged. */
  join: shapeScript({
    name: "queue/lanes/lanes-join",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, jobs: json<readonly LaneJob[]>() },
  }),

  /** Gives the next jobs to a worker, in fair turns, with the server's time. */
  take: shapeScript({
    name: "queue/workers/jobs-take",
    keys: queueKeys(...LANE_KEYS, "active", "prioritized", "pc"),
    args: {
      prefix,
      /** How many jobs the worker can start soon. */
      most: int,
      /** The most jobs past their deadline that the worker takes in addition. */
      mostExpired: int,
      /** How long the jobs' locks last. */
      lockMs: int,
      /** The start of the locks' tokens; the number of the job follows, from 1 on. */
      token: text,
      updates: from(({ probes, woken, ended }: LaneUpdates) => {
        const hasUpdates = probes.length + woken.length + ended.length > 0;
        return hasUpdates ? JSON.stringify({ probes, woken, ended }) : "";
      }),
    },
    // By hand: each job of a queue comes through here.
    decode: (reply, { token }): Taken & { readonly nowMs: number } => {
      const [nowMs, parked, active, nextMs, moreDue, paused, version, ...taken] =
        reply as readonly unknown[];
      const jobs: TakenJob[] = [];
      for (let at = 0; at < taken.length; at += 3) {
        const how = Number(taken[at + 1]) - 1;
        const fields = taken[at + 2] as readonly string[];
        jobs.push({
          id: taken[at] as string,
          arrival: ARRIVALS[how % ARRIVALS.length]!,
          orderedKey: how < ARRIVALS.length ? undefined : keyIn(fields),
          token: `${token}${jobs.length + 1}`,
          fields,
        });
      }
      const untilNextMs = Number(nextMs);
      return {
        nowMs: Number(nowMs),
        jobs,
        parked: Number(parked),
        active: Number(active),
        nextMs: untilNextMs < 0 ? undefined : untilNextMs,
        isMoreDue: Number(moreDue) === 1,
        orders: { isPaused: Number(paused) === 1, version: String(version) },
      };
    },
  }),

  /** Reads whether a worker may start its fetched jobs: pauses and cancellations. */
  orders: shapeScript({
    name: "queue/workers/jobs-orders",
    keys: queueKeys("meta", "lanes:state", "lanes:cancelled", "lanes:paused"),
    args: {
      /** The start of the tokens of the worker's locks. */
      tokens: text,
    },
    reply: {
      ...ORDERS_SEEN,
      /** The paused keys. Their jobs must not start. */
      pausedKeys: flat(PAUSED_KEY),
      /** The locks of running jobs that were cancelled in the last hour. */
      cancelled: rest(mapped(text, readLock)),
    },
  }),

  /** Returns a fetched job that has not begun to its old position. A job that was cancelled in between must be removed. */
  putBack: shapeScript({
    name: "queue/workers/jobs-return",
    keys: (input: QueueName & { readonly id: string }) => [
      ...queueKeys(...LANE_KEYS, "active", "prioritized", "stalled")(input),
      cancelledMark(input),
    ],
    args: { prefix, ...HELD_JOB, weights: optional(json<LaneJob["weights"] & {}>()) },
    reply: oneOf(["lost", "back", "cancelled"]),
  }),

  /**
   * Cancels a job. No worker begins it, and a worker that runs it is notified. Returns the state of the job: ended or
   * missing; pending, so that the caller removes it; active; or a scheduled run, which stays scheduled.
   */
  cancel: shapeScript({
    name: "queue/steer/jobs-cancel",
    keys: (input: QueueName & { readonly id: string }) => [
      ...queueKeys(
        input.id,
        `${input.id}:lock`,
        "completed",
        "failed",
        "delayed",
        "prioritized",
        "events",
        "lanes:state",
        "lanes:cancelled",
      )(input),
      cancelledMark(input),
    ],
    args: { id: text },
    reply: oneOf(["over", "waits", "held", "scheduled"]),
  }),

  /**
   * Reads the lanes, and where one job is; changes nothing. The cost is read of the first `counted` jobs in lanes, of as
   * many that workers hold, and of as many others; each other job counts as one plain call. Of the jobs that workers hold,
   * at most `counted` are looked at; of the delayed ones the first 1,000, or none.
   */
  look: shapeScript({
    name: "queue/lanes/lanes-look",
    keys: queueKeys("wait", "delayed", "prioritized", "active", "workers:live"),
    args: {
      prefix,
      /** The job whose position is read. Undefined for none. */
      id: optional(text),
      mostLanes: constant(MOST_LANES),
      mostDeadlines: constant(MOST_DEADLINES),
      counted: optional(int, 0),
    },
    reply: mapped(json<Looked>(), readLooked),
  }),

  /** Makes workers check the ordered lanes of these keys now, because the first job was replayed, purged or removed. */
  lookAtHeads: shapeScript({
    name: "queue/lanes/heads-look",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, ofKeys: rest(text) },
  }),

  /**
   * Takes removed jobs out of their lanes, a limited number per call. Jobs that joined later keep their positions. Returns
   * true if another call is needed.
   */
  clear: shapeScript({
    name: "queue/lanes/lanes-clear",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, begins: flag },
    reply: flag,
  }),

  /** Finds the oldest job that is due but not started, in the lanes of these keys. With `others`, also outside lanes. */
  oldest: shapeScript({
    name: "queue/lanes/oldest-look",
    keys: queueKeys("wait", "prioritized", "delayed", "workers:live"),
    args: { prefix, others: flag, ofKeys: rest(text) },
    reply: mapped({ id: optional(text), sinceMs: int }, ({ id, sinceMs }) =>
      id === undefined ? undefined : { id, sinceMs },
    ),
  }),
};

/** A worker's request for jobs, with its reports about lanes. */
export type TakeRequest = Omit<ScriptInput<typeof laneScripts.take>, "prefix">;

/** BullMQ's name of a job carries its key. */
function keyIn(fields: readonly string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "name");
  return fields[at + 1]!.slice("key ".length);
}

function readLock(lock: string): HeldJob {
  // The first blank separates the token from the id, because only an id may contain blanks.
  const end = lock.indexOf(" ");
  return { id: lock.slice(end + 1), token: lock.slice(0, end) };
}

/** The JSON of a look, in which a list may be `{}`, as Lua writes an empty one. */
interface Looked extends Pick<LanesSeen, "others"> {
  readonly lanes: unknown;
  readonly heads: unknown;
  readonly waiting: readonly [jobs: number, calls: number];
  readonly job?: PositionSeen;
  readonly due: unknown;
  readonly more: number;
  readonly deadlines: unknown;
}

function readLooked({ waiting, job, more, others, ...lists }: Looked): LanesSeen {
  return {
    lanes: SEEN_LANES.read(lists.lanes),
    heads: SEEN_HEADS.read(lists.heads),
    others,
    laneless: waiting[0],
    lanelessCalls: waiting[1],
    jobPosition: job && readPosition(job),
    due: SEEN_DUE.read(lists.due),
    moreDue: more,
    deadlines: DEADLINES.read(lists.deadlines),
  };
}

function readPosition([key, before, third = 0, fourth = 0, fifth = 0]: PositionSeen): JobPosition {
  if (before >= 0) return { in: "lane", key, before, callsBefore: third };
  if (before === -1) return { in: "queue", before: third, callsBefore: fourth };
  const own = key === "" ? undefined : key;
  if (before === -2) {
    return { in: "delay", key: own, dueInMs: third, before: fourth, callsBefore: fifth };
  }
  if (before === -4) return { in: "hand", key: own, before: third, callsBefore: fourth };
  return { in: "worker" };
}

/** Marks a job that was cancelled before it began, for processes that await its end. */
function cancelledMark({ id, ...queue }: QueueName & { readonly id: string }): string {
  return `${baseOf(queue)}cancelled:${id}`;
}

/** The key of the list of jobs that a worker has fetched and not started. */
export function lanesHeld({ worker, ...name }: QueueName & { readonly worker: string }): string {
  return `${baseOf(name)}lanes:held:${worker}`;
}

/** The key of the sorted set with the parked jobs of a key. */
export function laneOf({ key, ...name }: QueueName & { readonly key: string }): string {
  return `${baseOf(name)}lanes:of:${key}`;
}
