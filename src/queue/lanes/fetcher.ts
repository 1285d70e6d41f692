/**
 * Decides when a worker asks Redis for jobs, and for how many. A script in Redis decides which jobs these are.
 *
 * A lane contains the pending jobs of one key. A lane is *blocked* while its key has no room under its limits, and
 * *woken* when there may be room again. A woken lane hands out a single job, the *probe*, to find out whether there is
 * room.
 */
import { randomBytes } from "node:crypto";
import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type {
  Arrival,
  LaneJob,
  WorkerOrders,
  Taken,
  TakenJob,
} from "../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { HeldJob, JobSupply } from "../bullmq/stored-worker.ts";
import { firstOfText } from "../../core/key-path.ts";
import type { KeyFloor } from "../../core/policy/fair.ts";
import { keyTextOf, type Job } from "../job.ts";

/** Fetches jobs from the lanes for one worker, and sends the worker's updates to the lanes. */
export interface Fetcher extends JobSupply {
  /** Counts a job of this key as waiting for a slot until `slot` settles. */
  whileWaiting<T>(key: string | undefined, slot: Promise<T>): Promise<T>;
  /** Records that a job of this key has started. For a probe, `probe` says whether the slot came at once. */
  start(
    key: string | undefined,
    probe?: { readonly key: string; readonly wentAtOnce: boolean },
  ): void;
  /** Records that a job's handler has ended, or that the job goes back to the queue. */
  end(): void;
  /** Records that a probe got no slot, so that its lane does not wait for the probe's result. */
  missProbe(key: string): void;
  /** Puts a job that BullMQ stores as delayed into the lane of its key. */
  park(job: LaneJob): void;
  /** Wakes the lane of a key that may have room again. `"*"` wakes all lanes. */
  wake(key: string): void;
  /** True while a request is in flight. Its reply may be lost if the connection breaks. */
  readonly isRequesting: boolean;
  /** True if this worker has fetched the job and the job has not ended yet. */
  holds(id: string, token: string): boolean;
  /** True if no worker held a job and no job was parked, according to the latest reply. */
  readonly isQuiet: boolean;
  /** Records that the job of an ordered key has ended, so that the next job of the key may start. */
  endHead(key: string): void;
  /** Stops fetching and sends the pending updates. Resolves with the jobs that were fetched and not handed out. */
  close(): Promise<readonly TakenJob[]>;
  /** Sends the updates that came after `close()`. */
  sendLast(): Promise<void>;
}

export interface FetcherParts {
  readonly lanes: Pick<LaneStore, "join" | "take">;
  readonly queue: string;
  /** The worker's id in Redis. */
  readonly workerId: string;
  readonly logger: Logger;
  readonly lockMs: number;
  /** The least number of jobs to fetch ahead of their slots, if the queue has that many. */
  readonly least: number;
  /** Returns how many more jobs the worker has room for. */
  readonly capacity: () => number;
  /**
   * Called for each reply, with the pauses and cancellations that affect the worker's jobs, and with the time of the
   * request, on `performance.now()`.
   */
  readonly applyOrders: (seen: WorkerOrders, askedAtMs: number) => void;
  /** Called with each reply if jobs of the queue have ever had parents or children. */
  readonly onFlows?: (() => void) | undefined;
  /** Returns how many more jobs may start. The number is small while the breaker tests the downstream. */
  readonly admits: () => number;
  /**
   * Returns how many waiting jobs are blocked by their key's limits. These jobs do not take the turns of other jobs.
   */
  readonly deferred: () => number;
  /** Returns the floors of keys in the bucket. */
  readonly floors: () => readonly KeyFloor[];
  /** Called when Redis has signalled that there may be a job, but the worker has no room for one. */
  readonly onUnused?: (() => void) | undefined;
}

const TOKEN_BYTES = 15;
/** The fetcher gathers updates for this time, then sends them together. */
const GATHER_MS = 4;
/** After an error, the updates are sent again after this time. */
const RETRY_MS = 1_000;
/** How often a worker without room looks for room, and how often it looks for due and expired jobs. */
const RECHECK_MS = 25;
const LOOK_MS = 250;
/**
 * How long a reply without jobs is valid if it contains no time of a next job. An idle worker still asks every ten
 * seconds.
 */
const QUIET_FOR_MS = 30_000;
/** A worker's speed is the number of jobs that it started in the last 250 ms. */
const SPEED_MS = 250;
/**
 * A worker fetches ahead as many jobs as it starts in `AHEAD_MS`, plus those that it starts during `AHEAD_TRIPS` round
 * trips. `MOST_AHEAD_MS` bounds the sum. `AHEAD_MS` covers one horizon of slots, and a margin for a busy process. The
 * round trips are added because several of them lie between the start of one job and the slot of the next.
 */
const AHEAD_MS = 150;
const AHEAD_TRIPS = 10;
const MOST_AHEAD_MS = 1_000;
/** The weight of the latest round trip in the moving average. */
const TRIP_SHARE = 1 / 8;
/**
 * A worker takes no job of a key of which it starts fewer ahead than wait here, by more than this number. Otherwise the
 * jobs of a key with many other calls would fill the worker while they wait for their turns.
 */
const MORE_OF_KEY = 2;
/** The most keys that one request names, because they have enough jobs here or because of their floors. */
const MOST_LEFT_OUT = 16;
const MOST_FLOORS = 32;
/** How often keys without jobs are forgotten. */
const FORGET_KEYS_MS = 1_000;
/** A worker asks for more jobs only once it can ask for this share of the jobs that it fetches ahead. */
const TOGETHER = 1 / 8;
/**
 * The most jobs, and the most expired jobs, in one request. Both are bounded because Redis is blocked while it serves
 * the request.
 */
const MOST_TAKEN = 500;
const MOST_EXPIRED = 50;

/** The jobs of a key that wait here for their slots, and that began to wait or started recently. */
interface Load {
  waiting: number;
  readonly arrived: RecentCount;
  readonly started: RecentCount;
}

function createLoad(): Load {
  return { waiting: 0, arrived: createRecentCount(SPEED_MS), started: createRecentCount(SPEED_MS) };
}

export function createFetcher(parts: FetcherParts): Fetcher {
  const { lanes, queue, workerId, logger, lockMs, capacity, admits, deferred, applyOrders, least } =
    parts;
  const { onUnused } = parts;
  const started = createRecentCount(SPEED_MS);
  /** The jobs that were fetched and not handed out. */
  const ready: HeldJob[] = [];
  /** The locks of fetched jobs that have not ended. The value is the job's key if its lane is ordered. */
  const held = new Map<string, string | undefined>();
  const joining: LaneJob[] = [];
  let probes: [key: string, wentAtOnce: boolean][] = [];
  let woken = new Set<string>();
  let ended = new Set<string>();
  let waiting = 0;
  /** By the first name of the key. */
  const loads = new Map<string, Load>();
  let forgotKeysAtMs = performance.now();
  /** The number of keys that the latest request for jobs left out. Their surplus jobs take no places of other keys. */
  let fullKeys = 0;
  /** The number of the floor that the next request names first. */
  let firstFloor = 0;
  let tripMs = 0;
  let requests = 0;
  let askedAtMs = performance.now();
  let isMoreDue = false;
  /** According to the latest reply, there is no other job until this time. */
  let emptyUntilMs = 0;
  /** The number of times that Redis has signalled that there may be a job. */
  let looks = 0;
  let onReady = (): void => {};
  /** The time of the latest request, if its reply had no jobs at all. */
  let quietAtMs = -Infinity;
  let asking: Promise<Taken> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let notify = (): void => {};
  let isClosed = false;

  /**
   * Returns how many jobs to ask for: at least one if the worker holds none. While the worker holds half of the jobs
   * that it could start soon, it waits until it can ask for several jobs together.
   */
  function want(): number {
    const unbegun = ready.length + Math.max(0, waiting - deferred());
    const recent = started.count(performance.now());
    const most = Math.max(least, aheadOf(recent)) + fullKeys * MORE_OF_KEY;
    // Asks for no more jobs than the worker has room for. An extra job would stay here until its lock expires.
    const places = capacity() - ready.length;
    const wanted = Math.max(0, Math.min(most - unbegun, places, MOST_TAKEN, admits()));
    return unbegun >= most / 2 && wanted < Math.floor(most * TOGETHER) ? 0 : wanted;
  }

  /** Returns how far ahead this worker fetches jobs. */
  function aheadMs(): number {
    return Math.min(AHEAD_MS + AHEAD_TRIPS * tripMs, MOST_AHEAD_MS);
  }

  function loadOf(key: string) {
    const name = firstOfText(key);
    let load = loads.get(name);
    if (load === undefined) loads.set(name, (load = createLoad()));
    return load;
  }

  /** Returns the first names of keys of which enough jobs wait here. */
  function leftOut(): string[] {
    const nowMs = performance.now();
    const doForget = nowMs >= forgotKeysAtMs + FORGET_KEYS_MS;
    if (doForget) forgotKeysAtMs = nowMs;
    const found: string[] = [];
    for (const [name, load] of loads) {
      if (load.waiting < MORE_OF_KEY && !doForget) continue;
      const recent = load.started.count(nowMs);
      if (load.waiting + recent === 0) loads.delete(name);
      const ahead = Math.max(least - 1, aheadOf(recent));
      if (load.waiting >= ahead + MORE_OF_KEY && found.length < MOST_LEFT_OUT) found.push(name);
    }
    fullKeys = found.length;
    return found;
  }

  /** Returns how many jobs to fetch ahead where this many started recently. */
  function aheadOf(recent: number): number {
    return Math.ceil((recent * aheadMs()) / SPEED_MS);
  }

  /**
   * Returns the keys that need more jobs here to use their floors, and how many. A key gets no more than its floor in
   * this way: a worker that is slower than the bucket would never fetch jobs of the other keys. The lanes hand out the
   * other jobs by weight.
   */
  function belowFloor(): (readonly [name: string, more: number])[] {
    const floors = parts.floors();
    // Jobs that were not handed out may be of these keys.
    if (floors.length === 0 || ready.length > 0) return [];
    const nowMs = performance.now();
    const recent = started.count(nowMs);
    const looked = Math.min(floors.length, MOST_FLOORS);
    const found: (readonly [string, number])[] = [];
    for (let at = 0; at < looked; at += 1) {
      const { name, part, callsPerSecond } = floors[(firstFloor + at) % floors.length]!;
      const { waiting: held = 0, arrived } = loads.get(name) ?? {};
      const ofFloor =
        callsPerSecond === undefined ? recent * part : (callsPerSecond * SPEED_MS) / 1_000;
      const more = Math.min(
        Math.ceil(ofFloor) - (arrived?.count(nowMs) ?? 0),
        Math.max(1, aheadOf(recent * part)) - held,
      );
      if (more > 0) found.push([name, more]);
    }
    firstFloor += looked === floors.length ? 1 : looked;
    return found;
  }

  /**
   * Divides a request between new jobs and expired jobs. If there is room, expired jobs are added to the request.
   * Without room, every second request asks for an expired job in place of a new job.
   */
  function split(wanted: number): { readonly most: number; readonly mostExpired: number } {
    const beside = Math.max(0, Math.min(capacity() - ready.length - wanted, MOST_EXPIRED));
    const isTheirTurn = beside === 0 && wanted > 0 && isMoreDue && requests % 2 === 0;
    return isTheirTurn
      ? { most: wanted - 1, mostExpired: 1 }
      : { most: wanted, mostExpired: beside };
  }

  /** Requests jobs and sends the pending updates. Only one request is in flight at a time. */
  function ask(wanted: number): Promise<Taken> {
    clearTimeout(timer);
    timer = undefined;
    asking = exchange(wanted).finally(() => {
      asking = undefined;
      if (hasUpdates()) sendSoon();
      notify();
    });
    return asking;
  }

  async function exchange(wanted: number): Promise<Taken> {
    const looksBefore = looks;
    const updates = { probes, woken: [...woken], ended: [...ended] };
    probes = [];
    woken = new Set();
    ended = new Set();
    try {
      const back = joining.splice(0);
      if (back.length > 0) await lanes.join({ queue, jobs: back });
      const sentAtMs = performance.now();
      askedAtMs = sentAtMs;
      requests += 1;
      // Programs outside of this process prove by the token that they hold a job, so the token must be unguessable.
      const token = `${workerId}:${randomBytes(TOKEN_BYTES).toString("base64url")}:`;
      const counts = isClosed ? { most: 0, mostExpired: 0 } : split(wanted);
      const limits = counts.most > 0 ? { full: leftOut(), floors: belowFloor() } : {};
      const asked = { queue, lockMs, token, ...counts, ...updates, ...limits };
      const taken = await lanes.take(asked);
      tripMs += (performance.now() - sentAtMs - tripMs) * TRIP_SHARE;
      for (const job of taken.jobs) {
        ready.push({ ...job, takenAtMs: sentAtMs });
        held.set(lockOf(job), job.orderedKey);
      }
      applyOrders(taken.orders, sentAtMs);
      if (taken.hasFlows) parts.onFlows?.();
      isMoreDue = taken.isMoreDue;
      // A signal that came after the request was sent may be newer than this reply.
      const isLatest = looks === looksBefore;
      const isEmpty = isLatest && taken.jobs.length < counts.most && taken.nextMs !== 0;
      emptyUntilMs = isEmpty ? sentAtMs + (taken.nextMs ?? QUIET_FOR_MS) : 0;
      if (ready.length > 0) onReady();
      const isAllQuiet = taken.parked === 0 && taken.active === 0;
      quietAtMs = isAllQuiet ? sentAtMs : -Infinity;
      return taken;
    } catch (error) {
      // Does not retry after `close()`, because a closed connection brings no further reply.
      if (isClosed) throw error;
      // All updates are sent again, except for jobs that should have joined their lanes: these come due by themselves.
      probes.unshift(...updates.probes);
      for (const key of updates.woken) woken.add(key);
      for (const key of updates.ended) ended.add(key);
      throw error;
    }
  }

  function hasUpdates(): boolean {
    return joining.length + probes.length + woken.size + ended.size > 0;
  }

  function sendSoon(): void {
    if (timer !== undefined || asking !== undefined) return;
    timer = setTimeout(sendUpdates, GATHER_MS);
  }

  function sendUpdates(): void {
    timer = undefined;
    if (asking !== undefined) return;
    ask(want()).catch((error: unknown) => {
      if (isClosed) return;
      clearTimeout(timer);
      timer = setTimeout(sendUpdates, RETRY_MS);
      const reason = reasonOf(error);
      const problem = `Could not send the updates of the lanes of queue "${queue}"; retrying in 1 s: ${reason}`;
      logger.warn({ queue, reason }, problem);
    });
  }

  /** Sends the update at once, because no other job of this ordered key can start before Redis has it. */
  function endHead(key: string): void {
    ended.add(key);
    clearTimeout(timer);
    sendUpdates();
  }

  /** Resolves when something has changed in this process, or after `RECHECK_MS`. */
  function untilChanged(): Promise<void> {
    return new Promise((resolve) => {
      const recheck = setTimeout(resolve, RECHECK_MS);
      notify = () => {
        clearTimeout(recheck);
        resolve();
      };
    });
  }

  return {
    async next() {
      for (;;) {
        if (isClosed) return { job: undefined, nextMs: undefined };
        if (ready.length > 0 && capacity() > 0) return { job: ready.shift()! };
        if (asking !== undefined) {
          // Ignores an error here, because the sender of the request handles it.
          await asking.catch(() => undefined);
          continue;
        }
        const nowMs = performance.now();
        const isEmpty = nowMs < emptyUntilMs;
        if (isEmpty && ready.length === 0) {
          return { job: undefined, nextMs: emptyUntilMs - nowMs };
        }
        const wanted = isEmpty ? 0 : want();
        const isDue = capacity() > 0 && (isMoreDue || nowMs >= askedAtMs + LOOK_MS);
        if (wanted > 0 || isDue) {
          const { nextMs } = await ask(wanted);
          if (wanted > 0 && ready.length === 0 && nextMs !== 0) return { job: undefined, nextMs };
        } else await untilChanged();
      }
    },
    look() {
      looks += 1;
      emptyUntilMs = 0;
      if (capacity() <= 0) onUnused?.();
    },
    untilReady() {
      return new Promise((resolve) => {
        onReady = resolve;
        if (ready.length > 0) resolve();
      });
    },
    async whileWaiting(key, slot) {
      const load = key === undefined ? undefined : loadOf(key);
      waiting += 1;
      if (load !== undefined) {
        load.waiting += 1;
        load.arrived.add(performance.now());
      }
      try {
        return await slot;
      } finally {
        waiting -= 1;
        if (load !== undefined) load.waiting -= 1;
      }
    },
    start(key, probe) {
      const nowMs = performance.now();
      started.add(nowMs);
      if (key !== undefined) loadOf(key).started.add(nowMs);
      if (probe !== undefined) {
        probes.push([probe.key, probe.wentAtOnce]);
        sendSoon();
      }
      notify();
    },
    end() {
      notify();
    },
    missProbe(key) {
      probes.push([key, false]);
      sendSoon();
    },
    park(job) {
      joining.push(job);
      sendSoon();
    },
    wake(key) {
      woken.add(key);
      sendSoon();
    },
    get isClosed() {
      return isClosed;
    },
    release(id, token) {
      const lock = lockOf({ id, token });
      const key = held.get(lock);
      held.delete(lock);
      if (key === undefined) return;
      endHead(key);
    },
    endHead,
    get isRequesting() {
      return asking !== undefined;
    },
    holds: (id, token) => held.has(lockOf({ id, token })),
    get isQuiet() {
      return performance.now() < quietAtMs + QUIET_FOR_MS / 2;
    },
    async sendLast() {
      await asking?.catch(() => undefined);
      clearTimeout(timer);
      timer = undefined;
      if (hasUpdates()) await ask(0).catch(() => undefined);
      clearTimeout(timer);
    },
    async close() {
      isClosed = true;
      notify();
      await asking?.catch(() => undefined);
      // This worker may have consumed the marker that signals a job. With this last request, Redis can wake another
      // worker.
      await ask(0).catch(() => undefined);
      clearTimeout(timer);
      return ready.splice(0);
    },
  };
}

/** Counts the events of the last `withinMs`. The count moves on in steps of an eighth of that time. */
export interface RecentCount {
  add(atMs: number): void;
  count(nowMs: number): number;
}

const STEPS = 8;

export function createRecentCount(withinMs: number): RecentCount {
  const stepMs = withinMs / STEPS;
  const counts = Array.from({ length: STEPS }, () => 0);
  let latest = -Infinity;

  /** Sets the counts of all steps since the latest event to zero, and returns the index of the current step. */
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

/** A slot that was drawn within this time counts as immediate. */
const AT_ONCE_MS = 20;

/**
 * Returns whether the key of a started probe has room again: `wentAtOnce` is true if the slot was immediate. Undefined
 * for other jobs.
 */
export function probeOf(
  job: Pick<Job<unknown>, "key">,
  arrival: Arrival,
  { waitedMs }: Slot,
): { key: string; wentAtOnce: boolean } | undefined {
  const key = keyTextOf(job);
  if (key === undefined || arrival !== "probe") return undefined;
  return { key, wentAtOnce: waitedMs < AT_ONCE_MS };
}

function lockOf({ id, token }: Pick<TakenJob, "id" | "token">): string {
  return `${token} ${id}`;
}
