import { windowAt } from "./calendar-windows.ts";
import { formatPeriod } from "./rate.ts";
import type { Rule } from "./rule.ts";

interface FixedWindowState {
  /** The start of the newest window with a booking. */
  startUs: number;
  used: number;
}

/**
 * Fixed window: `capacity` units in each window, like providers whose quota resets daily. Twin of
 * `lua/lib/limits/fixed-window.lua`.
 */
export const fixedWindow: Rule<FixedWindowState> = {
  kind: "fixed-window",
  code: 5,
  capacityName: "max",
  isRate: true,
  doesRenew: true,
  format: ({ count, periodUs }) => `${count} each ${formatPeriod(periodUs)}`,
  fresh: () => ({ startUs: 0, used: 0 }),
  earliest(limit, state, atUs, cost) {
    // After a booking was given back, the newest window may be in the future. No call may pass before it begins.
    const fromUs = Math.max(atUs, state.startUs);
    const { startUs, endUs } = windowAt(limit, fromUs);
    const used = startUs > state.startUs ? 0 : state.used;
    return used + cost <= limit.capacity ? fromUs : endUs;
  },
  commit(limit, state, atUs, cost) {
    const { startUs } = windowAt(limit, cost > 0 ? Math.max(atUs, state.startUs) : atUs);
    if (startUs < state.startUs) return;
    const used = startUs > state.startUs ? 0 : state.used;
    state.startUs = startUs;
    state.used = Math.max(0, used + cost);
  },
  /** Usage of the old window also counts in the new one. */
  adapt(from, to, state, nowUs) {
    if (nowUs >= state.startUs + from.periodUs) state.used = 0;
    state.startUs = windowAt(to, nowUs).startUs;
  },
  plainStatus(limit, used, cost, nowUs) {
    const { endUs } = windowAt(limit, nowUs);
    return {
      remaining: Math.max(0, limit.capacity - used),
      resetUs: used > 0 ? endUs : nowUs,
      nextUs: used + cost <= limit.capacity ? nowUs : endUs,
    };
  },
};
