import { formatPeriod } from "./rate.ts";
import type { Rule } from "./rule.ts";

interface LoggedCall {
  readonly atUs: number;
  /** The sum of all bookings ever made, up to and including this entry. */
  total: number;
}

interface SlidingLogState {
  total: number;
  entries: LoggedCall[];
}

/** If a call cost less than booked, but more entries than this would have to be rewritten, nothing is given back. */
const MOST_REWRITTEN = 1_000;

/**
 * Sliding log: exactly at most `capacity` units in any window of one period. Twin of `lua/lib/limits/sliding-log.lua`.
 */
export const slidingLog: Rule<SlidingLogState> = {
  kind: "sliding-log",
  code: 3,
  capacityName: "max",
  parts: ["log"],
  isRate: true,
  format: ({ count, periodUs }) => `${count} in any ${formatPeriod(periodUs)}`,
  fresh: () => ({ total: 0, entries: [] }),
  /** The call may pass once the entry that blocks it has left the window. */
  earliest({ capacity, periodUs }, state, atUs, cost) {
    const spare = state.total + cost - capacity;
    const last = state.entries.find((entry) => entry.total >= spare);
    return spare <= 0 || last === undefined ? atUs : Math.max(atUs, last.atUs + periodUs);
  },
  commit({ capacity }, state, atUs, cost) {
    if (cost < 0) return takeBack(state, atUs, -cost);
    if (cost === 0) return;
    if (state.total === 0) state.entries = [];
    const before = state.total;
    state.total += cost;
    state.entries.push({ atUs, total: state.total });
    const each = Math.max(1, Math.floor(capacity / 8));
    if (Math.floor(before / each) === Math.floor(state.total / each)) return;
    // Twice as many entries as needed are kept, because older ones count again when later ones are taken back. Cleaning
    // up rarely is cheaper.
    const useless = state.total + 1 - 2 * capacity;
    state.entries = state.entries.filter((entry) => entry.total >= useless);
  },
};

/** Takes back units that were booked at exactly this time, and lowers the totals of later entries. */
function takeBack(state: SlidingLogState, atUs: number, amount: number): void {
  const first = state.entries.findIndex((entry) => entry.atUs === atUs);
  if (first === -1 || state.entries.length - first > MOST_REWRITTEN) return;
  const floor = state.entries[first - 1]?.total ?? 0;
  const last = state.entries.findLast((entry) => entry.atUs === atUs)!;
  const taken = Math.min(amount, last.total - floor);
  for (const entry of state.entries.slice(first)) {
    entry.total = Math.max(floor, entry.total - taken);
  }
  state.total -= taken;
}
