import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { CallTerms } from "../costs.ts";

/**
 * Rules for late slots:
 *
 * 1. A slot may be used until {@link mostLateMs} after its time. Later, the call draws again.
 * 2. If all slots come too late, the process uses one late slot per round: {@link createLateSlots}.
 * 3. If a reply takes a horizon longer than usual, none of its slots is used:
 *    {@link createStaleCheck}.
 *
 * `pacer.ts` gives back what a late slot took from a limit. The slot of a job follows another rule:
 * see `slot/job-slot.ts`.
 */

/**
 * How far calls may move out of a guaranteed window, in ms: 10 ms is 1 % of a second and 10 % of
 * 100 ms. The network and clocks use 4 ms of that, and each end of a window may include one more
 * call.
 */
const ROOM_MS = 10;
const NETWORK_MS = 4;
/** The usual delay of timers in a busy process, in ms. */
const TIMERS_MS = 5;

/**
 * Returns how late a slot may be used, in ms: half an interval, but at least the usual delay of
 * timers and at most one horizon. At 100/s, half an interval and the usual delay are both 5 ms.
 * That leaves 5 ms for the network before a second can contain two calls too many. Above 2,000/s,
 * the work for all waiting calls keeps a process busy for longer, and a second has room for that.
 * Without even spacing there is no interval, so a whole horizon is allowed.
 */
export function mostLateMs({ intervalMs }: Pick<CallTerms, "intervalMs">): number {
  if (intervalMs === undefined) return HORIZON_MS;
  const roomMs = ROOM_MS - NETWORK_MS - 2 * intervalMs;
  return Math.min(Math.max(intervalMs / 2, TIMERS_MS, roomMs), HORIZON_MS);
}

/** Decides which late slots are used. */
export interface LateSlots {
  /** Call this at the start of each round of dispatching. */
  beginRound(): void;
  /**
   * Returns true if a slot that is `lateMs` late may be used. A delay up to `mostMs` is always
   * allowed.
   */
  mayUse(lateMs: number, mostMs: number): boolean;
}

/**
 * The number of consecutive rounds with only late slots after which one late slot per round is
 * used.
 */
const MOST_LOST_ROUNDS = 3;

/**
 * Normally, a call whose slot is too late draws again, because a frozen process must not start all
 * its old slots at once. But if a process is busy each time a reply arrives, the next slot is late
 * too, until the bucket's clock adapts to such replies. Therefore, after three rounds with only
 * late slots, one late slot per round is used, at most a horizon late. This ends with the first
 * slot that is in time.
 */
export function createLateSlots(): LateSlots {
  /** The number of consecutive rounds with only late slots, including this round. */
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
 * Returns a function that decides whether a reply is stale, from the time that the reply took, in
 * ms. A stale reply took a horizon longer than usual, in a frozen process or on the network. Its
 * slots may have passed.
 */
export function createStaleCheck(): (tookMs: number) => boolean {
  let usualTookMs = Infinity;

  return (tookMs) => {
    const isStale = tookMs > usualTookMs + HORIZON_MS;
    // After a stale reply, its duration counts as usual, because the network may have become
    // slower.
    usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
    return isStale;
  };
}
