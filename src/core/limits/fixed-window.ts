import { windowAt } from "./calendar-windows.ts";
import { formatPeriod } from "./rate.ts";
import type { Rule } from "./rule.ts";

interface State {
  /** When the newest window in which something was booked began. */
  startUs: number;
  used: number;
}

/** Fixed window: `capacity` units from each beginning on, as providers with a daily reset count. */
export const fixedWindow: Rule<State> = {
  kind: "fixed-window",
  code: 5,
  isRate: true,
  doesShift: true,
  doesRenew: true,
  format: ({ count, periodUs }) => `${count} each ${formatPeriod(periodUs)}`,
  fresh: () => ({ startUs: 0, used: 0 }),
  earliest(limit, state, atUs, cost) {
    // A booking that was given back leaves a window that has not begun yet; before it, all is used.
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
  /** What the old window has used counts in the new one. */
  adapt(from, to, state, nowUs) {
    if (nowUs >= state.startUs + from.periodUs) state.used = 0;
    state.startUs = windowAt(to, nowUs).startUs;
  },
};
