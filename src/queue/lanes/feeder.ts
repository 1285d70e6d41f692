import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { Arrival, LaneJob, LaneStore } from "../../core/queue-store.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { Job } from "../job.ts";

/** Asks for jobs out of their lanes, as many as a worker can start soon, and tells what came of them. */
export interface Feeder {
  /** A job with a key was fetched: how it came out of its lane. */
  arrive(id: string): Promise<Arrival>;
  /** Counts a job of a lane among those that wait for their slots, for as long as it does. */
  whileWaiting<T>(slot: Promise<T>): Promise<T>;
  /** A job has started; a probe tells of its key, and whether it went at once. */
  start(probe?: { readonly key: string; readonly wentAtOnce: boolean }): void;
  /** A probe has ended without a slot: its lane need not wait for it. */
  missProbe(key: string): void;
  /** A job that BullMQ holds as delayed joins its lane. */
  park(job: LaneJob): void;
  /** A key may have room again; `"*"` stands for all of them. */
  wake(key: string): void;
  /** Asks for nothing more; who still waits to hear how it came is told that it was fed. */
  close(): Promise<void>;
}

export interface FeederParts {
  readonly lanes: LaneStore;
  readonly queue: string;
  readonly worker: string;
  readonly logger: Logger;
  /** How many jobs the worker has room for. */
  readonly capacity: () => number;
  /** How many of those that wait are held back by their own key; they take no other's turn. */
  readonly deferred: () => number;
}

/** News of so many ms are told together. */
const GATHER_MS = 4;
/** A worker without news looks in so often; what it wants holds three times as long. */
const LOOK_IN_MS = 1_000;
const WANT_FOR_MS = 3 * LOOK_IN_MS;
/** How fast a worker starts jobs is what it started in so many ms. */
const PACE_MS = 250;
/**
 * A worker holds what it starts in so many ms: a horizon of slots, and some for a process that is busy.
 * To it comes the way of a job, from the start of the one before it to its own slot: about five round trips.
 */
const AHEAD_MS = 150;
const AHEAD_TRIPS = 10;
const MOST_AHEAD_MS = 1_000;
/** How much the latest round trip counts in what one usually takes. */
const TRIP_SHARE = 1 / 8;
/** So much of what it started lies ready to be fetched, so that a job that ends brings the next one along. */
const PREFETCH = 0.1;

export function createFeeder(parts: FeederParts): Feeder {
  const { lanes, queue, worker, logger, capacity, deferred } = parts;
  const started = createRecentCount(PACE_MS);
  const arrivals = new Map<string, (arrival: Arrival) => void>();
  const joining: LaneJob[] = [];
  let probes: [key: string, wentAtOnce: boolean][] = [];
  let woken = new Set<string>();
  let waiting = 0;
  let parked = 0;
  let tripMs = 0;
  let told = 0;
  let toldAtMs = -Infinity;
  let telling: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let timerAtMs = Infinity;
  let isClosed = false;

  /**
   * One at least if it holds none. Below none if it holds more than it starts, since what one has too many
   * the others need not have; but by no more than it starts itself.
   */
  function want(): number {
    const held = arrivals.size + Math.max(0, waiting - deferred());
    const recent = started.count(performance.now());
    const aheadMs = Math.min(AHEAD_MS + AHEAD_TRIPS * tripMs, MOST_AHEAD_MS);
    const most = Math.max(1, Math.ceil((recent * aheadMs) / PACE_MS));
    const wanted = Math.min(most - held, capacity() + Math.ceil(recent * PREFETCH));
    // What waits here for long, behind calls made by hand for instance, must not keep the others from theirs.
    return Math.max(-most, wanted);
  }

  function tellAt(atMs: number): void {
    if (isClosed || telling !== undefined || atMs >= timerAtMs) return;
    clearTimeout(timer);
    timerAtMs = atMs;
    const inMs = atMs - performance.now();
    if (inMs < 1) queueMicrotask(tell);
    else timer = setTimeout(tell, inMs);
  }

  function tellSoon(): void {
    tellAt(Math.max(performance.now(), toldAtMs + GATHER_MS));
  }

  function tell(): void {
    if (telling !== undefined) return;
    clearTimeout(timer);
    timerAtMs = Infinity;
    toldAtMs = performance.now();
    telling = exchange().then((nextMs) => {
      telling = undefined;
      const hasNews = arrivals.size + joining.length + probes.length + woken.size > 0;
      if (isClosed && joining.length > 0) tell();
      else if (hasNews) tellSoon();
      else tellAt(performance.now() + Math.min(nextMs, LOOK_IN_MS));
    });
  }

  /** One round trip, or two if jobs go back; in how many ms the next one is due. */
  async function exchange(): Promise<number> {
    const arrived = [...arrivals.keys()];
    const news = { arrived, probes, woken: [...woken] };
    probes = [];
    woken = new Set();
    try {
      const back = joining.splice(0);
      if (back.length > 0) await lanes.join(queue, back);
      told = want();
      const request = { queue, worker, want: told, forMs: isClosed ? 0 : WANT_FOR_MS, ...news };
      const sentAtMs = performance.now();
      const fed = await lanes.feed(request);
      tripMs += (performance.now() - sentAtMs - tripMs) * TRIP_SHARE;
      parked = fed.parked;
      for (const [index, id] of arrived.entries()) {
        arrivals.get(id)?.(fed.arrivals[index]!);
        arrivals.delete(id);
      }
      return Math.max(GATHER_MS, fed.nextMs ?? LOOK_IN_MS);
    } catch (error) {
      // Jobs that were to join their lanes come back by themselves; all else is told again.
      probes.unshift(...news.probes);
      for (const key of news.woken) woken.add(key);
      toldAtMs = performance.now() + LOOK_IN_MS - GATHER_MS;
      if (isClosed) return LOOK_IN_MS;
      const reason = reasonOf(error);
      const problem = `Queue "${queue}" could not be asked for its jobs with keys: ${reason}`;
      logger.warn({ queue, reason }, problem);
      return LOOK_IN_MS;
    }
  }

  tell();
  return {
    arrive(id) {
      if (isClosed) return Promise.resolve("fed");
      return new Promise((resolve) => {
        arrivals.set(id, resolve);
        tellSoon();
      });
    },
    async whileWaiting(slot) {
      waiting += 1;
      try {
        return await slot;
      } finally {
        waiting -= 1;
      }
    },
    start(probe) {
      started.add(performance.now());
      if (probe !== undefined) probes.push([probe.key, probe.wentAtOnce]);
      // Who said that it had too many says when it has not: the next job to be enqueued goes by that.
      if (probe !== undefined || parked > 0 || told < 0) tellSoon();
    },
    missProbe(key) {
      probes.push([key, false]);
      tellSoon();
    },
    park(job) {
      joining.push(job);
      // A worker that closes still parks what was on its way back.
      if (isClosed) tell();
      else tellSoon();
    },
    wake(key) {
      woken.add(key);
      tellSoon();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      for (const resolve of arrivals.values()) resolve("fed");
      arrivals.clear();
      await telling;
      tell();
      clearTimeout(timer);
      await telling;
      clearTimeout(timer);
    },
  };
}

/** Counts what happened of late, in steps of an eighth of its time. */
export interface RecentCount {
  add(atMs: number): void;
  count(nowMs: number): number;
}

const STEPS = 8;

export function createRecentCount(withinMs: number): RecentCount {
  const stepMs = withinMs / STEPS;
  const counts = Array.from({ length: STEPS }, () => 0);
  let latest = -Infinity;

  /** Steps that have gone by since the latest one are empty. */
  function moveTo(atMs: number): number {
    const step = Math.floor(atMs / stepMs);
    for (let each = Math.max(latest, step - STEPS) + 1; each <= step; each++) {
      counts[each % STEPS] = 0;
    }
    latest = Math.max(latest, step);
    return step % STEPS;
  }

  return {
    add(atMs) {
      counts[moveTo(atMs)]! += 1;
    },
    count(nowMs) {
      moveTo(nowMs);
      return counts.reduce((sum, each) => sum + each, 0);
    },
  };
}

/** A slot that came so soon was not waited for. */
const AT_ONCE_MS = 20;

/** A job that was let through alone tells whether its key has room again. */
export function probeOf(
  { key }: Job<unknown>,
  arrival: Arrival,
  { waitedMs }: Slot,
): { key: string; wentAtOnce: boolean } | undefined {
  if (key === undefined || arrival !== "probe") return undefined;
  return { key, wentAtOnce: waitedMs < AT_ONCE_MS };
}
