/**
 * The parts of a budget that other limits do not have: its period, and its amounts in whole millionths of the unit.
 * `lua/lib/limits/budget.lua` has the arithmetic.
 */
import type { Calendar } from "./calendar-days.ts";
import type { BudgetPeriod, BudgetTerms, Limit } from "./rule.ts";

/** Costs and amounts of budgets are whole millionths of the unit. */
export const MILLIONTHS = 1_000_000;
/**
 * The largest amount, in units. The sum of an amount, what is carried over, what is granted and one cost, each of this
 * size in millionths, is still exact as a double.
 */
export const MOST_UNITS = 2_000_000_000;

/** The average length of each period, in µs. Redis rounds with it to count the periods between two starts. */
const PERIOD_US: Readonly<Record<Calendar["per"], number>> = {
  day: 86_400_000_000,
  week: 604_800_000_000,
  month: 2_629_746_000_000,
  quarter: 7_889_238_000_000,
  year: 31_556_952_000_000,
};

export function periodUsOf(per: BudgetPeriod): number {
  return typeof per === "string" ? PERIOD_US[per] : per.days * PERIOD_US.day;
}

/** Returns the number of rolling days of a budget. Returns 0 for a calendar period. */
export function rollingDaysOf({ per }: Pick<BudgetTerms, "per">): number {
  return typeof per === "string" ? 0 : per.days;
}

/** Describes a period for people: `"month"`, `"30 days"`. It never looks like the time of a rate. */
export function describeBudgetPeriod(per: BudgetPeriod): string {
  return typeof per === "string" ? per : `${per.days} days`;
}

/** Formats a period for names: `"month"`, `"30d"`. */
export function formatBudgetPeriod(per: BudgetPeriod): string {
  return typeof per === "string" ? per : `${per.days}d`;
}

/** Reads a period from a name, as `formatBudgetPeriod` writes it. */
export function readBudgetPeriod(text: string): BudgetPeriod {
  return text.endsWith("d") ? { days: Number(text.slice(0, -1)) } : (text as Calendar["per"]);
}

/** Identifies a budget among the budgets of a bucket or of one key, whatever else the policy contains. */
export function budgetName({ unit, budget }: Pick<Limit, "unit" | "budget">): string {
  return `${unit}:${formatBudgetPeriod(budget!.per)}`;
}

/**
 * Converts an amount to whole millionths. Rounds up, so that a budget never counts less than was spent. A difference
 * that is only the rounding of a double, as in 0.07 × 1,000,000, is ignored.
 */
export function toMillionths(amount: number): number {
  const scaled = amount * MILLIONTHS;
  const nearest = Math.round(scaled);
  return Math.abs(scaled - nearest) <= Math.abs(scaled) * 2 ** -51 ? nearest : Math.ceil(scaled);
}

/** Returns how many parts one unit has in the numbers of a limit: 1,000,000 for budgets, 1 for other limits. */
function scaleOf({ budget }: Pick<Limit, "budget">): number {
  return budget === undefined ? 1 : MILLIONTHS;
}

/** Converts an amount of a unit to the numbers of a limit. */
export function amountIn(limit: Pick<Limit, "budget">, units: number): number {
  return limit.budget === undefined ? units : toMillionths(units);
}

/** Converts a number of a limit to units. */
export function unitsIn(limit: Pick<Limit, "budget">, amount: number): number {
  return amount / scaleOf(limit);
}

/**
 * Returns the numbers of a budget that `read` in `lua/lib/limits/budget.lua` reads, after the numbers that all limits
 * have. Returns none for other limits.
 */
export function budgetNumbers({ budget, days = [] }: Limit): readonly number[] {
  if (budget === undefined) return [];
  const { mostCarried = MOST_UNITS, reserveMs, warnAt } = budget;
  const parts = warnAt.map((part) => Math.round(part * MILLIONTHS));
  const head = [toMillionths(mostCarried), reserveMs * 1_000, rollingDaysOf(budget)];
  return [...head, ...days, parts.length, ...parts];
}
