import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { CallTerms } from "../costs.ts";

/**
 * How late is too late: each rule by which a slot that comes late is still used, or is drawn again.
 *
 * 1. A slot may be used up to {@link mostLateMs} after its time.
 * 2. A process in which each slot comes later than that uses one at a time: {@link createLateSlots}.
 * 3. No slot of a reply that came more than a horizon later than usual is used: {@link createStaleCheck}.
 *
 * What a late slot took of a limit goes back by `give-back.ts`. The slot of a job, which its handler's first call may
 * use, is too late after one horizon: see `slot/slot.ts`.
 */

/**
 * 1 % of a second and 10 % of 100 ms are 10 ms both: no window that is promised may see slots of more than that beyond
 * its own. The network and clocks take 4 ms of it, and each end of a window may catch a call.
 */
const ROOM_MS = 10;
const NETWORK_MS = 4;
/** Timers and a busy process are off by this much, at any rate. */
const TIMERS_MS = 5;

/**
 * How late a slot may be used, in ms: half an interval; at least what timers and a busy process are off, at most one
 * horizon. At 100/s both are 5 ms, which leaves as much to the network before a second can see two calls too many.
 * Above 2,000/s the work on all waiting calls keeps a process busy for longer, and a second has room for it.
 * Where nothing is evenly spaced there is no interval, and a whole horizon is allowed.
 */
export function mostLateMs({ intervalMs }: Pick<CallTerms, "intervalMs">): number {
  if (intervalMs === undefined) return HORIZON_MS;
  const roomMs = ROOM_MS - NETWORK_MS - 2 * intervalMs;
  return Math.min(Math.max(intervalMs / 2, TIMERS_MS, roomMs), HORIZON_MS);
}

/** Decides which slots are used although they come late. */
export interface LateSlots {
  /** A round of dispatching begins. */
  beginRound(): void;
  /** Whether a slot may be used that comes `lateMs` late, where up to `mostMs` is usual. */
  mayGo(lateMs: number, mostMs: number): boolean;
}

/** After this many rounds in a row that found only late slots, one of them is used in each. */
const MOST_LOST_ROUNDS = 3;

/**
 * A slot that comes too late is drawn again: a process that was frozen must not fire its old slots in a clump. But where
 * a process is busy whenever a reply comes, the next slot is too late as well, until the bucket's clock takes such
 * replies for usual. So after three rounds that found only late slots, one goes in each round until one is in time:
 * late by a horizon at most, and never two at once.
 */
export function createLateSlots(): LateSlots {
  /** Rounds in a row that found only late slots, this one included. */
  let lostRounds = 0;
  /** Whether `lostRounds` is final for this round. */
  let isCounted = false;
  let hasLateGone = false;

  return {
    beginRound() {
      isCounted = false;
      hasLateGone = false;
    },
    mayGo(lateMs, mostMs) {
      if (lateMs <= mostMs) {
        lostRounds = 0;
        isCounted = true;
        return true;
      }
      if (!isCounted) lostRounds += 1;
      isCounted = true;
      if (lostRounds <= MOST_LOST_ROUNDS || hasLateGone || lateMs > HORIZON_MS) return false;
      hasLateGone = true;
      return true;
    },
  };
}

/**
 * Returns a function that takes how long each reply took, in ms, and says whether the reply is stale: it waited in a
 * process that was frozen, or on the wire, for a horizon longer than usual. Its slots may have passed already.
 */
export function createStaleCheck(): (tookMs: number) => boolean {
  let usualTookMs = Infinity;

  return (tookMs) => {
    const isStale = tookMs > usualTookMs + HORIZON_MS;
    // A network that has become slower is the usual one from now on.
    usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
    return isStale;
  };
}
