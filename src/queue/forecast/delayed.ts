import type { DueJobs, JobPosition, LanesSeen } from "../../core/stores/queue/store.ts";
import { drain, type LaneLoad } from "./drain.ts";
import type { Groups } from "./groups.ts";
import type { Pace } from "./pace.ts";

/** Jobs that wait, as jobs and as a fluid. */
export interface Lane extends LaneLoad {
  readonly jobs: number;
  /** How many lanes this one sums up: of each, as many jobs go before a job as wait before it in its own. */
  readonly lanes: number;
}

/** Each key that has only delayed jobs gets a lane of its own, as long as there are fewer than these. */
const MOST_LANES = 600;

interface Backlog {
  readonly seen: LanesSeen;
  readonly lanes: readonly Lane[];
  readonly pace: Pace;
  readonly groups: Groups;
  /** Ms until the bucket lets anything start. */
  readonly fromMs: number;
}

/**
 * When a delayed job starts, in ms from now, and behind how many: what waits drains until the first delayed jobs come
 * due, those join it, and so on until the job itself comes due. It starts when those before it in its lane have started.
 */
export function startOfDelayed(
  place: Extract<JobPosition, { in: "delay" }>,
  backlog: Backlog,
): { readonly startsInMs: number; readonly position: number } {
  const { seen, fromMs } = backlog;
  const growing = createLanes(backlog);
  const own = growing.indexOf(place.key);
  // Those that are less urgent go behind it.
  growing.set(own, { jobs: place.before, calls: place.callsBefore });
  const dueMs = Math.max(0, place.dueInMs - fromMs);
  for (const { inMs, ofKeys } of arrivalsOf(seen, place.dueInMs)) {
    growing.drainUntil(Math.min(dueMs, Math.max(0, inMs - fromMs)));
    for (const { key, jobs, calls } of ofKeys) growing.add(growing.indexOf(key), { jobs, calls });
  }
  growing.drainUntil(dueMs);
  const { atMs, position } = growing.emptyAt(own);
  return { startsInMs: Math.max(place.dueInMs, fromMs + atMs), position };
}

/** Those that were not looked at come due between the last that were and the job, of keys as those were. */
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

/** Lanes over time: jobs leave them, and come. */
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
    // Beyond the bound they share the last lane.
    if (lanes.length >= MOST_LANES) return lanes.length - 1;
    const place = groups.placeOf(key!);
    const fromMs = Math.max(0, place.fromMs - nowMs);
    lanes.push({ jobs: 0, calls: 0, lanes: 1, ...place, fromMs });
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
    /** When a lane's last job has started, on the clock of the bucket, and how many have started by then. */
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
