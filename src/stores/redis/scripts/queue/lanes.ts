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

/** How the names of a queue's keys begin. */
export const prefix = from(baseOf);

/** A job that joins its lane. */
export interface LaneJob {
  readonly id: string;
  /** The new weights of its lane and of the heads above it, the widest first; undefined leaves the weights as they are. */
  readonly weights?: readonly number[] | undefined;
  /** Ms until there is room again, for a job that a worker returns for lack of room. */
  readonly roomInMs?: number | undefined;
  /** What has no room: a head of the job's key; by default the key. */
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
  /** The fields of its hash as BullMQ stores them: names and values in turns. */
  readonly fields: readonly string[];
}

/** Whether a worker may begin the jobs that it holds. */
const ORDERS_SEEN = {
  isPaused: flag,
  /** Changes whenever `orders` has more to say. */
  version: text,
};
export type WorkerOrders = Read<typeof ORDERS_SEEN>;

/** What a worker gets. */
export interface Taken {
  readonly jobs: readonly TakenJob[];
  /** How many jobs are parked in all lanes. */
  readonly parked: number;
  /** How many jobs workers hold, of all kinds. */
  readonly active: number;
  /** Ms until there may be another job: 0 if there may be one now; undefined if none is known. */
  readonly nextMs: number | undefined;
  /** Whether more jobs have come due, or have expired, than one request looks at. */
  readonly isMoreDue: boolean;
  readonly orders: WorkerOrders;
}

/** What a worker reports about lanes when it takes jobs. */
type LaneUpdates = {
  /** Probes that have started: their key, and whether their slots came at once. */
  readonly probes: readonly (readonly [key: string, wentAtOnce: boolean])[];
  /** Keys that may have room again; `"*"` for all. */
  readonly woken: readonly string[];
  /** Keys of ordered lanes whose jobs have ended, or are to be tried again. */
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

/** How many jobs go before another, and how many plain calls those count as. */
interface Before {
  readonly before: number;
  readonly callsBefore: number;
}

/**
 * Where a job is:
 *
 * - in the lane of its key;
 * - in the queue, to be fetched;
 * - in the hand of a worker that has not started it: jobs of the same key, or of none, count before it;
 * - delayed: the jobs count before it that would go first if it were due now;
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
  /** How many wait, with those that workers have fetched and not started. */
  jobs: int,
  weight: int,
  /** Ms for which the lane is still aside, since its key has no room. */
  asideMs: int,
  /** How many plain calls the jobs count as. */
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
  /** The lanes that were not read, and their jobs. */
  readonly others: { readonly lanes: number; readonly jobs: number };
  /** How many jobs wait without a lane, or have left theirs: fetched and not started, or to be fetched. */
  readonly laneless: number;
  /** How many plain calls those count as. */
  readonly lanelessCalls: number;
  /** The position of the requested job; undefined if the queue does not have it. */
  readonly jobPosition: JobPosition | undefined;
  /**
   * If the requested job is delayed: the delayed jobs that come due before it, the earliest first; of its own key only
   * those that are as urgent.
   */
  readonly due: Read<typeof SEEN_DUE>;
  /** How many more such jobs there are. */
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
      /** How many jobs it takes beside those whose deadline has passed. */
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

  /** Reads what holds for the jobs that workers have. */
  orders: shapeScript({
    name: "queue/workers/jobs-orders",
    keys: queueKeys("meta", "lanes:state", "lanes:cancelled", "lanes:paused"),
    args: {
      /** The start of the tokens of the worker's locks. */
      tokens: text,
    },
    reply: {
      ...ORDERS_SEEN,
      /** The keys that are paused, whose jobs may not begin. */
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
      /** The job whose place is read. */
      id: optional(text),
      mostLanes: constant(MOST_LANES),
      mostDeadlines: constant(MOST_DEADLINES),
      counted: optional(int, 0),
    },
    reply: mapped(json<Looked>(), readLooked),
  }),

  /** Has workers look at once at the ordered lanes of keys, since their heads were replayed, purged or removed. */
  lookAtHeads: shapeScript({
    name: "queue/lanes/heads-look",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, ofKeys: rest(text) },
  }),

  /** Takes removed jobs out of their lanes, some at a time; jobs that have joined since keep their places. True if it is to go on. */
  clear: shapeScript({
    name: "queue/lanes/lanes-clear",
    keys: queueKeys(...LANE_KEYS),
    args: { prefix, begins: flag },
    reply: flag,
  }),

  /** Finds the oldest of the jobs that are due and have not begun, in the lanes of some keys, and perhaps outside lanes. */
  oldest: shapeScript({
    name: "queue/lanes/oldest-look",
    keys: queueKeys("wait", "prioritized", "delayed", "workers:live"),
    args: { prefix, others: flag, ofKeys: rest(text) },
    reply: mapped({ id: optional(text), sinceMs: int }, ({ id, sinceMs }) =>
      id === undefined ? undefined : { id, sinceMs },
    ),
  }),
};

/** What a worker reports, and how many jobs it takes. */
export type TakeRequest = Omit<ScriptInput<typeof laneScripts.take>, "prefix">;

/** BullMQ's name of a job carries its key. */
function keyIn(fields: readonly string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "name");
  return fields[at + 1]!.slice("key ".length);
}

function readLock(lock: string): HeldJob {
  // Of the two, only an id may hold blanks.
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
