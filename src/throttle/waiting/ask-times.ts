import { LONGEST_ASK_GAP_US, type Drawn, type WaitPosition } from "../../core/store.ts";
import { STORE_RETRY_MS } from "../outage/retries.ts";
import { createBucketClock, createRecentMinimum } from "../slot/bucket-clock.ts";
import {
  MANY,
  arrivedBefore,
  firstUnserved,
  type Arrival,
  type SoonestGroups,
} from "./group-schedule.ts";
import type { Group } from "./group.ts";
import { createStaleCheck } from "./lateness.ts";

/** Decides when the pacer sends its next draw request. All times are on `performance.now()`. */
export interface AskTimes {
  /**
   * Returns when to send the next request. Infinity if every caller has a slot and no lookup is
   * requested. Until shortly before `lastSharedSlotMs`, new callers of all groups are gathered into
   * one request.
   */
  nextAtMs(nowMs: number, hasLookups: boolean, lastSharedSlotMs: number): number;
  /**
   * When this process's turn comes, according to the latest reply. 0 if this process waits for no
   * turn.
   */
  readonly turnAtMs: number;
  /**
   * The time since the oldest unanswered request was sent, in ms. 0 if the store has replied to all
   * requests.
   */
  readonly silentMs: number;
  /** True after the first reply. */
  readonly hasAnswered: boolean;
  /** Call this when a request is sent. */
  requestSent(nowMs: number): void;
  /**
   * Call this when a reply arrives. The reply determines when to send the next request for `first`,
   * the first call that waits for its turn.
   */
  replyReceived(
    reply: Pick<Drawn, "nowUs" | "position">,
    received: Received,
    first: Arrival | undefined,
  ): void;
  /**
   * Call this when a call stops waiting. If the turn belonged to that call, the next request for
   * the other calls is due immediately.
   */
  callerLeft(call: { readonly number: number }): void;
  /** Call this when a request fails. The next request is sent after {@link STORE_RETRY_MS}. */
  retryLater(): void;
  /** Allows the next request to be sent immediately, even if the latest reply set a later time. */
  retryNow(): void;
  /** Schedules a request soon, to check whether a caller can start before its deadline. */
  scheduleSoon(nowMs: number): void;
}

/**
 * The longest time until a process that waits for its turn sends another request. The turn may have
 * moved forward, and the notification about that can get lost.
 */
export const RECHECK_MS: number = LONGEST_ASK_GAP_US / 1_000;
/**
 * The longest time between two checks of a key without a free lease. The store keeps the queue
 * position of a process that waits for a lease half a second longer than this.
 */
const LONGEST_RECHECK_MS = 1_000;
/**
 * The time between the checks of two keys. It results in about 100 scripts per second, and applies
 * while it is short enough to keep the keys' queue positions.
 */
const KEY_EVERY_MS = 1;
/**
 * Keys that are due within this time are checked together, because one script per key would cost
 * far more.
 */
const TOGETHER_MS = 50;
const GATHER_MS = 10;
/** The shortest time between two requests that `scheduleSoon` schedules. */
const LOOKUP_EVERY_MS = 5;

export function createAskTimes(
  schedule: SoonestGroups,
  times: Pick<ReplyTimes, "leadMs">,
): AskTimes {
  let askedAtMs = 0;
  let redrawAtMs = 0;
  let turnAtMs = 0;
  /** The call that the turn belongs to. */
  let turnOf: Arrival | undefined;
  let silentSinceMs: number | undefined;
  let hasAnswered = false;
  /** No request is sent before this time, because the store did not answer the last request. */
  let storeAtMs = 0;
  /**
   * True if a notification arrived after the last request was sent. The reply to that request is
   * then outdated.
   */
  let wasNotified = false;
  /** When the request that `scheduleSoon` scheduled is due. Infinity if none is scheduled. */
  let soonAtMs = Infinity;

  /**
   * Returns true if a group has a call that goes before the call with the turn, and that was not in
   * the last request.
   */
  function isNewBefore(turn: Arrival, group: Group): boolean {
    // This cheap check is enough for most groups. It runs for all groups before each request.
    if (Math.max(group.notBeforeMs, group.newestSinceMs) <= askedAtMs) return false;
    const first = firstUnserved(group);
    const isNew = Math.max(group.notBeforeMs, first.sinceMs) > askedAtMs;
    return isNew && arrivedBefore(first, turn);
  }

  return {
    nextAtMs(nowMs, hasLookups, lastSharedSlotMs) {
      let readyAtMs = Infinity;
      /** The earliest time at which a key allows a call that goes before the call with the turn. */
      let passesAtMs = Infinity;
      /** The time of the latest held slot in groups that need more slots. */
      let lastSlotAtMs = -Infinity;
      for (const group of schedule) {
        const { line, held, notBeforeMs } = group;
        if (line.size <= held.size) continue;
        readyAtMs = Math.min(readyAtMs, notBeforeMs);
        if (held.size > 0) lastSlotAtMs = Math.max(lastSlotAtMs, held.lastAtMs);
        if (turnOf !== undefined && isNewBefore(turnOf, group)) {
          passesAtMs = Math.min(passesAtMs, notBeforeMs);
        }
      }
      const soonestMs = Math.max(soonAtMs, storeAtMs);
      if (readyAtMs === Infinity) return hasLookups ? soonestMs : Infinity;
      // New slots come after the held slots anyway. Until then, new callers can be gathered into
      // one request.
      const isGatheringAll = lastSharedSlotMs > nowMs + GATHER_MS;
      const isGathering = lastSlotAtMs > nowMs + GATHER_MS && schedule.size <= MANY;
      const gatheredAtMs = isGatheringAll || isGathering ? askedAtMs + GATHER_MS : nowMs;
      // A request must check for changes, even if a key's time is far in the future.
      const recheckAtMs = askedAtMs + RECHECK_MS;
      const keysAtMs = Math.min(readyAtMs - times.leadMs, recheckAtMs);
      const dueAtMs = hasLookups ? Math.min(keysAtMs, soonestMs) : keysAtMs;
      const askAtMs = Math.min(redrawAtMs, soonestMs);
      const turnOrChangeMs = Math.max(askAtMs, gatheredAtMs, dueAtMs);
      const passesTogetherMs = isGatheringAll ? Math.max(passesAtMs, gatheredAtMs) : passesAtMs;
      return Math.min(turnOrChangeMs, Math.max(storeAtMs, passesTogetherMs - times.leadMs));
    },
    get turnAtMs() {
      return turnAtMs;
    },
    get silentMs() {
      return silentSinceMs === undefined ? 0 : performance.now() - silentSinceMs;
    },
    get hasAnswered() {
      return hasAnswered;
    },
    requestSent(nowMs) {
      wasNotified = false;
      soonAtMs = Infinity;
      askedAtMs = nowMs;
      silentSinceMs ??= nowMs;
    },
    replyReceived({ nowUs, position }, { arrivedMs, offsetMs }, first) {
      turnOf = first;
      storeAtMs = 0;
      silentSinceMs = undefined;
      hasAnswered = true;
      turnAtMs = position.turnUs === 0 ? 0 : position.turnUs / 1_000 + offsetMs;
      redrawAtMs = wasNotified ? 0 : arrivedMs + waitMsOf(position, nowUs) - times.leadMs;
    },
    callerLeft({ number }) {
      if (number === turnOf?.number) redrawAtMs = storeAtMs;
    },
    retryLater() {
      storeAtMs = performance.now() + STORE_RETRY_MS;
      redrawAtMs = storeAtMs;
    },
    retryNow() {
      wasNotified = true;
      redrawAtMs = 0;
      storeAtMs = 0;
    },
    scheduleSoon(nowMs) {
      soonAtMs = Math.min(soonAtMs, Math.max(nowMs, askedAtMs + LOOKUP_EVERY_MS));
    },
  };
}

/**
 * Returns when to check a key that had no free lease, while `deferred` groups are deferred.
 * Normally a notification arrives when a lease becomes free. The check covers lost notifications
 * and keeps the queue position. It may be slow, because the checks of thousands of keys must not
 * use up a CPU core.
 */
export function nextKeyCheckMs(nowMs: number, deferred: number): number {
  const inMs = Math.min(Math.max(RECHECK_MS, deferred * KEY_EVERY_MS), LONGEST_RECHECK_MS);
  return Math.ceil((nowMs + inMs) / TOGETHER_MS) * TOGETHER_MS;
}

/** Returns the ms until a process with this queue position sends its next request. */
function waitMsOf({ turnUs, leaseOrder }: WaitPosition, nowUs: number): number {
  if (turnUs > 0) return Math.min((turnUs - nowUs) / 1_000, RECHECK_MS);
  // It is unknown when a lease becomes free, so the request is repeated at the regular interval.
  return leaseOrder > 0 ? RECHECK_MS : 0;
}

/**
 * When a reply arrived, on `performance.now()`, and how this process's clock compares with the
 * bucket's clock.
 */
export interface Received {
  readonly arrivedMs: number;
  /** How far this process's clock is ahead of the bucket's clock, in ms. */
  readonly offsetMs: number;
  /** True if the reply arrived so late that its slots may have passed. See `lateness.ts`. */
  readonly isStale: boolean;
}

/**
 * Converts times between the bucket's clock and this process's clock, based on the replies so far.
 */
export interface ReplyTimes {
  /** The bucket's time in the latest reply, in µs. 0 before the first reply. */
  readonly drewUs: number;
  /**
   * How much earlier to send a request so that it arrives in time, in ms. This is about the fastest
   * recent round trip.
   */
  readonly leadMs: number;
  /**
   * Converts a time of `performance.now()` to the bucket's clock, in µs. Returns 0 before the first
   * reply. The same time always has the same result, unless the clock estimate is corrected.
   */
  readonly bucketUs: (ms: number) => number;
  /** Call this immediately when a reply arrives, to update the clock estimate. */
  read(reply: Drawn): Received;
}

/**
 * How much later than estimated to send requests, in ms. A request that arrives too early gets no
 * slot and must be sent again, which costs more than being slightly late.
 */
const MARGIN_MS = 0.5;

/**
 * Clock corrections below this are ignored, because the order of callers across replicas depends on
 * stable times.
 */
const MOST_OFF_MS = 5;

export function createReplyTimes(): ReplyTimes {
  const clock = createBucketClock();
  const leastTook = createRecentMinimum();
  const checkStale = createStaleCheck();
  let leadMs = 0;
  let drewUs = 0;
  let keptOffsetMs: number | undefined;

  return {
    bucketUs: (ms) =>
      keptOffsetMs === undefined ? 0 : Math.max(1, Math.floor((ms - keptOffsetMs) * 1_000)),
    get drewUs() {
      return drewUs;
    },
    get leadMs() {
      return leadMs;
    },
    read({ nowUs, sentAtMs }) {
      const arrivedMs = performance.now();
      const tookMs = arrivedMs - sentAtMs;
      // If the bucket's time went back, Redis has lost the bucket, and earlier clock samples are
      // invalid.
      if (nowUs < drewUs) clock.reset();
      drewUs = nowUs;
      const isStale = checkStale(tookMs);
      if (!isStale) leadMs = Math.max(0, leastTook.sample(arrivedMs, tookMs) - MARGIN_MS);
      const offsetMs = clock.sample(arrivedMs, nowUs);
      const isOff = keptOffsetMs === undefined || Math.abs(offsetMs - keptOffsetMs) > MOST_OFF_MS;
      if (isOff) keptOffsetMs = offsetMs;
      return { arrivedMs, offsetMs, isStale };
    },
  };
}

/** The longest delay that Node's timers support. */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * Creates one timer that can be rescheduled. The returned function sets when `ring` is called, on
 * `performance.now()`, and replaces any earlier time. Infinity switches the timer off.
 */
export function createAlarm(ring: () => void): (atMs: number) => void {
  let timer: NodeJS.Timeout | undefined;
  let ringsAtMs = Infinity;

  function check(): void {
    timer = undefined;
    const atMs = ringsAtMs;
    ringsAtMs = Infinity;
    // Node's timers may fire up to 1 ms early.
    if (performance.now() < atMs) set(atMs);
    else ring();
  }

  function set(atMs: number): void {
    if (atMs === ringsAtMs) return;
    clearTimeout(timer);
    timer = undefined;
    ringsAtMs = atMs;
    if (atMs === Infinity) return;
    const delayMs = Math.max(0, Math.ceil(atMs - performance.now()));
    timer = setTimeout(check, Math.min(delayMs, LONGEST_MS));
  }

  return set;
}
