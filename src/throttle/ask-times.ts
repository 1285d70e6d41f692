import { LOOK_IN_US } from "../core/draw/turns.ts";
import type { Drawn, Place } from "../core/store.ts";
import { STORE_RETRY_MS } from "./outage/store-retries.ts";
import type { Received, ReplyTimes } from "./reply-times.ts";
import type { SoonestGroups } from "./waiting-groups.ts";
import { readiness } from "./wishes.ts";

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
  waitingIn: SoonestGroups,
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
      const { readyAtMs, lastAtMs, isMany } = readiness(waitingIn);
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
export function keyLookInAtMs(nowMs: number, heldBack: number): number {
  const inMs = Math.min(Math.max(LOOK_IN_MS, heldBack * KEY_EVERY_MS), MOST_LOOK_IN_MS);
  return Math.ceil((nowMs + inMs) / TOGETHER_MS) * TOGETHER_MS;
}

/** How long the asker in this place waits. */
function waitMsOf({ turnUs, sinceUs }: Place, nowUs: number): number {
  // Nobody can tell when a lease comes free.
  if (sinceUs > 0) return LOOK_IN_MS;
  return turnUs === 0 ? 0 : Math.min((turnUs - nowUs) / 1_000, LOOK_IN_MS);
}
