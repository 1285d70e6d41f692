import { LOOK_IN_US } from "../../core/draw/turns.ts";
import type { Drawn, Place } from "../../core/store.ts";
import { STORE_RETRY_MS } from "../outage/retries.ts";
import { createBucketClock, createRecentMinimum } from "../slot/bucket-clock.ts";
import { readiness } from "./draw-request.ts";
import type { SoonestGroups } from "./group-schedule.ts";
import { createStaleCheck } from "./lateness.ts";

/** When the store is to be asked for slots; all times are those of `performance.now()`. */
export interface AskTimes {
  /** When to ask next; Infinity if there is nobody to ask for. */
  nextAtMs(nowMs: number): number;
  /** When the turn of those who wait comes, as far as the last reply told; 0: they have none. */
  readonly turnAtMs: number;
  /** How long the store has owed an answer, in ms. */
  readonly silentMs: number;
  /** Whether it has ever answered. */
  readonly hasAnswered: boolean;
  /** The store is asked just now. */
  asked(nowMs: number): void;
  /** It has answered: the reply tells when to ask again. */
  answered(reply: Drawn, received: Received): void;
  /** It has not answered: it is left alone for a while. */
  retryLater(): void;
  /** Whatever the last reply told, it may be asked again at once. */
  retryNow(): void;
}

/** An asker that was told to come later looks in so often: a message that calls it sooner may get lost. */
const LOOK_IN_MS: number = LOOK_IN_US / 1_000;
/** A place of one that waits for a lease lasts for half a second longer. */
const MOST_LOOK_IN_MS = 1_000;
/** Look-ins for keys are so far apart, if that loses them no places: some 100 scripts a second. */
const KEY_EVERY_MS = 1;
/** Those that are due within so many ms are looked in for together: a script for each would cost many times as much. */
const TOGETHER_MS = 50;
const GATHER_MS = 10;

export function createAskTimes(
  schedule: SoonestGroups,
  times: Pick<ReplyTimes, "leadMs">,
): AskTimes {
  let askedAtMs = 0;
  let askAgainAtMs = 0;
  let turnAtMs = 0;
  let silentSinceMs: number | undefined;
  let hasAnswered = false;
  /** Somebody has said since the last question that it is time to ask: what the answer to that says of it is outdated. */
  let hasNews = false;

  return {
    nextAtMs(nowMs) {
      const { leadMs } = times;
      const { readyAtMs, lastAtMs, isMany } = readiness(schedule);
      if (readyAtMs === Infinity) return Infinity;
      // While there are slots for a while, newcomers are drawn for together: theirs come behind those anyway.
      const isGathering = lastAtMs > nowMs + GATHER_MS && !isMany;
      const gatheredAtMs = isGathering ? askedAtMs + GATHER_MS : nowMs;
      // A key that is far away does not keep this process from hearing of a change.
      const lookInAtMs = askedAtMs + LOOK_IN_MS;
      return Math.max(askAgainAtMs, gatheredAtMs, Math.min(readyAtMs - leadMs, lookInAtMs));
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
      askedAtMs = nowMs;
      silentSinceMs ??= nowMs;
    },
    answered({ nowUs, place }, { arrivedMs, offsetMs }) {
      silentSinceMs = undefined;
      hasAnswered = true;
      turnAtMs = place.turnUs === 0 ? 0 : place.turnUs / 1_000 + offsetMs;
      askAgainAtMs = hasNews ? 0 : arrivedMs + waitMsOf(place, nowUs) - times.leadMs;
    },
    retryLater() {
      askAgainAtMs = performance.now() + STORE_RETRY_MS;
    },
    retryNow() {
      hasNews = true;
      askAgainAtMs = 0;
    },
  };
}

/**
 * When a key is looked in for whose lease was not free now, where so many are held back. News of a lease comes by itself,
 * so to look in is only for messages that get lost, and to keep its place: thousands of keys need not cost a core.
 */
export function keyLookInAtMs(nowMs: number, deferred: number): number {
  const inMs = Math.min(Math.max(LOOK_IN_MS, deferred * KEY_EVERY_MS), MOST_LOOK_IN_MS);
  return Math.ceil((nowMs + inMs) / TOGETHER_MS) * TOGETHER_MS;
}

/** How long the asker in this place waits. */
function waitMsOf({ turnUs, sinceUs }: Place, nowUs: number): number {
  // Nobody can tell when a lease comes free.
  if (sinceUs > 0) return LOOK_IN_MS;
  return turnUs === 0 ? 0 : Math.min((turnUs - nowUs) / 1_000, LOOK_IN_MS);
}

/** When a reply came, on `performance.now()`. */
export interface Received {
  readonly arrivedMs: number;
  /** How far this process's clock runs ahead of the bucket's. */
  readonly offsetMs: number;
  /** It lay about, in a process that stood still or on the wire: its slots may have passed already. */
  readonly isStale: boolean;
}

/** When replies were written and came, on the bucket's clock and this process's. */
export interface ReplyTimes {
  /** When the bucket was drawn from last, by its own clock; 0: never. */
  readonly drewUs: number;
  /** How much before its time a question is to leave, for it to be there then and not before; in ms. */
  readonly leadMs: number;
  /** Takes in a reply that came just now. */
  read(reply: Drawn): Received;
}

/** A question that is there too soon is told to come again: that costs more than one that is a little late. */
const MARGIN_MS = 0.5;

export function createReplyTimes(): ReplyTimes {
  const clock = createBucketClock();
  const tookOfLate = createRecentMinimum();
  const checkStale = createStaleCheck();
  let leadMs = 0;
  let drewUs = 0;

  return {
    get drewUs() {
      return drewUs;
    },
    get leadMs() {
      return leadMs;
    },
    read({ nowUs, sentAtMs }) {
      const arrivedMs = performance.now();
      const tookMs = arrivedMs - sentAtMs;
      // Redis has lost the bucket: what was seen of its clock says nothing any more.
      if (nowUs < drewUs) clock.reset();
      drewUs = nowUs;
      const isStale = checkStale(tookMs);
      if (!isStale) leadMs = Math.max(0, tookOfLate.sample(arrivedMs, tookMs) - MARGIN_MS);
      return { arrivedMs, offsetMs: clock.sample(arrivedMs, nowUs), isStale };
    },
  };
}

/** The longest delay that a timer of Node takes. */
const LONGEST_MS = 2 ** 31 - 1;

export interface Alarm {
  /** Rings at this time of `performance.now()`, and no longer at an earlier one; Infinity: never. */
  set(atMs: number): void;
}

/** One timer that is moved rather than added to. */
export function createAlarm(ring: () => void): Alarm {
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

  return { set };
}
