/**
 * Fetches jobs out of their lanes for one worker. Who decides the next job: `feed` in `lua/lib/lanes/lanes.lua`, called by
 * `lua/queue/lanes-feed.lua`. Of all workers' wants it lets as many jobs out as are wanted, from the lanes in fair
 * turns, and puts them where BullMQ's workers fetch; any worker may then fetch any of them. This file decides how many
 * jobs a worker wants: what it can start soon.
 *
 * Words of the lanes: a job is *fed* when it is let out of its lane. Its *arrival* at a worker says how it came: `fed`, in
 * its turn; `unfed`, not out of its lane, since it came due by itself; or as a `probe`, alone, to see whether its key has
 * room again. A lane is *aside* (or blocked) while its key has no room, and is *woken* when it may have some again.
 */
import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { Arrival, LaneJob, LaneStore } from "../../core/queue-store.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { Job } from "../job.ts";

/** A worker's side of the lanes. */
export interface Feeder {
  /** Asks how a job with a key came out of its lane, once it was fetched. */
  arrive(id: string): Promise<Arrival>;
  /** Counts a job of a lane among those that wait for their slots, while it does. */
  whileWaiting<T>(slot: Promise<T>): Promise<T>;
  /** Notes that a job has started; for a probe, whether its slot came at once. */
  start(probe?: { readonly key: string; readonly wentAtOnce: boolean }): void;
  /** Notes that a probe got no slot: its lane need not wait for it. */
  missProbe(key: string): void;
  /** Puts a job that BullMQ holds as delayed into its lane. */
  park(job: LaneJob): void;
  /** Wakes the lane of a key that may have room again; `"*"` stands for all. */
  wake(key: string): void;
  /** Redis may have lost what this worker wants. */
  tellAgain(): void;
  /** Whether no worker held a job, and none was parked, when this one looked last. */
  readonly isQuiet: boolean;
  /** Sends the last news, and that nothing is wanted any more; arrivals that are asked about resolve as fed. */
  close(): Promise<void>;
}

export interface FeederParts {
  readonly lanes: LaneStore;
  readonly queue: string;
  /** The worker's id in Redis. */
  readonly workerId: string;
  readonly logger: Logger;
  /** How many more jobs the worker has room for. */
  readonly capacity: () => number;
  /** How many of the waiting jobs are held back by their own key; they take no other's turn. */
  readonly deferred: () => number;
}

/** How long news are gathered, to be sent together. */
const GATHER_MS = 4;
/** How often a worker without news sends its wants; they hold for three times as long. */
const REPEAT_MS = 1_000;
const WANT_FOR_MS = 3 * REPEAT_MS;
/**
 * The same for a worker with nothing to do: the next job that is enqueued comes by its last wants, and whatever else
 * changes is told. Only a want that Redis has lost is missed until then.
 */
const QUIET_REPEAT_MS = 10_000;
const QUIET_FOR_MS = 3 * QUIET_REPEAT_MS;
/** A worker's speed is how many jobs it started in the last 250 ms. */
const SPEED_MS = 250;
/**
 * How many jobs a worker holds: those that it starts in `AHEAD_MS`, which is a horizon of slots and some for a process
 * that is busy; and those of `AHEAD_TRIPS` round trips more, since from the start of one job to the slot of the next
 * there are about five. `MOST_AHEAD_MS` bounds both.
 */
const AHEAD_MS = 150;
const AHEAD_TRIPS = 10;
const MOST_AHEAD_MS = 1_000;
/** The weight of the latest round trip in the moving average. */
const TRIP_SHARE = 1 / 8;
/** The share of what it started that lies ready to be fetched, so that a job that ends brings the next one along. */
const PREFETCH = 0.1;

export function createFeeder(parts: FeederParts): Feeder {
  const { lanes, queue, workerId, logger, capacity, deferred } = parts;
  const started = createRecentCount(SPEED_MS);
  const arrivals = new Map<string, (arrival: Arrival) => void>();
  const joining: LaneJob[] = [];
  let probes: [key: string, wentAtOnce: boolean][] = [];
  let woken = new Set<string>();
  let waiting = 0;
  let parked = 0;
  let tripMs = 0;
  let lastWant = 0;
  let lastSentAtMs = -Infinity;
  /** Whether nothing has happened here since the last wants were sent. */
  let isIdle = false;
  /** When Redis was asked last, if all was quiet then. */
  let quietAtMs = -Infinity;
  let sending: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let timerAtMs = Infinity;
  let isClosed = false;

  /**
   * At least one if the worker holds no job. Negative if it holds more than it starts: the surplus is subtracted from
   * the wants of the other workers, at most by what this worker starts itself.
   */
  function want(): number {
    const held = arrivals.size + Math.max(0, waiting - deferred());
    const recent = started.count(performance.now());
    const aheadMs = Math.min(AHEAD_MS + AHEAD_TRIPS * tripMs, MOST_AHEAD_MS);
    const most = Math.max(1, Math.ceil((recent * aheadMs) / SPEED_MS));
    const wanted = Math.min(most - held, capacity() + Math.ceil(recent * PREFETCH));
    // Jobs that wait here for long, behind calls made by hand for instance, must not keep jobs from the other workers.
    return Math.max(-most, wanted);
  }

  function sendAt(atMs: number): void {
    if (isClosed || sending !== undefined || atMs >= timerAtMs) return;
    clearTimeout(timer);
    timerAtMs = atMs;
    const inMs = atMs - performance.now();
    if (inMs < 1) queueMicrotask(sendWants);
    else timer = setTimeout(sendWants, inMs);
  }

  function sendSoon(): void {
    sendAt(Math.max(performance.now(), lastSentAtMs + GATHER_MS));
  }

  function sendWants(): void {
    if (sending !== undefined) return;
    clearTimeout(timer);
    timerAtMs = Infinity;
    lastSentAtMs = performance.now();
    sending = exchange().then((nextMs) => {
      sending = undefined;
      const hasNews = arrivals.size + joining.length + probes.length + woken.size > 0;
      if (isClosed && joining.length > 0) sendWants();
      else if (hasNews) sendSoon();
      else sendAt(performance.now() + nextMs);
    });
  }

  /** Makes one round trip, or two if jobs go back; resolves with the ms until the next one. */
  async function exchange(): Promise<number> {
    const arrived = [...arrivals.keys()];
    const news = { arrived, probes, woken: [...woken] };
    probes = [];
    woken = new Set();
    try {
      const back = joining.splice(0);
      if (back.length > 0) await lanes.join(queue, back);
      lastWant = want();
      const isQuiet = isIdle && waiting === 0 && parked === 0 && lastWant > 0;
      isIdle = true;
      const forMs = isClosed ? 0 : isQuiet ? QUIET_FOR_MS : WANT_FOR_MS;
      const request = { queue, worker: workerId, want: lastWant, forMs, ...news };
      const sentAtMs = performance.now();
      const fed = await lanes.feed(request);
      tripMs += (performance.now() - sentAtMs - tripMs) * TRIP_SHARE;
      parked = fed.parked;
      for (const [index, id] of arrived.entries()) {
        arrivals.get(id)?.(fed.arrivals[index]!);
        arrivals.delete(id);
      }
      const isAllQuiet = parked === 0 && fed.active === 0;
      quietAtMs = isAllQuiet ? sentAtMs : -Infinity;
      const repeatMs = isQuiet && parked === 0 ? QUIET_REPEAT_MS : REPEAT_MS;
      return Math.max(GATHER_MS, Math.min(fed.nextMs ?? repeatMs, repeatMs));
    } catch (error) {
      // Jobs that were to join their lanes come due by themselves; all else is sent again.
      probes.unshift(...news.probes);
      for (const key of news.woken) woken.add(key);
      lastSentAtMs = performance.now() + REPEAT_MS - GATHER_MS;
      isIdle = false;
      if (isClosed) return REPEAT_MS;
      const reason = reasonOf(error);
      const problem = `Could not fetch jobs from the lanes of queue "${queue}"; retrying in 1 s: ${reason}`;
      logger.warn({ queue, reason }, problem);
      return REPEAT_MS;
    }
  }

  sendWants();
  return {
    arrive(id) {
      if (isClosed) return Promise.resolve("fed");
      isIdle = false;
      return new Promise((resolve) => {
        arrivals.set(id, resolve);
        sendSoon();
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
      const nowMs = performance.now();
      started.add(nowMs);
      isIdle = false;
      if (probe !== undefined) probes.push([probe.key, probe.wentAtOnce]);
      // A worker that wanted fewer than none says when that ends: the next job that is enqueued depends on it.
      const wasQuiet = timerAtMs > nowMs + REPEAT_MS && sending === undefined;
      if (probe !== undefined || parked > 0 || lastWant < 0 || wasQuiet) sendSoon();
    },
    missProbe(key) {
      isIdle = false;
      probes.push([key, false]);
      sendSoon();
    },
    park(job) {
      isIdle = false;
      joining.push(job);
      // A worker that closes still parks what was on its way back.
      if (isClosed) sendWants();
      else sendSoon();
    },
    wake(key) {
      isIdle = false;
      woken.add(key);
      sendSoon();
    },
    tellAgain() {
      isIdle = false;
      sendSoon();
    },
    get isQuiet() {
      return performance.now() < quietAtMs + QUIET_FOR_MS / 2;
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      for (const resolve of arrivals.values()) resolve("fed");
      arrivals.clear();
      await sending;
      sendWants();
      clearTimeout(timer);
      await sending;
      clearTimeout(timer);
    },
  };
}

/** Counts the events of the last `withinMs`, in steps of an eighth of that. */
export interface RecentCount {
  add(atMs: number): void;
  count(nowMs: number): number;
}

const STEPS = 8;

export function createRecentCount(withinMs: number): RecentCount {
  const stepMs = withinMs / STEPS;
  const counts = Array.from({ length: STEPS }, () => 0);
  let latest = -Infinity;

  /** Empties the steps that have passed since the latest one. */
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

/** A slot that came within this time came at once. */
const AT_ONCE_MS = 20;

/** What a probe that starts says of its key: whether it has room again. */
export function probeOf(
  { key }: Job<unknown>,
  arrival: Arrival,
  { waitedMs }: Slot,
): { key: string; wentAtOnce: boolean } | undefined {
  if (key === undefined || arrival !== "probe") return undefined;
  return { key, wentAtOnce: waitedMs < AT_ONCE_MS };
}
