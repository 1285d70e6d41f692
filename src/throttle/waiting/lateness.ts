import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { CallTerms } from "../costs.ts";

/**
 * Rules for slots that come late:
 *
 * 1. A slot may be used up to {@link mostLateMs} after its time; later, the call draws again. 2. If all slots come too
 * late, the process uses one in each round: {@link createLateSlots}. 3. If a reply takes a horizon longer than usual,
 * none of its slots is used: {@link createStaleCheck}.
 *
 * `pacer.ts` gives back what a late slot took from a limit. The slot of a job follows another rule: see
 * `slot/job-slot.ts`.
 */

/**
 * The guaranteed windows allow slots 10 ms beyond their end: 1 % of a second, 10 % of 100 ms. The network and clocks
 * use 4 ms of it, and each end of a window may include one more call.
 */
const ROOM_MS = 10;
const NETWORK_MS = 4;
/** The usual delay of timers in a busy process. */
const TIMERS_MS = 5;

/**
 * How late a slot may be used, in ms: half an interval, at least the usual delay of timers, at most one horizon. At
 * 100/s both are 5 ms, which leaves 5 ms to the network before a second can contain two calls too many. Above 2,000/s,
 * the work for all waiting calls keeps a process busy for longer, and a second has room for that. Without even spacing
 * there is no interval, so a whole horizon is allowed.
 */
export function mostLateMs({ intervalMs }: Pick<CallTerms, "intervalMs">): number {
  if (intervalMs === undefined) return HORIZON_MS;
  const roomMs = ROOM_MS - NETWORK_MS - 2 * intervalMs;
  return Math.min(Math.max(intervalMs / 2, TIMERS_MS, roomMs), HORIZON_MS);
}

/** Decides which late slots are used. */
export interface LateSlots {
  /** Starts a round of dispatching. */
  beginRound(): void;
  /** True if a slot that is `lateMs` late may be used; up to `mostMs` is usual. */
  mayUse(lateMs: number, mostMs: number): boolean;
}

/** The number of consecutive rounds with only late slots before one late slot is used per round. */
const MOST_LOST_ROUNDS = 3;

/**
 * Normally a call whose slot is too late draws again: a process that was frozen must not start its old slots all at
 * once. But if a process is busy whenever a reply arrives, the next slot is late too, until the bucket's clock adapts
 * to such replies. So after three rounds with only late slots, one late slot is used in each round, at most a horizon
 * late, until a slot is in time.
 */
export function createLateSlots(): LateSlots {
  /** Consecutive rounds with only late slots, including this one. */
  let lostRounds = 0;
  /** True once this round is counted in `lostRounds`. */
  let isCounted = false;
  let hasUsedLate = false;

  return {
    beginRound() {
      isCounted = false;
      hasUsedLate = false;
    },
    mayUse(lateMs, mostMs) {
      if (lateMs <= mostMs) {
        lostRounds = 0;
        isCounted = true;
        return true;
      }
      if (!isCounted) lostRounds += 1;
      isCounted = true;
      if (lostRounds <= MOST_LOST_ROUNDS || hasUsedLate || lateMs > HORIZON_MS) return false;
      hasUsedLate = true;
      return true;
    },
  };
}

/**
 * Returns a function that decides from the duration of each reply, in ms, whether the reply is stale. A stale reply
 * took a horizon longer than usual, in a frozen process or on the network, so its slots may have passed.
 */
export function createStaleCheck(): (tookMs: number) => boolean {
  let usualTookMs = Infinity;

  return (tookMs) => {
    const isStale = tookMs > usualTookMs + HORIZON_MS;
    // A slower network counts as usual from now on.
    usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
    return isStale;
  };
}
