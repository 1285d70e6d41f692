import { formatPeriod } from "./rate.ts";
import type { Limit, Rule } from "./rule.ts";

interface State {
  /** When the newest window in which something was booked began. */
  startUs: number;
  used: number;
  /** What was used in the window before it. */
  usedBefore: number;
}

/**
 * Sliding window by two counters (Cloudflare, 2017): the window before counts
 * by the part of it that the sliding window still covers. An estimate: calls
 * at the end of a window may let more than `capacity` through.
 * Twin of `lua/lib/limits/sliding-window.lua`.
 */
export const slidingWindow: Rule<State> = {
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

/** How far into a window the part of the one before has shrunk to `room`; one period if it never does. */
function fits(periodUs: number, usedBefore: number, room: number): number {
  if (room < 0) return periodUs;
  if (usedBefore <= room) return 0;
  return Math.ceil(periodUs - (room * periodUs) / usedBefore);
}

function rolled(periodUs: number, state: State, atUs: number): State {
  const startUs = Math.floor(atUs / periodUs) * periodUs;
  if (startUs <= state.startUs) return state;
  const usedBefore = startUs === state.startUs + periodUs ? state.used : 0;
  return { startUs, used: 0, usedBefore };
}

/** Counters do not say when in a window units were used, so for another length all of them count as used now. */
function forgetOtherPeriods(from: Limit, to: Limit, state: State, nowUs: number): void {
  if (from.periodUs === to.periodUs) return;
  const { used, usedBefore } = rolled(from.periodUs, state, nowUs);
  state.startUs = Math.floor(nowUs / to.periodUs) * to.periodUs;
  state.used = Math.min(used + usedBefore, to.capacity);
  state.usedBefore = 0;
}
