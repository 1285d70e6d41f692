import { withForever } from "../../core/describe.ts";
import {
  headsOfText,
  isWithin,
  decodeKey,
  levelsOfText,
  MOST_LEVELS,
  type Key,
} from "../../core/key-path.ts";
import type { LiveWorkers } from "../../stores/redis/scripts/queue/steering.ts";
import type { JobPosition, LanesSeen, DueJobs } from "../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import { orEndless } from "../../throttle/bucket/bucket-state.ts";
import type { TryCall } from "../../throttle/call-options.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { readOfKey, type KeyFilter } from "../options.ts";
import { drain, type Drain, type LaneLoad } from "./drain.ts";
import { createGroups, type Groups, paceOf, type Pace } from "./pace.ts";

/**
 * Why a forecast has no time:
 *
 * - no worker is alive, in any process
 * - the queue, the key or the bucket is paused without an end
 * - the downstream is unreachable, for all keys or for this one, until a job that tests it succeeds
 */
export type NoForecastReason =
  | "no worker"
  | "queue paused"
  | "key paused"
  | "bucket paused"
  | "downstream away"
  | "key away";

/** @deprecated Use `NoForecastReason`. */
export type NoPromise = NoForecastReason;

/** The expected start of a job, computed from the current backlog, limits and workers. */
export type JobEta = {
  /** How many jobs are expected to start before this job. */
  readonly position: number;
} & (
  | {
      /** Ms until the job starts. 0 if its handler is running. */
      readonly startsInMs: number;
      readonly reason?: undefined;
    }
  | { readonly startsInMs: undefined; readonly reason: NoForecastReason }
);

/** When a queue's backlog will be gone if nothing changes. */
export type Forecast = Waiting &
  (
    | {
        /** Ms until all pending jobs have started. 0 if no jobs are pending. */
        readonly emptyInMs: number;
        /** @deprecated Use `emptyInMs`, which has the same value. */
        readonly goneInMs: number;
        readonly reason?: undefined;
      }
    | {
        readonly emptyInMs: undefined;
        readonly goneInMs: undefined;
        readonly reason: NoForecastReason;
      }
  );

interface Waiting {
  /** How many jobs are pending. */
  readonly waiting: number;
  /**
   * How many workers are alive, in all processes. `totalConcurrency` is how many jobs they can run at once: the sum of
   * their `concurrency`.
   */
  readonly workers: number;
  readonly totalConcurrency: number;
  /** @deprecated Use `totalConcurrency`, which has the same value. */
  readonly places: number;
  /**
   * The jobs that will miss their deadlines (`maxWaitMs`). Only the 1,000 jobs in lanes with the earliest deadlines are
   * checked. Jobs without a key, delayed jobs, and jobs that a worker is about to fetch are not included; call their
   * `eta()` instead. Empty while the forecast has no time at all.
   */
  readonly missed: readonly {
    readonly id: string;
    readonly key: Key;
    /**
     * Ms until the job would start. Infinity (in JSON `"forever"`) while its key is paused or the key's downstream is
     * unreachable. `deadlineInMs` is in ms until the job's deadline.
     */
    readonly startsInMs: number;
    readonly deadlineInMs: number;
  }[];
}

export interface Forecasts {
  /** True if a job is in a lane. */
  readonly isParked: (id: string) => Promise<boolean>;
  /**
   * Returns the expected start of the job with this id, which has the key and cost in `about`. Undefined if the job
   * does not exist or has ended.
   */
  readonly eta: (id: string, about: TryCall) => Promise<JobEta | undefined>;
  readonly forecast: (options?: KeyFilter) => Promise<Forecast>;
  /** Returns the forecast for all keys, and the lanes from which it was computed. */
  readonly glance: () => Promise<{ readonly expected: Forecast; readonly seen: LanesSeen }>;
  /** Returns two forecasts: for the bucket as it is now, and for the bucket after the change. */
  readonly preview: (change: unknown) => Promise<QueuePreview>;
}

/** The forecasts without and with a change of the queue's bucket. */
export interface QueuePreview {
  readonly now: Forecast;
  readonly after: Forecast;
}

interface BacklogView {
  readonly seen: LanesSeen;
  readonly pace: Pace;
  readonly drained: Drain;
  readonly live: LiveWorkers;
  /** Why no job of the queue starts. Undefined if jobs start. */
  readonly reason: NoForecastReason | undefined;
  /** Returns for how many ms a key is paused. Infinity while the key's downstream is unreachable. */
  readonly heldForMs: (key: string | undefined) => number;
  /** Returns why no job of a key, or of any key below it, starts. */
  readonly keyReason: (key: string | undefined) => NoForecastReason;
  /** Ms until the bucket allows any call to start. */
  readonly fromMs: number;
  readonly lanes: readonly Lane[];
  readonly groups: Groups;
  /** Returns the index of a key's lane in `lanes`. The last lane stands for all lanes that were not read. */
  readonly laneOf: (key: string | undefined) => number;
}

interface ForecastRequest {
  readonly id?: string | undefined;
  /** A hypothetical change of the bucket, for a preview. */
  readonly change?: unknown;
}

/** The index in `lanes` of the jobs that have no lane, or have left their lane. */
const LANELESS = 0;
/**
 * The most jobs of which to read the cost. The bound applies separately to jobs in lanes, jobs held by workers, and
 * other jobs. Redis is blocked during the read.
 */
const MOST_COUNTED = 2_000;

export function createForecasts(parts: {
  readonly queue: string;
  readonly bucket: OwnedBucket;
  readonly lanes: LaneStore;
  readonly access: StoredAccess;
}): Forecasts {
  const { queue, bucket, lanes, access } = parts;

  /** Returns the keys whose downstream is unreachable. Undefined stands for the whole bucket. */
  async function readOutages(
    seen: LanesSeen,
    key: string | undefined,
  ): Promise<ReadonlySet<string | undefined>> {
    const keys = [...new Set([undefined, key, ...seen.lanes.map((lane) => lane.key)])];
    const found = await bucket.readOutages(keys);
    return new Set(keys.filter((_key, index) => found[index] !== undefined));
  }

  /** Returns for how many ms a cooldown or a pause in the bucket blocks a key, and each of its parents. */
  function readHeld(key: string | undefined): Promise<(readonly [string, number])[]> {
    const heads = key === undefined ? [] : headsOfText(key);
    return Promise.all(
      heads.map(async (head) => {
        const { coolingForMs, pausedForMs } = await bucket.peek({ key: decodeKey(head) });
        return [head, Math.max(coolingForMs, pausedForMs)] as const;
      }),
    );
  }

  /** Reads the backlog for a job, or for a key and all keys below it. */
  async function readBacklog(
    about: TryCall,
    { id, change }: ForecastRequest = {},
  ): Promise<BacklogView> {
    const [seen, inForce, pauses, live, held] = await access.ask(() =>
      Promise.all([
        lanes.look({ queue, id, counted: MOST_COUNTED }),
        change === undefined ? bucket.inForce() : bucket.suppose("preview()", change),
        lanes.pauses({ queue }),
        lanes.workers({ queue }),
        readHeld(about.key),
      ]),
    );
    const aways = await access.ask(() => readOutages(seen, about.key));
    const { state } = inForce;
    const paused = new Map(pauses.map(({ key, forMs }) => [key, forMs]));
    for (const [head, forMs] of held) paused.set(head, Math.max(forMs, paused.get(head) ?? 0));
    const ofQueueMs = paused.get(undefined) ?? 0;
    const usedUpMs = Math.max(0, ...state.limits.map(({ nextFreeMs = 0 }) => nextFreeMs));
    const fromMs = Math.max(state.coolingForMs, state.pausedForMs, ofQueueMs, usedUpMs);
    const pausedForMs = (key: string | undefined): number =>
      key === undefined ? 0 : Math.max(...headsOfText(key).map((head) => paused.get(head) ?? 0));
    const heldForMs = (key: string | undefined): number =>
      key !== undefined && aways.has(key) ? Infinity : pausedForMs(key);
    const pace = paceOf(bucket.name, about, { ...inForce, fromMs, isCostly: isCostly(seen) });
    const groups = createGroups(seen.heads, pace, (key) => {
      const forMs = heldForMs(key);
      return forMs === Infinity ? Infinity : Math.max(0, forMs - fromMs);
    });
    const all = lanesOf(seen, groups);
    const indexes = new Map(seen.lanes.map(({ key }, index) => [key, index + 1]));
    const ofOthers = seen.others.lanes > 0 ? all.length - 1 : LANELESS;
    return {
      seen,
      fromMs,
      live,
      reason: reasonOf({
        live,
        ofQueueMs,
        ofBucketMs: state.pausedForMs,
        isUnreachable: aways.has(undefined),
      }),
      heldForMs,
      keyReason(key) {
        const below = seen.lanes.map((lane) => lane.key);
        const keys =
          key === undefined ? below : [key, ...below.filter((own) => isWithin(own, key))];
        // A key that is blocked without an end is paused in the bucket.
        const isPaused = keys.some((each) => pausedForMs(each) === Infinity);
        return !isPaused && keys.some((each) => aways.has(each)) ? "key away" : "key paused";
      },
      groups,
      lanes: all,
      pace,
      drained: drain(all, pace.shared),
      laneOf: (key) => (key === undefined ? LANELESS : (indexes.get(key) ?? ofOthers)),
    };
  }

  return {
    async isParked(id) {
      const { jobPosition } = await lanes.look({ queue, id });
      return jobPosition?.in === "lane";
    },
    async eta(id, about) {
      const backlog = await readBacklog(about, { id });
      const { heldForMs, keyReason } = backlog;
      const { jobPosition } = backlog.seen;
      if (jobPosition === undefined) return undefined;
      if (jobPosition.in === "worker") return { position: 0, startsInMs: 0 };
      const { position, atMs } = positionOf(jobPosition, backlog);
      const startsInMs = wholeMs(Math.max(atMs, heldForMs(about.key)));
      const reason = backlog.reason ?? (startsInMs === Infinity ? keyReason(about.key) : undefined);
      if (reason !== undefined) return { position, startsInMs: undefined, reason };
      return { position, startsInMs };
    },
    async glance() {
      const backlog = await readBacklog({ key: undefined });
      return { expected: await forecastFrom(backlog, undefined), seen: backlog.seen };
    },
    forecast: async (given) => forecastOf(readOfKey("forecast()", given).key),
    async preview(change) {
      const [now, after] = await Promise.all([
        forecastOf(undefined),
        forecastOf(undefined, change),
      ]);
      return { now, after };
    },
  };

  async function forecastOf(key: string | undefined, change?: unknown): Promise<Forecast> {
    return forecastFrom(await readBacklog({ key }, { change }), key);
  }

  async function forecastFrom(backlog: BacklogView, key: string | undefined): Promise<Forecast> {
    const { seen, drained, fromMs, lanes: all, laneOf, live, heldForMs } = backlog;
    const loads = seen.lanes.filter((lane) => key === undefined || isWithin(lane.key, key));
    const isWhole =
      seen.others.lanes === 0 || (loads.length > 0 && levelsOfText(key ?? "") === MOST_LEVELS);
    const known = sum(loads.map(({ jobs }) => jobs));
    const parked =
      key === undefined || isWhole ? 0 : await access.ask(() => lanes.waitingOf({ queue, key }));
    const waiting = key === undefined ? sum(all.map(({ jobs }) => jobs)) : Math.max(known, parked);
    const own = laneOf(key);
    const lastOf = (lane: number, calls: number): number =>
      drained.startMs(lane, Math.max(0, calls * all[lane]!.lanes - 1));
    const lastMs =
      key === undefined
        ? drained.lastMs
        : loads.length === 0
          ? lastOf(own, waiting)
          : Math.max(...loads.map((load) => lastOf(laneOf(load.key), load.calls)));
    const emptyInMs = wholeMs(Math.max(fromMs + lastMs, heldForMs(key)));
    const { workers, places } = live;
    const facts = { waiting, workers, totalConcurrency: places, places };
    if (waiting > 0 && backlog.reason !== undefined) {
      return { ...facts, ...unknownEnd(backlog.reason), missed: [] };
    }
    const missed = seen.deadlines.flatMap((each) => {
      if (key !== undefined && !isWithin(each.key, key)) return [];
      const { id, callsBefore, inMs: deadlineInMs } = each;
      const lane = laneOf(each.key);
      const atMs = drained.startMs(lane, callsBefore * all[lane]!.lanes);
      const startsInMs = wholeMs(Math.max(fromMs + atMs, heldForMs(each.key)));
      const isMissed = startsInMs > deadlineInMs;
      const shown = decodeKey(each.key);
      return isMissed ? [withForever({ id, key: shown, startsInMs, deadlineInMs })] : [];
    });
    if (waiting === 0) return { ...facts, emptyInMs: 0, goneInMs: 0, missed };
    if (emptyInMs < Infinity) return { ...facts, emptyInMs, goneInMs: emptyInMs, missed };
    return { ...facts, ...unknownEnd(backlog.keyReason(key)), missed };
  }
}

function unknownEnd(reason: NoForecastReason) {
  return { emptyInMs: undefined, goneInMs: undefined, reason };
}

/** Returns why no job of a queue starts; undefined if jobs start. */
function reasonOf({
  live,
  ofQueueMs,
  ofBucketMs,
  isUnreachable,
}: {
  readonly live: LiveWorkers;
  /** For how many ms the queue is paused, and for how many ms the bucket is paused. */
  readonly ofQueueMs: number;
  readonly ofBucketMs: number;
  readonly isUnreachable: boolean;
}): NoForecastReason | undefined {
  if (live.workers === 0) return "no worker";
  if (ofQueueMs === Infinity) return "queue paused";
  if (ofBucketMs === Infinity) return "bucket paused";
  return isUnreachable ? "downstream away" : undefined;
}

/** Returns how many jobs start before a waiting or delayed job, and in how many ms the job starts. */
function positionOf(
  jobPosition: Exclude<JobPosition, { in: "worker" }>,
  backlog: BacklogView,
): { readonly position: number; readonly atMs: number } {
  const { drained, fromMs, lanes, laneOf } = backlog;
  if (jobPosition.in === "delay") {
    const { startsInMs, position } = startOfDelayed(jobPosition, backlog);
    return { position, atMs: startsInMs };
  }
  const own = jobPosition.in === "queue" ? LANELESS : laneOf(jobPosition.key);
  const atMs = drained.startMs(own, jobPosition.callsBefore * lanes[own]!.lanes);
  const others = lanes.map(({ jobs, calls }, lane) => {
    if (lane === own) return jobPosition.before * lanes[own]!.lanes;
    return calls === 0 ? 0 : (drained.servedBy(lane, atMs) * jobs) / calls;
  });
  return { position: Math.round(sum(others)), atMs: fromMs + atMs };
}

function isCostly({ laneless, lanelessCalls, lanes }: LanesSeen): boolean {
  return lanelessCalls > laneless || lanes.some(({ jobs, calls }) => calls > jobs);
}

/**
 * Returns all pending jobs as lanes: first the jobs without a lane, then each lane that was read, then one lane for all
 * other lanes.
 */
function lanesOf(seen: LanesSeen, groups: Groups): Lane[] {
  const { laneless, lanelessCalls, others } = seen;
  const free = { weight: 1, lanes: 1, mostPerMs: Infinity, fromMs: 0 };
  const first = { ...free, jobs: laneless, calls: lanelessCalls };
  const read = seen.lanes.map((lane) => ({
    jobs: lane.jobs,
    calls: lane.calls,
    lanes: 1,
    ...groups.laneSettings(lane.key, lane),
  }));
  if (others.lanes === 0) return [first, ...read];
  const callsEach = sum(read.map(({ calls }) => calls)) / sum(read.map(({ jobs }) => jobs));
  const { jobs, lanes } = others;
  return [first, ...read, { ...free, jobs, calls: jobs * callsEach, weight: lanes, lanes }];
}

/** Rounds to whole ms. Raises negative values to 0, because the computed sums are not exact. */
function wholeMs(ms: number): number {
  return orEndless(Math.max(0, Math.round(ms)));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

/** Pending jobs of one or more lanes, as a number of jobs and as a load for {@link drain}. */
interface Lane extends LaneLoad {
  readonly jobs: number;
  /**
   * How many real lanes this lane stands for. Before a job in one of them starts, each other one starts as many jobs as
   * are ahead of the job in its own lane.
   */
  readonly lanes: number;
}

/** The most lanes to compute with. Up to this number, each key that has only delayed jobs gets its own lane. */
const MOST_LANES = 600;

interface Backlog {
  readonly seen: LanesSeen;
  readonly lanes: readonly Lane[];
  readonly pace: Pace;
  readonly groups: Groups;
  /** Ms until the bucket allows any call to start. */
  readonly fromMs: number;
}

/**
 * Returns when a delayed job starts, in ms from now, and after how many other jobs. The backlog drains until the next
 * delayed jobs become due and join it. This repeats until the job itself becomes due. The job starts once the jobs
 * ahead of it in its lane have started.
 */
function startOfDelayed(
  jobPosition: Extract<JobPosition, { in: "delay" }>,
  backlog: Backlog,
): { readonly startsInMs: number; readonly position: number } {
  const { seen, fromMs } = backlog;
  const growing = createLanes(backlog);
  const own = growing.indexOf(jobPosition.key);
  // Counts only the jobs ahead of this job, because less urgent jobs go behind it.
  growing.set(own, { jobs: jobPosition.before, calls: jobPosition.callsBefore });
  const dueMs = Math.max(0, jobPosition.dueInMs - fromMs);
  for (const { inMs, ofKeys } of arrivalsOf(seen, jobPosition.dueInMs)) {
    growing.drainUntil(Math.min(dueMs, Math.max(0, inMs - fromMs)));
    for (const { key, jobs, calls } of ofKeys) growing.add(growing.indexOf(key), { jobs, calls });
  }
  growing.drainUntil(dueMs);
  const { atMs, position } = growing.emptyAt(own);
  return { startsInMs: Math.max(jobPosition.dueInMs, fromMs + atMs), position };
}

/**
 * Returns the delayed jobs that become due before a job. Jobs that were not read are assumed to become due between the
 * last jobs that were read and this job, with the same mix of keys.
 */
function arrivalsOf({ due, moreDue }: LanesSeen, dueInMs: number): readonly DueJobs[] {
  const last = due.at(-1);
  if (moreDue === 0 || last === undefined) return due;
  const looked = due.flatMap(({ ofKeys }) => ofKeys);
  const share = moreDue / looked.reduce((sum, { jobs }) => sum + jobs, 0);
  const ofKeys = looked.map(({ key, jobs, calls }) => ({
    key,
    jobs: jobs * share,
    calls: calls * share,
  }));
  return [...due, { inMs: (last.inMs + dueInMs) / 2, ofKeys }];
}

interface Load {
  readonly jobs: number;
  readonly calls: number;
}

/** Simulates lanes over time: jobs start, and new jobs join. */
function createLanes({ seen, lanes: from, pace, groups }: Omit<Backlog, "fromMs">) {
  let lanes: Lane[] = [...from];
  let paceNow = pace;
  let nowMs = 0;
  let started = 0;
  const indexes = new Map<string | undefined, number>([[undefined, 0]]);
  for (const [index, { key }] of seen.lanes.entries()) indexes.set(key, index + 1);

  function indexOf(key: string | undefined): number {
    const known = indexes.get(key);
    if (known !== undefined) return known;
    // Once there are `MOST_LANES` lanes, all further keys share the last lane.
    if (lanes.length >= MOST_LANES) return lanes.length - 1;
    const settings = groups.laneSettings(key!);
    const fromMs = Math.max(0, settings.fromMs - nowMs);
    lanes.push({ jobs: 0, calls: 0, lanes: 1, ...settings, fromMs });
    indexes.set(key, lanes.length - 1);
    return lanes.length - 1;
  }

  function set(index: number, load: Load): void {
    lanes[index] = { ...lanes[index]!, ...load };
  }

  return {
    indexOf,
    set,
    add(index: number, { jobs, calls }: Load): void {
      const lane = lanes[index]!;
      set(index, { jobs: lane.jobs + jobs, calls: lane.calls + calls });
    },
    drainUntil(untilMs: number): void {
      const ms = untilMs - nowMs;
      if (ms <= 0) return;
      const { servedBy } = drain(lanes, paceNow.shared, { ms });
      let served = 0;
      lanes = lanes.map((lane, index) => {
        const calls = servedBy(index, ms);
        const jobs = calls === 0 ? 0 : (lane.jobs * calls) / lane.calls;
        served += calls;
        started += jobs;
        return {
          ...lane,
          jobs: lane.jobs - jobs,
          calls: lane.calls - calls,
          fromMs: Math.max(0, lane.fromMs - ms),
        };
      });
      paceNow = paceNow.after(ms, served);
      nowMs = untilMs;
    },
    /**
     * Returns when the last job of a lane has started, in ms after the bucket allows calls, and how many jobs have
     * started by then.
     */
    emptyAt(own: number): { readonly atMs: number; readonly position: number } {
      const { calls, jobs } = lanes[own]!;
      if (jobs < 0.5) return { atMs: nowMs, position: Math.round(started) };
      const { startMs, servedBy } = drain(lanes, paceNow.shared, { empty: own });
      const ms = startMs(own, calls);
      const before = lanes.map((lane, index) => {
        if (index === own) return jobs;
        return lane.calls === 0 ? 0 : (servedBy(index, ms) * lane.jobs) / lane.calls;
      });
      const position = started + before.reduce((sum, each) => sum + each, 0);
      return { atMs: nowMs + ms, position: Math.round(position) };
    },
  };
}
