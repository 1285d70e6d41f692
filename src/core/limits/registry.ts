import { CostTooLargeError } from "../errors.ts";
import { describeBudgetPeriod, unitsIn } from "./budget.ts";
import { windowAt } from "./calendar-windows.ts";
import { formatPeriod, formatRate } from "./rate.ts";
import type { Limit, LimitStatus, Rule } from "./rule.ts";

/** All kinds of limits. The arithmetic of each kind is in `lua/lib/limits/<kind>.lua`. */
export const RULES: ReadonlyMap<string, Rule> = new Map(
  (
    [
      {
        kind: "leaky-bucket",
        code: 1,
        capacityName: "burst",
        isRate: true,
        doesDrain: true,
        doesSpace: true,
        format: (limit) =>
          limit.capacity === 1
            ? formatRate(limit)
            : `${formatRate(limit)} with a burst of ${limit.capacity}`,
        plainStatus: statusAtLevel,
      },
      {
        kind: "token-bucket",
        code: 2,
        capacityName: "capacity",
        isRate: true,
        doesDrain: true,
        format: (limit) => `up to ${limit.capacity}, refilled at ${formatRate(limit)}`,
        plainStatus: statusAtLevel,
      },
      {
        kind: "sliding-log",
        code: 3,
        capacityName: "max",
        parts: ["log"],
        isRate: true,
        format: ({ count, periodUs }) => `${count} in any ${formatPeriod(periodUs)}`,
      },
      {
        kind: "sliding-window",
        code: 4,
        capacityName: "max",
        isRate: true,
        format: ({ count, periodUs }) => `${count} in any ${formatPeriod(periodUs)}`,
      },
      {
        kind: "fixed-window",
        code: 5,
        capacityName: "max",
        isRate: true,
        doesRenew: true,
        format: ({ count, periodUs }) => `${count} each ${formatPeriod(periodUs)}`,
        plainStatus: statusOfWindow,
      },
      {
        kind: "concurrency",
        code: 6,
        parts: ["leases", "waiters"],
        capacityName: "max",
        isKept: true,
        isRate: false,
        format: ({ count }) => `${count} at once`,
      },
      {
        kind: "adaptive-concurrency",
        code: 8,
        parts: ["leases", "waiters", "adaptive"],
        capacityName: "max",
        isKept: true,
        isRate: false,
        format: ({ count, adaptive }) => `${adaptive!.min} to ${count} at once`,
      },
      {
        kind: "budget",
        code: 7,
        parts: ["budget", "reserved", "budgets", "warnings"],
        capacityName: "amount",
        isRate: true,
        doesRenew: true,
        isBudget: true,
        format: (limit) =>
          `${unitsIn(limit, limit.count)}/${describeBudgetPeriod(limit.budget!.per)}`,
      },
    ] satisfies readonly Rule[]
  ).map((rule) => [rule.kind, rule]),
);

/** Computes the status of a draining limit from its level in cost × period. */
function statusAtLevel(
  { count, periodUs, capacity }: Limit,
  level: number,
  cost: number,
  nowUs: number,
): LimitStatus {
  const excess = level + (cost - capacity) * periodUs;
  return {
    remaining: Math.max(0, capacity - Math.ceil(level / periodUs)),
    resetUs: nowUs + Math.ceil(level / count),
    nextUs: excess > 0 ? nowUs + Math.ceil(excess / count) : nowUs,
  };
}

function statusOfWindow(limit: Limit, used: number, cost: number, nowUs: number): LimitStatus {
  const { endUs } = windowAt(limit, nowUs);
  return {
    remaining: Math.max(0, limit.capacity - used),
    resetUs: used > 0 ? endUs : nowUs,
    nextUs: used + cost <= limit.capacity ? nowUs : endUs,
  };
}

/** @throws {@link TypeError} for an unknown kind. Policies are checked earlier, so this is a bug. */
export function ruleOf(kind: string): Rule {
  const rule = RULES.get(kind);
  if (rule === undefined) throw new TypeError(`no limit is called "${kind}"`);
  return rule;
}

/** True if limits of this kind allow a number of units per time. False for concurrency limits and budgets. */
export function hasPace(kind: string): boolean {
  const { isRate, isBudget = false } = ruleOf(kind);
  return isRate && !isBudget;
}

/** True if each call has a lease of this limit while the call runs. */
export function isLeased({ kind }: Limit): boolean {
  return !ruleOf(kind).isRate;
}

/** Returns the number of limits before this one in the list whose Redis structures outlive the policy. */
export function countKeptBefore(limits: readonly Limit[], index: number): number {
  return limits.slice(0, index).filter(({ kind }) => ruleOf(kind).isKept === true).length;
}

/** Returns the numbers of the adaptive terms, as `rule.read` in `lua/lib/limits/adaptive/limit.lua` reads them. */
export function adaptiveNumbers({ adaptive }: Limit): number[] {
  if (adaptive === undefined) return [];
  const { min, initial, tolerance, shadow } = adaptive;
  return [min, initial, Math.round(tolerance * 1_000), Number(shadow === true)];
}

/**
 * Returns the time that a call with these costs takes up, in µs. The limit of which the call uses the largest part
 * decides.
 */
export function stepOf(limits: readonly Limit[], costs: readonly number[]): number {
  let stepUs = 0;
  for (const [index, { kind, count, periodUs }] of limits.entries()) {
    if (hasPace(kind)) stepUs = Math.max(stepUs, (costs[index]! * periodUs) / count);
  }
  return stepUs;
}

/** Formats a limit for errors, headers and `peek`: `"100/s"`, `"90000/min tokens"`, `"25 at once"`. */
export function formatLimit(limit: Limit): string {
  const unit = limit.unit === "calls" ? "" : ` ${limit.unit}`;
  return `${limit.label ?? ruleOf(limit.kind).format(limit)}${unit}`;
}

/**
 * Creates the error for a call that costs more than this limit can ever allow at once. `suffix` says whose limit it is,
 * if it is not that of the bucket: `" (member east)"`.
 */
export function costTooLarge(
  bucket: string,
  cost: number,
  limit: Limit,
  suffix: string = "",
): CostTooLargeError {
  const { unit, capacity } = limit;
  return new CostTooLargeError({
    bucket,
    cost: unitsIn(limit, cost),
    unit,
    maxCost: unitsIn(limit, capacity),
    limitedBy: formatLimit(limit) + suffix,
  });
}

/** The highest level of a draining limit that a double represents exactly, with a wide margin. */
const MAX_LEVEL = 2 ** 51;

/**
 * Returns the part of a limit that one of several processes may use alone while Redis is down. `part` is the share of
 * that process, and the result is rounded down. Returns undefined if no call may pass.
 *
 * A draining limit keeps its count and gets a longer period. A window gets a smaller count. If the count would be below
 * one call, the window becomes longer and allows one call.
 */
export function partOfLimit(given: Limit, part: number): Limit | undefined {
  const limit = withoutDeclaredRate(withFixedCount(given));
  const { kind, align } = limit;
  const { isRate, isBudget = false, doesDrain = false } = ruleOf(kind);
  // During an outage, no process knows what the others spend.
  if (isBudget) return undefined;
  if (doesDrain)
    return checked(slower(limit, part, Math.max(1, Math.floor(limit.capacity * part))));
  const count = Math.floor(limit.count * part);
  if (count >= 1) return { ...limit, count, capacity: count };
  // A concurrency limit and a calendar day cannot get a longer period.
  if (!isRate || align !== undefined) return undefined;
  return checked(slower({ ...limit, count: 1 }, limit.count * part, 1));
}

/** During an outage, no process knows the latencies of the others, so the initial number of calls is shared. */
function withFixedCount(limit: Limit): Limit {
  if (limit.adaptive === undefined) return limit;
  const { adaptive, ...own } = limit;
  return { ...own, kind: "concurrency", count: adaptive.initial, capacity: adaptive.initial };
}

/** Removes the label with the declared rate, so that a part of a limit shows its actual numbers. */
function withoutDeclaredRate(limit: Limit): Limit {
  if (limit.label?.includes("/") !== true) return limit;
  const { label: _label, ...own } = limit;
  return own;
}

function slower(limit: Limit, part: number, capacity: number): Limit {
  return { ...limit, periodUs: Math.ceil(limit.periodUs / part), capacity };
}

/**
 * Returns undefined for a limit that is so slow that its numbers are no longer exact. Such a limit would allow no
 * calls.
 */
function checked(limit: Limit): Limit | undefined {
  const isWhole = Number.isSafeInteger(limit.periodUs);
  return isWhole && limit.capacity * limit.periodUs <= MAX_LEVEL ? limit : undefined;
}
