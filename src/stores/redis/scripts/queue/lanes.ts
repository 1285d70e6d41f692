/**
 * Scripts for lanes, in which jobs with a key wait for their turn, and for the workers that fetch
 * jobs.
 */
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

/** The Redis keys of BullMQ that the lane scripts write. */
export const LANE_KEYS = ["wait", "delayed", "events", "meta", "marker"] as const;

/** The prefix of the names of all Redis keys of a queue. */
export const prefix = from(baseOf);

/** A job that joins its lane. */
export interface LaneJob {
  readonly id: string;
  /**
   * The new weights of the parent keys of the job's lane and of the lane itself, the widest first.
   * If undefined, the weights stay unchanged.
   */
  readonly weights?: readonly number[] | undefined;
  /**
   * Ms until the key has room again. Set only for a job that a worker returns because its key has
   * no room.
   */
  readonly roomInMs?: number | undefined;
  /** The parent of the job's key that has no room. If undefined, the job's own key has no room. */
  readonly aside?: string | undefined;
  /**
   * If true, moves a job in its lane behind all other jobs of its priority. A job outside the lane
   * keeps its position.
   */
  readonly isAnew?: boolean | undefined;
}

const ARRIVALS = ["turn", "probe", "expired"] as const;

/**
 * Why a worker gets a job: it is the job's turn, the job is sent alone to probe whether its key has
 * room, or the job's deadline has passed.
 */
export type Arrival = (typeof ARRIVALS)[number];

/** An active job that this worker has locked. */
export interface TakenJob {
  readonly id: string;
  readonly arrival: Arrival;
  /**
   * The key of the job's ordered lane, if it has one. An ordered lane releases no other job until
   * this job has ended.
   */
  readonly orderedKey: string | undefined;
  readonly token: string;
  /** The fields of the job's hash in BullMQ's format. Names and values alternate. */
  readonly fields: readonly string[];
}

/** What decides whether a worker may start the jobs that it has fetched. */
const ORDERS_SEEN = {
  isPaused: flag,
  /** A text that changes when the reply of `orders` would change. */
  version: text,
};
export type WorkerOrders = Read<typeof ORDERS_SEEN>;

/** The reply to a worker that fetches jobs. */
export interface Taken {
  readonly jobs: readonly TakenJob[];
  /** The number of jobs that are parked in all lanes. */
  readonly parked: number;
  /** The number of jobs that all workers hold, with and without a lane. */
  readonly active: number;
  /**
   * Ms until the next job may be due. 0 if a job may be due now. Undefined if no next job is known.
   */
  readonly nextMs: number | undefined;
  /** True if more jobs are due or expired than one request handles. */
  readonly isMoreDue: boolean;
  readonly orders: WorkerOrders;
  /** True if jobs of the queue have ever had parents or children. */
  readonly hasFlows: boolean;
}

/** What a worker reports about lanes when it takes jobs. */
type LaneUpdates = {
  /**
   * The probes that have started: each probe's key, and whether the probe got its slot immediately.
   */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again. `"*"` means all keys. */
  readonly woken: readonly string[];
  /**
   * Keys of ordered lanes whose running job has ended, or failed and will be retried. These lanes
   * can continue.
   */
  readonly ended: readonly string[];
  /** The first names of keys of which the worker takes no jobs now. */
  readonly full?: readonly string[];
  /** The first names of keys with a floor, and how many jobs of each to fetch before all turns. */
  readonly floors?: readonly (readonly [name: string, most: number])[];
};

/** A pause of one key, or of the whole queue. */
export interface PauseSeen {
  /** The paused key. Undefined for a pause of the whole queue. */
  readonly key: string | undefined;
  /** Ms until the pause ends. Infinity if it has no end. */
  readonly forMs: number;
}

/** A paused key with the time until its pause ends. */
export const PAUSED_KEY = { key: text, forMs: endlessMs };

/** A job whose lock a worker holds. */
export const HELD_JOB = { id: text, token: text };
export type HeldJob = Read<typeof HELD_JOB>;

/**
 * The number of jobs that start before a given job, and their total cost. Costs count in calls of
 * cost 1.
 */
interface Before {
  readonly before: number;
  readonly callsBefore: number;
}

/**
 * Where a job is:
 *
 * - `"lane"`: in the lane of its key.
 * - `"queue"`: in the queue, until a worker fetches it.
 * - `"hand"`: fetched by a worker, but not started. Only jobs with the same key, and jobs without a
 *   key, count as before it.
 * - `"delay"`: delayed. The jobs that would start first if this job were due now count as before
 *   it.
 * - `"worker"`: running in a worker.
 */
export type JobPosition =
  | ({ readonly in: "lane"; readonly key: string } & Before)
  | ({ readonly in: "queue" } & Before)
  | ({ readonly in: "hand"; readonly key: string | undefined } & Before)
  | ({ readonly in: "delay"; readonly key: string | undefined; readonly dueInMs: number } & Before)
  | { readonly in: "worker" };

/**
 * A job's position as the script replies it. For a job in a lane, the numbers are the jobs before
 * it and their cost. Otherwise the first number is -1 to -4, and `lanes-look.lua` explains the
 * others.
 */
type PositionSeen = readonly [key: string, before: number, number?, number?, number?];

const COUNTED = { key: optional(text), jobs: int, calls: int };
const DUE_JOBS = { inMs: int, ofKeys: list(COUNTED) };
/** Delayed jobs that become due at about the same time. */
export type DueJobs = Read<typeof DUE_JOBS>;

const SEEN_LANES = list({
  key: text,
  /** The number of waiting jobs, including those that workers have fetched but not started. */
  jobs: int,
  weight: int,
  /**
   * Ms until the lane takes turns again. Until then the lane is skipped, because its key has no
   * room.
   */
  asideMs: int,
  /** The total cost of the lane's waiting jobs, in calls of cost 1. */
  calls: int,
});
const SEEN_HEADS = list({ key: text, weight: int, asideMs: int });
const SEEN_DUE = list(DUE_JOBS);
const DEADLINES = list({ id: text, key: text, before: int, inMs: int, callsBefore: int });

/** The state of a queue's lanes when they were read. */
export interface LanesSeen {
  readonly lanes: Read<typeof SEEN_LANES>;
  /** The parent keys of the lanes in `lanes`. */
  readonly heads: Read<typeof SEEN_HEADS>;
  /** The number of lanes that this reply omits, and the number of their jobs. */
  readonly others: { readonly lanes: number; readonly jobs: number };
  /** The number of pending jobs outside lanes: jobs without a lane, and jobs already taken from their lane. */
  readonly laneless: number;
  /** The total cost of the pending jobs outside lanes, in calls of cost 1. */
  readonly lanelessCalls: number;
  /** The position of the requested job. Undefined if the queue does not contain the job. */
  readonly jobPosition: JobPosition | undefined;
  /**
   * The delayed jobs that are due before the requested job, the earliest first. Only filled if the
   * requested job is delayed itself. Jobs with the same key are included only if they have the same
   * priority.
   */
  readonly due: Read<typeof SEEN_DUE>;
  /** The number of further delayed jobs that `due` omits. */
  readonly moreDue: number;
  /** The jobs with the earliest deadlines. */
  readonly deadlines: Read<typeof DEADLINES>;
}

/**
 * The maximum numbers of lanes and deadlines in one reply. They are limited, because Redis serves
 * no other request during a script.
 */
const MOST_LANES = 500;
const MOST_DEADLINES = 1_000;

export const laneScripts = {
  /** Parks jobs that BullMQ stores as delayed. Jobs in any other state are unchanged. */
  join: shapeScript({
    name: "queue/lanes/lanes-join",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, jobs: json<readonly LaneJob[]>() },
  }),

  /** Fetches the next jobs for a worker, in fair turns. Also returns the server's time. */
  take: shapeScript({
    name: "queue/workers/jobs-take",
    keys: queueKeys(...LANE_KEYS, "active", "prioritized", "pc"),
    args: {
      prefix,
      /** The number of jobs that the worker can start soon. */
      most: int,
      /**
       * The maximum number of expired jobs that the worker takes in addition. An expired job is
       * past its deadline.
       */
      mostExpired: int,
      /** How long the jobs' locks last, in ms. */
      lockMs: int,
      /** The prefix of the locks' tokens. The job's number follows, from 1 on. */
      token: text,
      updates: from(({ probes, woken, ended, full = [], floors = [] }: LaneUpdates) => {
        const lists = { probes, woken, ended, full, floors };
        return Object.values(lists).some(({ length }) => length > 0) ? JSON.stringify(lists) : "";
      }),
    },
    // Decoded without shapes, because every job of a queue passes through here and this code is
    // faster.
    decode: (reply, { token }): Taken & { readonly nowMs: number } => {
      const [nowMs, parked, active, nextMs, moreDue, paused, version, flows, ...taken] =
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
        hasFlows: Number(flows) === 1,
      };
    },
  }),

  /** Reads the pauses and cancellations that decide whether a worker may start its fetched jobs. */
  orders: shapeScript({
    name: "queue/workers/jobs-orders",
    keys: queueKeys("meta", "lanes:state", "lanes:cancelled", "lanes:paused"),
    args: {
      /** The prefix of the worker's lock tokens. */
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

  /**
   * Moves a fetched job that has not started back to its old position. If the job was cancelled in
   * between, the caller must remove it.
   */
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
   * Cancels a job. No worker starts it any more, and a worker that runs it is notified. Returns the
   * job's state: ended or missing, pending, active, or a scheduled run. The caller must remove a
   * pending job. A scheduled run stays scheduled.
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
   * Reads the lanes and the position of one job, without changing anything. At most `counted` jobs
   * are examined of those that workers hold. Of the delayed jobs, the first 1,000 or none are
   * examined. Costs are read for up to `counted` jobs in lanes, as many held by workers, and as
   * many others. Each further job counts as one call of cost 1.
   */
  look: shapeScript({
    name: "queue/lanes/lanes-look",
    keys: queueKeys("wait", "delayed", "prioritized", "active", "workers:live"),
    args: {
      prefix,
      /** The id of the job whose position is read. If undefined, no position is read. */
      id: optional(text),
      mostLanes: constant(MOST_LANES),
      mostDeadlines: constant(MOST_DEADLINES),
      counted: optional(int, 0),
    },
    reply: mapped(json<Looked>(), readLooked),
  }),

  /**
   * Makes workers check the ordered lanes of these keys immediately, because the first job of each
   * lane was replayed, purged or removed.
   */
  lookAtHeads: shapeScript({
    name: "queue/lanes/heads-look",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, ofKeys: rest(text) },
  }),

  /**
   * Takes removed jobs out of their lanes, a limited number per call. Jobs that join a lane in the
   * meantime keep their positions. Returns true if another call is needed.
   */
  clear: shapeScript({
    name: "queue/lanes/lanes-clear",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, begins: flag },
    reply: flag,
  }),

  /**
   * Finds the oldest job that is due but not started in the lanes of these keys. With `others`,
   * also searches outside lanes.
   */
  oldest: shapeScript({
    name: "queue/lanes/oldest-look",
    keys: queueKeys("wait", "prioritized", "delayed", "workers:live"),
    args: { prefix, others: flag, ofKeys: rest(text) },
    reply: mapped({ id: optional(text), sinceMs: int }, ({ id, sinceMs }) =>
      id === undefined ? undefined : { id, sinceMs },
    ),
  }),
};

/** A worker's request for jobs, with the worker's updates about lanes. */
export type TakeRequest = Omit<ScriptInput<typeof laneScripts.take>, "prefix">;

/** Reads a job's key from BullMQ's name of the job, which contains the key. */
function keyIn(fields: readonly string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "name");
  return fields[at + 1]!.slice("key ".length);
}

function readLock(lock: string): HeldJob {
  // The first space separates the token from the id, because only an id may contain spaces.
  const end = lock.indexOf(" ");
  return { id: lock.slice(end + 1), token: lock.slice(0, end) };
}

/** The JSON reply of `look`. Lua writes an empty list as `{}`. */
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

/**
 * Returns the Redis key that marks a job as cancelled before it started. Processes that wait for
 * the job's end read it.
 */
function cancelledMark({ id, ...queue }: QueueName & { readonly id: string }): string {
  return `${baseOf(queue)}cancelled:${id}`;
}

/** Returns the Redis key of the list of jobs that a worker has fetched but not started. */
export function lanesHeld({ worker, ...name }: QueueName & { readonly worker: string }): string {
  return `${baseOf(name)}lanes:held:${worker}`;
}

/** Returns the Redis key of the sorted set with a key's parked jobs. */
export function laneOf({ key, ...name }: QueueName & { readonly key: string }): string {
  return `${baseOf(name)}lanes:of:${key}`;
}
