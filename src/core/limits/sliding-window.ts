import { formatPeriod } from "./rate.ts";
import type { Limit, Rule } from "./rule.ts";

interface SlidingWindowState {
  /** The start of the newest window with a booking. */
  startUs: number;
  used: number;
  /** The usage in the window before it. */
  usedBefore: number;
}

/**
 * Sliding window by two counters (Cloudflare, 2017). The previous window counts in proportion to the part that the
 * sliding window still covers. This is an estimate: calls at the end of a window may exceed `capacity`. Twin of
 * `lua/lib/limits/sliding-window.lua`.
 */
export const slidingWindow: Rule<SlidingWindowState> = {
  kind: "sliding-window",
  code: 4,
  capacityName: "max",
  isRate: true,
  format: ({ count, periodUs }) => `${count} in any ${formatPeriod(periodUs)}`,
  fresh: () => ({ startUs: 0, used: 0, usedBefore: 0 }),
  earliest({ capacity, periodUs }, state, atUs, cost) {
    const { startUs, used, usedBefore } = rolled(periodUs, state, atUs);
    const here = fits(periodUs, usedBefore, capacity - used - cost);
    if (here < periodUs) return Math.max(atUs, startUs + here);
    return Math.max(atUs, startUs + periodUs + fits(periodUs, used, capacity - cost));
  },
  commit({ periodUs }, state, atUs, cost) {
    if (cost < 0 && atUs < state.startUs) {
      const isBefore = atUs >= state.startUs - periodUs;
      if (isBefore) state.usedBefore = Math.max(0, state.usedBefore + cost);
      return;
    }
    Object.assign(state, rolled(periodUs, state, atUs));
    state.used = Math.max(0, state.used + cost);
  },
  adapt: forgetOtherPeriods,
};

/**
 * How long after the start of a window the previous window's part has shrunk to `room`. One period if it never does.
 */
function fits(periodUs: number, usedBefore: number, room: number): number {
  if (room < 0) return periodUs;
  if (usedBefore <= room) return 0;
  return Math.ceil(periodUs - (room * periodUs) / usedBefore);
}

function rolled(periodUs: number, state: SlidingWindowState, atUs: number): SlidingWindowState {
  const startUs = Math.floor(atUs / periodUs) * periodUs;
  if (startUs <= state.startUs) return state;
  const usedBefore = startUs === state.startUs + periodUs ? state.used : 0;
  return { startUs, used: 0, usedBefore };
}

/** Counters do not store when units were used. With another window length, all units count as used now. */
function forgetOtherPeriods(
  from: Limit,
  to: Limit,
  state: SlidingWindowState,
  nowUs: number,
): void {
  if (from.periodUs === to.periodUs) return;
  const { used, usedBefore } = rolled(from.periodUs, state, nowUs);
  state.startUs = Math.floor(nowUs / to.periodUs) * to.periodUs;
  state.used = Math.min(used + usedBefore, to.capacity);
  state.usedBefore = 0;
}
