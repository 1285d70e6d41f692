import type { JobPlace, LanesSeen, LaneStore } from "../core/lane-store.ts";
import type { OwnedBucket } from "../throttle/owned-bucket.ts";
import type { TryOptions } from "../throttle/draw-options.ts";
import { drain, type Drain, type LaneLoad } from "./backlog.ts";
import type { StoredAccess } from "./stored-queue.ts";

/** When a job is expected to start, as the backlog and the limits stand now. */
export interface JobEta {
  /** How many jobs are expected to start before it. */
  readonly position: number;
  /** In how many ms it starts; 0 if a worker has it already, Infinity if it never could, as in a pause without an end. */
  readonly startsInMs: number;
}

/** What becomes of a queue's backlog if nothing changes. */
export interface Forecast {
  /** How many jobs wait. */
  readonly waiting: number;
  /** In how many ms all of them have started; Infinity: never, as things stand. */
  readonly goneInMs: number;
  /** Of the 1,000 jobs with the earliest deadlines, those that will not start in time, by `maxWaitMs`. */
  readonly missed: readonly {
    readonly id: string;
    readonly key: string;
    /** In how many ms the job would start, and had to have started. */
    readonly startsInMs: number;
    readonly deadlineInMs: number;
  }[];
}

export interface Outlook {
  /** Whether a job stands in a lane. */
  readonly isParked: (id: string) => Promise<boolean>;
  /** Of a job with this key and cost; undefined if it is not there, or has ended. */
  readonly eta: (id: string, about: TryOptions) => Promise<JobEta | undefined>;
  readonly forecast: () => Promise<Forecast>;
}

interface View {
  readonly seen: LanesSeen;
  readonly drained: Drain;
  /** How fast jobs start in all, per ms. */
  readonly perMs: number;
  /** When the bucket lets anything start. */
  readonly fromMs: number;
  readonly lanes: readonly LaneLoad[];
  /** Where a key's lane stands among them; those that are not told of are one together. */
  readonly laneOf: (key: string | undefined) => number | undefined;
}

/** What workers hold is what they start in such a time. */
const HELD_MS = 250;
/** With no rate, all start at once. */
const FASTEST_PER_MS = 1_000_000;
/** The first of the lanes stands for all jobs that have none, and have left theirs already. */
const LANELESS = 0;

export function createOutlook(parts: {
  readonly queue: string;
  readonly bucket: OwnedBucket;
  readonly lanes: LaneStore;
  readonly access: StoredAccess;
}): Outlook {
  const { queue, bucket, lanes, access } = parts;

  async function view(id?: string, about: TryOptions = {}): Promise<View> {
    const [seen, state, isPaused] = await access.ask((stored) =>
      Promise.all([lanes.look(queue, id), bucket.peek(), stored.isPaused()]),
    );
    const factor = state.rateFactor;
    const { sharedMs } = bucket.stepsOf(about);
    const perMs = Math.min(factor / sharedMs, FASTEST_PER_MS);
    // Of those that workers have, some run and the others wait for their slots, for so long at most.
    const held = Math.min(seen.active, perMs * HELD_MS);
    const usedUpMs = Math.max(0, ...state.limits.map(({ nextFreeMs = 0 }) => nextFreeMs));
    const pausedForMs = isPaused ? Infinity : state.pausedForMs;
    const fromMs = Math.max(state.coolingForMs, pausedForMs, usedUpMs);
    const loads: LaneLoad[] = [
      { jobs: seen.fed + seen.laneless + held, weight: 1, mostPerMs: Infinity, fromMs: 0 },
      ...seen.lanes.map(({ key, jobs, weight, asideMs }) => ({
        jobs,
        weight,
        mostPerMs: 1 / bucket.stepsOf({ ...about, key }).keyMs,
        fromMs: asideMs,
      })),
    ];
    const { others } = seen;
    const rest = { jobs: others.jobs, weight: Math.max(1, others.lanes), mostPerMs: Infinity };
    if (others.lanes > 0) loads.push({ ...rest, fromMs: 0 });
    const indexes = new Map(seen.lanes.map(({ key }, index) => [key, index + 1]));
    return {
      seen,
      perMs,
      fromMs,
      lanes: loads,
      drained: drain(loads, perMs),
      laneOf: (key = "") => indexes.get(key) ?? (others.lanes > 0 ? loads.length - 1 : undefined),
    };
  }

  return {
    async isParked(id) {
      const { place } = await lanes.look(queue, id);
      return place?.in === "lane";
    },
    async eta(id, about) {
      const { seen, drained, perMs, fromMs, lanes: loads, laneOf } = await view(id, about);
      const { place } = seen;
      if (place === undefined) return undefined;
      if (place.in === "worker") return { position: 0, startsInMs: 0 };
      const atMs = startOf(place, drained, (key) => {
        const lane = laneOf(key) ?? LANELESS;
        return { lane, jobs: loads[lane]!.jobs };
      });
      const waiting = loads.reduce((sum, { jobs }) => sum + jobs, 0);
      const startsInMs = Math.round(fromMs + atMs);
      return { position: Math.min(waiting, Math.round(atMs * perMs)), startsInMs };
    },
    async forecast() {
      const { seen, drained, fromMs, lanes: loads, laneOf } = await view();
      const missed = seen.deadlines.flatMap(({ id, key, before, inMs: deadlineInMs }) => {
        const startsInMs = Math.round(fromMs + drained.startMs(laneOf(key) ?? LANELESS, before));
        return startsInMs > deadlineInMs ? [{ id, key, startsInMs, deadlineInMs }] : [];
      });
      const waiting = loads.reduce((sum, { jobs }) => sum + jobs, 0);
      return { waiting, goneInMs: Math.round(waiting === 0 ? 0 : fromMs + drained.goneMs), missed };
    },
  };
}

function startOf(
  place: Exclude<JobPlace, { in: "worker" }>,
  { startMs }: Drain,
  laneOf: (key: string | undefined) => { readonly lane: number; readonly jobs: number },
): number {
  if (place.in === "queue") return startMs(LANELESS, place.before);
  const { lane, jobs } = laneOf(place.key);
  if (place.in === "lane") return startMs(lane, place.before);
  // Those that wait in its lane when it comes due go before it.
  return jobs === 0 ? place.dueInMs : Math.max(place.dueInMs, startMs(lane, jobs));
}
