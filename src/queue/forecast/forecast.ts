import type { LanesSeen, LaneStore } from "../../core/queue-store.ts";
import { sayEndless } from "../../core/json.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import { orEndless } from "../../throttle/bucket/live-control.ts";
import type { TryOptions } from "../../throttle/call-options.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { startOfDelayed, type Lane } from "./delayed.ts";
import { drain, type Drain } from "./drain.ts";
import { paceOf, type Pace } from "./pace.ts";

/** When a job is expected to start, by the backlog and the limits of now. */
export interface JobEta {
  /** How many jobs are expected to start before it. */
  readonly position: number;
  /** Ms until it starts; 0 if its handler runs already, Infinity if it cannot, as in a pause without an end; JSON says `"forever"`. */
  readonly startsInMs: number;
}

/** What becomes of a queue's backlog if nothing changes. */
export interface Forecast {
  /** How many jobs wait. */
  readonly waiting: number;
  /** Ms until all of them have started; Infinity if they never do; JSON says `"forever"`. */
  readonly goneInMs: number;
  /**
   * Of the 1,000 jobs in lanes with the earliest deadlines (`maxWaitMs`), those that will not start in time. Jobs
   * without a key, delayed ones, and those that a worker is about to fetch are not among them: ask for their `eta`.
   */
  readonly missed: readonly {
    readonly id: string;
    readonly key: string;
    /** Ms until the job would start, and until it must have started. */
    readonly startsInMs: number;
    readonly deadlineInMs: number;
  }[];
}

export interface Forecasts {
  /** Whether a job is in a lane. */
  readonly isParked: (id: string) => Promise<boolean>;
  /** For a job with this key and cost; undefined if it is not there, or has ended. */
  readonly eta: (id: string, about: TryOptions) => Promise<JobEta | undefined>;
  readonly forecast: () => Promise<Forecast>;
}

interface View {
  readonly seen: LanesSeen;
  readonly pace: Pace;
  readonly drained: Drain;
  /** Ms until the bucket lets anything start. */
  readonly fromMs: number;
  readonly lanes: readonly Lane[];
  /** The index of a key's lane in `lanes`; the last one sums up those that were not read. */
  readonly laneOf: (key: string | undefined) => number;
}

/** The index of the jobs that have no lane, or have left it. */
const LANELESS = 0;
/** Of how many jobs in lanes, of how many held by workers, and of how many others the cost is read: Redis serves no other request meanwhile. */
const MOST_COUNTED = 2_000;

export function createForecasts(parts: {
  readonly queue: string;
  readonly bucket: OwnedBucket;
  readonly lanes: LaneStore;
  readonly access: StoredAccess;
}): Forecasts {
  const { queue, bucket, lanes, access } = parts;

  async function view(id?: string, about: TryOptions = {}): Promise<View> {
    const [seen, inForce, isPaused] = await access.ask((stored) =>
      Promise.all([lanes.look(queue, id, MOST_COUNTED), bucket.inForce(), stored.isPaused()]),
    );
    const { state } = inForce;
    const usedUpMs = Math.max(0, ...state.limits.map(({ nextFreeMs = 0 }) => nextFreeMs));
    const pausedForMs = isPaused ? Infinity : state.pausedForMs;
    const fromMs = Math.max(state.coolingForMs, pausedForMs, usedUpMs);
    const pace = paceOf(bucket.name, about, { ...inForce, fromMs, isCostly: isCostly(seen) });
    const all = lanesOf(seen, pace);
    const indexes = new Map(seen.lanes.map(({ key }, index) => [key, index + 1]));
    const ofOthers = seen.others.lanes > 0 ? all.length - 1 : LANELESS;
    return {
      seen,
      fromMs,
      lanes: all,
      pace,
      drained: drain(all, pace.shared),
      laneOf: (key) => (key === undefined ? LANELESS : (indexes.get(key) ?? ofOthers)),
    };
  }

  return {
    async isParked(id) {
      const { place } = await lanes.look(queue, id);
      return place?.in === "lane";
    },
    async eta(id, about) {
      const backlog = await view(id, about);
      const { seen, drained, fromMs, lanes: all, laneOf } = backlog;
      const { place } = seen;
      if (place === undefined) return undefined;
      if (place.in === "worker") return { position: 0, startsInMs: 0 };
      if (place.in === "delay") {
        const { startsInMs, position } = startOfDelayed(place, backlog);
        return sayEndless({ position, startsInMs: wholeMs(startsInMs) });
      }
      const own = place.in === "queue" ? LANELESS : laneOf(place.key);
      const atMs = drained.startMs(own, place.callsBefore * all[own]!.lanes);
      const others = all.map(({ jobs, calls }, lane) => {
        if (lane === own) return place.before * all[own]!.lanes;
        return calls === 0 ? 0 : (drained.servedBy(lane, atMs) * jobs) / calls;
      });
      const startsInMs = wholeMs(fromMs + atMs);
      return sayEndless({ position: Math.round(sum(others)), startsInMs });
    },
    async forecast() {
      const { seen, drained, fromMs, lanes: all, laneOf } = await view();
      const missed = seen.deadlines.flatMap(({ id, key, callsBefore, inMs: deadlineInMs }) => {
        const own = laneOf(key);
        const atMs = drained.startMs(own, callsBefore * all[own]!.lanes);
        const startsInMs = wholeMs(fromMs + atMs);
        const isMissed = startsInMs > deadlineInMs;
        return isMissed ? [sayEndless({ id, key, startsInMs, deadlineInMs })] : [];
      });
      const waiting = sum(all.map(({ jobs }) => jobs));
      const goneInMs = waiting === 0 ? 0 : wholeMs(fromMs + drained.lastMs);
      return sayEndless({ waiting, goneInMs, missed });
    },
  };
}

function isCostly({ unlaned, unlanedCalls, lanes }: LanesSeen): boolean {
  return unlanedCalls > unlaned || lanes.some(({ jobs, calls }) => calls > jobs);
}

/** All that waits: jobs without a lane, each lane that was read, and the other lanes as one. */
function lanesOf(seen: LanesSeen, { perMsOf }: Pace): Lane[] {
  const { unlaned, unlanedCalls, others } = seen;
  const free = { weight: 1, lanes: 1, mostPerMs: Infinity, fromMs: 0 };
  const first = { ...free, jobs: unlaned, calls: unlanedCalls };
  const read = seen.lanes.map(({ key, jobs, calls, weight, asideMs }) => ({
    jobs,
    calls,
    weight,
    lanes: 1,
    mostPerMs: perMsOf(key),
    fromMs: asideMs,
  }));
  if (others.lanes === 0) return [first, ...read];
  const callsEach = sum(read.map(({ calls }) => calls)) / sum(read.map(({ jobs }) => jobs));
  const { jobs, lanes } = others;
  return [first, ...read, { ...free, jobs, calls: jobs * callsEach, weight: lanes, lanes }];
}

/** Never negative: the sums of a fluid are not exact. */
function wholeMs(ms: number): number {
  return orEndless(Math.max(0, Math.round(ms)));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
