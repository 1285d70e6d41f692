import { formatPeriod } from "./rate.ts";
import type { Rule } from "./rule.ts";

interface Entry {
  readonly atUs: number;
  /** All that was ever booked, this entry included. */
  total: number;
}

interface State {
  total: number;
  entries: Entry[];
}

/** More entries than that are not rewritten when a call turns out cheaper: the estimate stands. */
const MOST_REWRITTEN = 1_000;

/** Sliding log: never more than `capacity` units in any window of one period, exactly. */
export const slidingLog: Rule<State> = {
  kind: "sliding-log",
  code: 3,
  parts: ["log"],
  isRate: true,
  format: ({ count, periodUs }) => `${count} in any ${formatPeriod(periodUs)}`,
  fresh: () => ({ total: 0, entries: [] }),
  /** The call may pass when the entry that would make it one too many has left the window. */
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
    // Now and then, twice as many as count are left, since those before come to count again when later ones are taken back.
    const useless = state.total + 1 - 2 * capacity;
    state.entries = state.entries.filter((entry) => entry.total >= useless);
  },
};

/** Takes back from what was booked at that very time; what was booked later counts from a lower total on. */
function takeBack(state: State, atUs: number, amount: number): void {
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
