import type { Limit } from "../../../src/core/limits/rule.ts";

/** What was let through at a time, at what cost. */
export interface Passed {
  readonly slotUs: number;
  readonly cost: number;
}

/** The most that any half-open window of this length saw. */
export function mostIn(passed: readonly Passed[], windowUs: number): number {
  const sorted = passed.toSorted((a, b) => a.slotUs - b.slotUs);
  let most = 0;
  let sum = 0;
  let start = 0;
  for (const { slotUs, cost } of sorted) {
    sum += cost;
    while (slotUs - sorted[start]!.slotUs >= windowUs) sum -= sorted[start++]!.cost;
    most = Math.max(most, sum);
  }
  return most;
}

/** How far a limit was passed, by a reckoning that owes nothing to its own arithmetic; 0 or less: never. */
type Excess = (limit: Limit, passed: readonly Passed[]) => number;

/** One for each kind of limit that holds units per time. */
export const EXCESS: Readonly<Record<string, Excess>> = {
  "leaky-bucket": ofBucket,
  "token-bucket": ofBucket,
  "sliding-log": ({ capacity, periodUs }, passed) => mostIn(passed, periodUs) - capacity,
  "sliding-window": ofEstimate,
  "fixed-window": ofWindows,
  budget: ofBudget,
};

function ofBucket({ count, periodUs, capacity }: Limit, passed: readonly Passed[]): number {
  const windows = [1, 1_000, 100_000, 1_000_000, periodUs, 10 * periodUs, Math.ceil(periodUs / 7)];
  const excesses = windows.map(
    (windowUs) =>
      mostIn(passed, windowUs) - (capacity - 1 + Math.ceil((count * windowUs) / periodUs)),
  );
  return Math.max(...excesses);
}

/** Sums by date, in the budget's time zone, with no arithmetic of periods: a month is the first part of a date. */
function ofBudget({ count, budget }: Limit, passed: readonly Passed[]): number {
  const { per, timeZone } = budget!;
  const format = new Intl.DateTimeFormat("en-CA", { timeZone });
  const dates = passed.map(({ slotUs, cost }) => ({ date: format.format(slotUs / 1_000), cost }));
  const days = new Map<string, number>();
  for (const { date, cost } of dates) {
    const name = per === "month" ? date.slice(0, 7) : date;
    days.set(name, (days.get(name) ?? 0) + cost);
  }
  if (typeof per === "string") return Math.max(...days.values()) - count;
  const sums = [...days.keys()].map((last) => {
    const first = new Date(Date.parse(last) - (per.days - 1) * 86_400_000).toISOString();
    const within = [...days].filter(([date]) => date >= first.slice(0, 10) && date <= last);
    return within.reduce((sum, [, cost]) => sum + cost, 0);
  });
  return Math.max(...sums) - count;
}

function ofWindows({ capacity, periodUs, align }: Limit, passed: readonly Passed[]): number {
  const format = new Intl.DateTimeFormat("en-CA", { timeZone: align?.timeZone ?? "UTC" });
  const sums = new Map<number | string, number>();
  for (const { slotUs, cost } of passed) {
    // A day that begins at midnight is a date.
    const name =
      align === undefined ? Math.floor(slotUs / periodUs) : format.format(slotUs / 1_000);
    sums.set(name, (sums.get(name) ?? 0) + cost);
  }
  return Math.max(...sums.values()) - capacity;
}

function ofEstimate({ capacity, periodUs }: Limit, passed: readonly Passed[]): number {
  const used = new Map<number, number>();
  let worst = -Infinity;
  for (const { slotUs, cost } of passed.toSorted((a, b) => a.slotUs - b.slotUs)) {
    const window = Math.floor(slotUs / periodUs);
    used.set(window, (used.get(window) ?? 0) + cost);
    const part = 1 - (slotUs - window * periodUs) / periodUs;
    const estimate = (used.get(window - 1) ?? 0) * part + used.get(window)!;
    worst = Math.max(worst, estimate - capacity);
  }
  // The reckoning is in floating point.
  return worst - 1e-6;
}
