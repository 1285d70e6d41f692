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
   * When to send the next request; Infinity if every caller has a slot and no lookup is requested. While this process
   * holds a slot that comes at `lastSharedSlotMs` or earlier, newcomers of all groups are gathered into one request.
   */
  nextAtMs(nowMs: number, hasLookups: boolean, lastSharedSlotMs: number): number;
  /** When this process's turn comes, from the latest reply; 0 if it has none. */
  readonly turnAtMs: number;
  /** The time since the oldest unanswered request was sent, in ms. 0 if the store has replied. */
  readonly silentMs: number;
  /** True after the first reply. */
  readonly hasAnswered: boolean;
  /** A request was sent. */
  requestSent(nowMs: number): void;
  /** A reply arrived. It decides when to send the next request for `first`, the first call that waits for its turn. */
  replyReceived(reply: Drawn, received: Received, first: Arrival | undefined): void;
  /** A call stopped waiting. If the turn belonged to it, the next request for the others is due at once. */
  callerLeft(call: { readonly number: number }): void;
  /** The request failed: the next one is sent after {@link STORE_RETRY_MS}. */
  retryLater(): void;
  /** The next request may be sent at once, whatever the latest reply said. */
  retryNow(): void;
  /** Schedules a request soon, to find out whether a caller can start before its deadline. */
  scheduleSoon(nowMs: number): void;
}

/**
 * A process that waits for a later turn sends a request after this time anyway. Its turn may have come earlier, and the
 * message about that can get lost.
 */
export const RECHECK_MS: number = LONGEST_ASK_GAP_US / 1_000;
/** The store keeps the queue position of a process that waits for a lease for half a second longer than this. */
const LONGEST_RECHECK_MS = 1_000;
/**
 * The distance between checks of keys, if it is short enough to keep their queue positions: some 100 scripts a second.
 */
const KEY_EVERY_MS = 1;
/** Keys that are due within this time are checked together, because one script for each key would cost far more. */
const TOGETHER_MS = 50;
const GATHER_MS = 10;
/** The shortest time between two requests that `scheduleSoon` causes. */
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
  /** No request is sent before this time, because the store did not answer the last one. */
  let storeAtMs = 0;
  /** True if a notification arrived after the last request was sent: the reply to it is then outdated. */
  let wasNotified = false;
  /** When the request that `scheduleSoon` scheduled is due. Infinity if none is scheduled. */
  let soonAtMs = Infinity;

  /** True if a group has a call that goes before the call with the turn, and that the last request did not include. */
  function isNewBefore(turn: Arrival, group: Group): boolean {
    // A cheap check that decides most groups: it runs for all groups before each request.
    if (Math.max(group.notBeforeMs, group.newestSinceMs) <= askedAtMs) return false;
    const first = firstUnserved(group);
    const isNew = Math.max(group.notBeforeMs, first.sinceMs) > askedAtMs;
    return isNew && arrivedBefore(first, turn);
  }

  return {
    nextAtMs(nowMs, hasLookups, lastSharedSlotMs) {
      let readyAtMs = Infinity;
      /** The earliest time when a key allows a call that goes before the call with the turn. */
      let passesAtMs = Infinity;
      /** The latest slot that is held in a group that still needs slots. */
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
      // New slots come after the held ones anyway, so newcomers can be gathered into one request until then.
      const isGatheringAll = lastSharedSlotMs > nowMs + GATHER_MS;
      const isGathering = lastSlotAtMs > nowMs + GATHER_MS && schedule.size <= MANY;
      const gatheredAtMs = isGatheringAll || isGathering ? askedAtMs + GATHER_MS : nowMs;
      // Even if a key's time is far off, a request must notice changes.
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
 * When to check a key that had no free lease, while `deferred` groups are deferred. A message arrives when a lease
 * becomes free. This check covers lost messages and keeps the queue position, so it may be slow: thousands of keys must
 * not use up a CPU core.
 */
export function nextKeyCheckMs(nowMs: number, deferred: number): number {
  const inMs = Math.min(Math.max(RECHECK_MS, deferred * KEY_EVERY_MS), LONGEST_RECHECK_MS);
  return Math.ceil((nowMs + inMs) / TOGETHER_MS) * TOGETHER_MS;
}

/** Ms until a process with this queue position sends its next request. */
function waitMsOf({ turnUs, leaseOrder }: WaitPosition, nowUs: number): number {
  // The time at which a lease becomes free is unknown.
  if (leaseOrder > 0) return RECHECK_MS;
  return turnUs === 0 ? 0 : Math.min((turnUs - nowUs) / 1_000, RECHECK_MS);
}

/** The time of a reply, on `performance.now()`. */
export interface Received {
  readonly arrivedMs: number;
  /** How far this process's clock is ahead of the bucket's. */
  readonly offsetMs: number;
  /** True if the reply arrived so late that its slots may have passed. See `lateness.ts`. */
  readonly isStale: boolean;
}

/** Converts times between the bucket's clock and this process's, from the replies so far. */
export interface ReplyTimes {
  /** The bucket's clock in the latest reply; 0 before the first. */
  readonly drewUs: number;
  /** How much earlier to send a request so that it arrives in time, in ms: about one way of the network. */
  readonly leadMs: number;
  /**
   * Converts a time of `performance.now()` to the bucket's clock, in µs. Returns 0 before the first reply, and always
   * the same result for the same time.
   */
  readonly bucketUs: (ms: number) => number;
  /** Learns from a reply that arrived just now. */
  read(reply: Drawn): Received;
}

/** A request that arrives too early gets no slot and must be sent again, which costs more than being slightly late. */
const MARGIN_MS = 0.5;

/** Corrections below this are ignored: the order of callers across replicas depends on times that do not change. */
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
      // Redis lost the bucket, so earlier samples of its clock are invalid.
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
 * Creates one timer that can be moved. The returned function sets the time at which it rings, on `performance.now()`,
 * in place of any earlier one; Infinity switches it off.
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
