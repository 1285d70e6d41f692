import type { PauseSeen } from "../../../../core/stores/queue/steering.ts";
import type {
  Arrival,
  Cancelling,
  HeldJob,
  JobPosition,
  LaneJob,
  LanesSeen,
  Orders,
  Taken,
  TakenJob,
  TakeRequest,
  WayBack,
} from "../../../../core/stores/queue/store.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

/** The queue's keys of BullMQ that the scripts of lanes write, under one hash tag. */
export function laneKeys(
  { prefix, queue }: QueueName,
  more: readonly string[] = [],
): readonly string[] {
  const base = baseOf({ prefix, queue });
  const names = ["wait", "delayed", "events", "meta", "marker", ...more];
  return names.map((name) => base + name);
}

export const lanesJoin: Script<QueueName & { jobs: readonly LaneJob[] }, void> = defineScript({
  name: "queue/lanes/lanes-join",
  keys: (input) => laneKeys(input),
  args: (input) => [baseOf(input), JSON.stringify(input.jobs)],
  decode: () => undefined,
});

const ARRIVALS: readonly Arrival[] = ["turn", "probe", "expired"];

/** What a worker gets, and the server's time in ms since 1970. */
type TakenAt = Taken & { readonly nowMs: number };

export const jobsTake: Script<QueueName & TakeRequest, TakenAt> = defineScript({
  name: "queue/workers/jobs-take",
  keys: (input) => laneKeys(input, ["active", "prioritized", "pc"]),
  args: (input) => {
    const { most, mostExpired, lockMs, token, probes, woken, ended } = input;
    const isNews = probes.length + woken.length + ended.length > 0;
    const news = isNews ? JSON.stringify({ probes, woken, ended }) : "";
    return [baseOf(input), most, mostExpired, lockMs, token, news];
  },
  decode: (reply, { token }) => {
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
});

/** BullMQ's name of a job carries its key. */
function keyIn(fields: readonly string[]): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name === "name");
  return fields[at + 1]!.slice("key ".length);
}

export const jobsOrders: Script<QueueName & { readonly tokens: string }, Orders> = defineScript({
  name: "queue/workers/jobs-orders",
  keys: (input) =>
    ["meta", "lanes:state", "lanes:cancelled", "lanes:paused"].map((name) => baseOf(input) + name),
  args: ({ tokens }) => [tokens],
  decode: (reply) => {
    const [paused, version, keys, ...locks] = reply as readonly [
      number,
      string,
      (string | number)[],
      ...string[],
    ];
    const cancelled = locks.map(readLock);
    return { isPaused: Number(paused) === 1, version, pausedKeys: readPausedKeys(keys), cancelled };
  },
});

/** Reads paused keys, each of which is followed by for how long it still is. */
export function readPausedKeys(keys: readonly (string | number)[]): PauseSeen[] {
  const pauses: PauseSeen[] = [];
  for (let at = 0; at < keys.length; at += 2) {
    pauses.push({ key: String(keys[at]), forMs: endless(Number(keys[at + 1])) });
  }
  return pauses;
}

export function endless(ms: number): number {
  return ms < 0 ? Infinity : ms;
}

function readLock(lock: string): HeldJob {
  // Of the two, only an id may hold blanks.
  const end = lock.indexOf(" ");
  return { id: lock.slice(end + 1), token: lock.slice(0, end) };
}

const WAYS_BACK: readonly WayBack[] = ["lost", "back", "cancelled"];

export const jobsReturn: Script<QueueName & HeldJob & Pick<LaneJob, "weights">, WayBack> =
  defineScript({
    name: "queue/workers/jobs-return",
    keys: (input) => [
      ...laneKeys(input, ["active", "prioritized", "stalled"]),
      cancelledMark(input, input.id),
    ],
    args: ({ weights, ...input }) => {
      return [
        baseOf(input),
        input.id,
        input.token,
        weights === undefined ? "" : JSON.stringify(weights),
      ];
    },
    decode: (reply) => WAYS_BACK[Number(reply)]!,
  });

/** The key that tells those who wait for a job's end that it was cancelled before it began. */
function cancelledMark(name: QueueName, id: string): string {
  return `${baseOf(name)}cancelled:${id}`;
}

const CANCELS: readonly Cancelling[] = ["over", "waits", "held", "scheduled"];

export const jobsCancel: Script<QueueName & { readonly id: string }, Cancelling> = defineScript({
  name: "queue/steer/jobs-cancel",
  keys: (input) => {
    const names = ["completed", "failed", "delayed", "prioritized", "events"];
    const more = ["lanes:state", "lanes:cancelled"];
    const job = baseOf(input) + input.id;
    const own = [...names, ...more].map((name) => baseOf(input) + name);
    return [job, `${job}:lock`, ...own, cancelledMark(input, input.id)];
  },
  args: ({ id }) => [id],
  decode: (reply) => CANCELS[Number(reply)]!,
});

/** In a lane: how many jobs before it, and their calls; else -1 to -4 and its numbers, as `lanes-look.lua` says. */
type PlaceSeen = readonly [key: string, before: number, number?, number?, number?];

interface Seen {
  readonly lanes: readonly (readonly [string, number, number, number, number])[] | Nothing;
  readonly heads: readonly (readonly [string, number, number])[] | Nothing;
  readonly others: { readonly lanes: number; readonly jobs: number };
  readonly waiting: readonly [jobs: number, calls: number];
  readonly job?: PlaceSeen;
  readonly due:
    | readonly (readonly [number, readonly (readonly [string, number, number])[] | Nothing])[]
    | Nothing;
  readonly more: number;
  readonly deadlines: readonly (readonly [string, string, number, number, number])[] | Nothing;
}

/** Lua's empty list, as JSON: an empty record. */
type Nothing = Readonly<Record<string, never>>;

export interface LanesLook extends QueueName {
  readonly id: string | undefined;
  readonly mostLanes: number;
  readonly mostDeadlines: number;
  readonly counted: number;
}

export const lanesLook: Script<LanesLook, LanesSeen> = defineScript({
  name: "queue/lanes/lanes-look",
  keys: (input) =>
    ["wait", "delayed", "prioritized", "active", "workers:live"].map(
      (name) => baseOf(input) + name,
    ),
  args: (input) => {
    const { id = "", mostLanes, mostDeadlines, counted } = input;
    return [baseOf(input), id, mostLanes, mostDeadlines, counted];
  },
  decode: (reply) => {
    const seen = JSON.parse(reply as string) as Seen;
    const { lanes, heads, others, waiting, job, deadlines, due, more } = seen;
    const [unlaned, unlanedCalls] = waiting;
    return {
      lanes: listOf(lanes).map(([key, jobs, weight, asideMs, calls]) => ({
        key,
        jobs,
        calls,
        weight,
        asideMs,
      })),
      heads: listOf(heads).map(([key, weight, asideMs]) => ({ key, weight, asideMs })),
      others,
      unlaned,
      unlanedCalls,
      place: job && readPlace(job),
      due: listOf(due).map(([inMs, ofKeys]) => ({
        inMs,
        ofKeys: listOf(ofKeys).map(([key, jobs, calls]) => ({ key: keyOf(key), jobs, calls })),
      })),
      moreDue: more,
      deadlines: listOf(deadlines).map(([id, key, before, inMs, callsBefore]) => ({
        id,
        key,
        before,
        callsBefore,
        inMs,
      })),
    };
  },
});

function listOf<T>(list: readonly T[] | Nothing): readonly T[] {
  return Array.isArray(list) ? list : [];
}

/** Jobs without a key have an empty one there. */
function keyOf(key: string): string | undefined {
  return key === "" ? undefined : key;
}

function readPlace([key, before, third = 0, fourth = 0, fifth = 0]: PlaceSeen): JobPosition {
  if (before >= 0) return { in: "lane", key, before, callsBefore: third };
  if (before === -1) return { in: "queue", before: third, callsBefore: fourth };
  const own = keyOf(key);
  if (before === -2) {
    return { in: "delay", key: own, dueInMs: third, before: fourth, callsBefore: fifth };
  }
  if (before === -4) return { in: "hand", key: own, before: third, callsBefore: fourth };
  return { in: "worker" };
}

export const headsLook: Script<QueueName & { ofKeys: readonly string[] }, void> = defineScript({
  name: "queue/lanes/heads-look",
  keys: (input) => laneKeys(input),
  args: (input) => [baseOf(input), ...input.ofKeys],
  decode: () => undefined,
});

export const lanesClear: Script<QueueName & { begins: boolean }, boolean> = defineScript({
  name: "queue/lanes/lanes-clear",
  keys: (input) => laneKeys(input),
  args: (input) => [baseOf(input), Number(input.begins)],
  decode: (reply) => Number(reply) === 1,
});

/** The key of the list of jobs that a worker has fetched and not started. */
export function lanesHeld({ worker, ...name }: QueueName & { readonly worker: string }): string {
  return `${baseOf(name)}lanes:held:${worker}`;
}

/** The key of the sorted set with the parked jobs of a key. */
export function laneOf({ key, ...name }: QueueName & { readonly key: string }): string {
  return `${baseOf(name)}lanes:of:${key}`;
}

/** The key of the hash that holds the number of jobs parked below heads of paths. */
export function lanesBelow(name: QueueName): string {
  return `${baseOf(name)}lanes:below`;
}

/** The key of the hash that holds the number of parked jobs. */
export function lanesState(name: QueueName): string {
  return `${baseOf(name)}lanes:state`;
}
