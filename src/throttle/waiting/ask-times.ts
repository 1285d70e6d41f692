import { LONGEST_ASK_GAP_US } from "../../core/draw/turns.ts";
import type { Drawn, Place } from "../../core/store.ts";
import { STORE_RETRY_MS } from "../outage/retries.ts";
import { createBucketClock, createRecentMinimum } from "../slot/bucket-clock.ts";
import {
  MANY,
  arrivedBefore,
  firstLacking,
  type Arrival,
  type SoonestGroups,
} from "./group-schedule.ts";
import type { Group } from "./group.ts";
import { createStaleCheck } from "./lateness.ts";

/** When the store is to be asked for slots; all times are those of `performance.now()`. */
export interface AskTimes {
  /**
   * When to ask next; Infinity if no caller lacks a slot and no group is looked at. Newcomers of all
   * groups are asked for together while this process holds a slot until `lastSharedSlotMs`.
   */
  nextAtMs(nowMs: number, areLooks: boolean, lastSharedSlotMs: number): number;
  /** When the turn of this process comes, by the last reply; 0: it has none. */
  readonly turnAtMs: number;
  /** How long the store has owed an answer, in ms. */
  readonly silentMs: number;
  /** Whether it has ever answered. */
  readonly hasAnswered: boolean;
  /** The store is asked now. */
  asked(nowMs: number): void;
  /** It has answered; the reply says when to ask again for `first`, the first call that has to wait for its turn. */
  answered(reply: Drawn, received: Received, first: Arrival | undefined): void;
  /** A call that waited has left: if it was the one that the turn is of, others are asked for at once. */
  left(call: { readonly number: number }): void;
  /** It has not answered: it is left alone for a while. */
  retryLater(): void;
  /** It may be asked again at once, whatever the last reply said. */
  retryNow(): void;
  /** A caller came that is to be told soon whether it can go in time. */
  scheduleSoon(nowMs: number): void;
}

/** An asker whose turn is later asks again after this time: a message that calls it sooner may get lost. */
export const RECHECK_MS: number = LONGEST_ASK_GAP_US / 1_000;
/** The place of an asker that waits for a lease lasts for half a second longer. */
const LONGEST_RECHECK_MS = 1_000;
/** Keys are checked this far apart, if they lose no places by it: some 100 scripts a second. */
const KEY_EVERY_MS = 1;
/** Keys that are due within this time are checked together: a script for each would cost many times as much. */
const TOGETHER_MS = 50;
const GATHER_MS = 10;
/** Callers that are to be told soon are asked for at most this often. */
const HURRY_EVERY_MS = 5;

export function createAskTimes(
  schedule: SoonestGroups,
  times: Pick<ReplyTimes, "leadMs">,
): AskTimes {
  let askedAtMs = 0;
  let askAgainAtMs = 0;
  let turnAtMs = 0;
  /** The call that waits for the turn. */
  let turnOf: Arrival | undefined;
  let silentSinceMs: number | undefined;
  let hasAnswered = false;
  /** A store that did not answer is left alone until then. */
  let storeAtMs = 0;
  /** Since the last request there was news that it is time to ask: what its answer says of that is outdated. */
  let hasNews = false;
  /** When to ask for a caller that is to be told soon; Infinity: there is none. */
  let soonAtMs = Infinity;

  /** Whether a call comes before the one that waits for its turn, and could not be asked for with it. */
  function isNewBefore(turn: Arrival, group: Group): boolean {
    // Of most groups this alone says it, and a process looks at all of them before each request.
    if (Math.max(group.notBeforeMs, group.newestSinceMs) <= askedAtMs) return false;
    const first = firstLacking(group);
    const isNew = Math.max(group.notBeforeMs, first.sinceMs) > askedAtMs;
    return isNew && arrivedBefore(first, turn);
  }

  return {
    nextAtMs(nowMs, areLooks, lastSharedSlotMs) {
      let readyAtMs = Infinity;
      /** When the key of a call lets it pass that comes before the one that waits for its turn. */
      let passesAtMs = Infinity;
      /** When the last slot comes that is held in a group that lacks some. */
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
      const hurriedAtMs = Math.max(soonAtMs, storeAtMs);
      if (readyAtMs === Infinity) return areLooks ? hurriedAtMs : Infinity;
      // While slots are held for a while, newcomers are drawn for together: their slots come after those anyway.
      const isGatheringAll = lastSharedSlotMs > nowMs + GATHER_MS;
      const isGathering = lastSlotAtMs > nowMs + GATHER_MS && schedule.size <= MANY;
      const gatheredAtMs = isGatheringAll || isGathering ? askedAtMs + GATHER_MS : nowMs;
      // A key whose time is far off does not keep this process from noticing a change.
      const recheckAtMs = askedAtMs + RECHECK_MS;
      const keysAtMs = Math.min(readyAtMs - times.leadMs, recheckAtMs);
      const dueAtMs = areLooks ? Math.min(keysAtMs, hurriedAtMs) : keysAtMs;
      const askAtMs = Math.min(askAgainAtMs, hurriedAtMs);
      const turnOrNewsMs = Math.max(askAtMs, gatheredAtMs, dueAtMs);
      const passesTogetherMs = isGatheringAll ? Math.max(passesAtMs, gatheredAtMs) : passesAtMs;
      return Math.min(turnOrNewsMs, Math.max(storeAtMs, passesTogetherMs - times.leadMs));
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
    asked(nowMs) {
      hasNews = false;
      soonAtMs = Infinity;
      askedAtMs = nowMs;
      silentSinceMs ??= nowMs;
    },
    answered({ nowUs, place }, { arrivedMs, offsetMs }, first) {
      turnOf = first;
      storeAtMs = 0;
      silentSinceMs = undefined;
      hasAnswered = true;
      turnAtMs = place.turnUs === 0 ? 0 : place.turnUs / 1_000 + offsetMs;
      askAgainAtMs = hasNews ? 0 : arrivedMs + waitMsOf(place, nowUs) - times.leadMs;
    },
    left({ number }) {
      if (number === turnOf?.number) askAgainAtMs = storeAtMs;
    },
    retryLater() {
      storeAtMs = performance.now() + STORE_RETRY_MS;
      askAgainAtMs = storeAtMs;
    },
    retryNow() {
      hasNews = true;
      askAgainAtMs = 0;
      storeAtMs = 0;
    },
    scheduleSoon(nowMs) {
      soonAtMs = Math.min(soonAtMs, Math.max(nowMs, askedAtMs + HURRY_EVERY_MS));
    },
  };
}

/**
 * When to check a key of which no lease was free, where `deferred` groups are deferred. A message comes when a lease is
 * free, so this check is only for messages that get lost, and to keep its place: thousands of keys need not cost a core.
 */
export function nextKeyCheckMs(nowMs: number, deferred: number): number {
  const inMs = Math.min(Math.max(RECHECK_MS, deferred * KEY_EVERY_MS), LONGEST_RECHECK_MS);
  return Math.ceil((nowMs + inMs) / TOGETHER_MS) * TOGETHER_MS;
}

/** How long the asker in this place waits. */
function waitMsOf({ turnUs, leaseOrder }: Place, nowUs: number): number {
  // It is not known when a lease comes free.
  if (leaseOrder > 0) return RECHECK_MS;
  return turnUs === 0 ? 0 : Math.min((turnUs - nowUs) / 1_000, RECHECK_MS);
}

/** When a reply came, on `performance.now()`. */
export interface Received {
  readonly arrivedMs: number;
  /** How far this process's clock runs ahead of the bucket's. */
  readonly offsetMs: number;
  /** It came so late that its slots may have passed already: see `lateness.ts`. */
  readonly isStale: boolean;
}

/** When replies were written and came, on the bucket's clock and this process's. */
export interface ReplyTimes {
  /** When the bucket was drawn from last, by its own clock; 0: never. */
  readonly drewUs: number;
  /** How long before its time a request is to leave, so that it arrives then and not earlier; in ms. */
  readonly leadMs: number;
  /** A time of `performance.now()` on the bucket's clock, in µs; 0 if that is not known yet. The same one each time. */
  readonly bucketUs: (ms: number) => number;
  /** Takes in a reply that came just now. */
  read(reply: Drawn): Received;
}

/** The answer to a request that comes too early is to ask again: that costs more than being a little late. */
const MARGIN_MS = 0.5;

/** Callers keep their order in all replicas only if their times stay the same; so small corrections are left out. */
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
      // Redis has lost the bucket: earlier samples of its clock mean nothing now.
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

/** The longest delay that a timer of Node takes. */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * One timer that is moved rather than added to. Returns what sets it: it rings at that time of `performance.now()`, and
 * no longer at the one set before; Infinity: never.
 */
export function createAlarm(ring: () => void): (atMs: number) => void {
  let timer: NodeJS.Timeout | undefined;
  let ringsAtMs = Infinity;

  function check(): void {
    timer = undefined;
    const atMs = ringsAtMs;
    ringsAtMs = Infinity;
    // A timer of Node may fire up to 1 ms early.
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
