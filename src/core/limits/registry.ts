import { CostTooLargeError } from "../errors.ts";
import { windowAt } from "./calendar-windows.ts";
import { formatPeriod, formatRate } from "./rate.ts";
import type { Limit, LimitStatus, Rule } from "./rule.ts";

/** Every kind of limit. Its arithmetic is in `lua/lib/limits/<kind>.lua`. */
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

/** @throws {@link TypeError} for an unknown kind. Policies are checked earlier. */
export function ruleOf(kind: string): Rule {
  const rule = RULES.get(kind);
  if (rule === undefined) throw new TypeError(`no limit is called "${kind}"`);
  return rule;
}

/** True if calls hold a lease of this limit while they run. */
export function isLeased({ kind }: Limit): boolean {
  return !ruleOf(kind).isRate;
}

/** The number of limits of the same kind in front of this one. */
export function countSameKindBefore(limits: readonly Limit[], index: number): number {
  const { kind } = limits[index]!;
  return limits.slice(0, index).filter((limit) => limit.kind === kind).length;
}

/** The time that a call with these costs takes up, in µs: by the limit of which it uses the largest part. */
export function stepOf(limits: readonly Limit[], costs: readonly number[]): number {
  let stepUs = 0;
  for (const [index, { kind, count, periodUs }] of limits.entries()) {
    if (ruleOf(kind).isRate) stepUs = Math.max(stepUs, (costs[index]! * periodUs) / count);
  }
  return stepUs;
}

/** The name of a limit in errors, headers and `peek`: `"100/s"`, `"90000/min tokens"`, `"25 at once"`. */
export function formatLimit(limit: Limit): string {
  const unit = limit.unit === "calls" ? "" : ` ${limit.unit}`;
  return `${limit.label ?? ruleOf(limit.kind).format(limit)}${unit}`;
}

/** Creates the error for a call that costs more than this limit can ever allow at once. */
export function costTooLarge(bucket: string, cost: number, limit: Limit): CostTooLargeError {
  const { unit, capacity: maxCost } = limit;
  return new CostTooLargeError({ bucket, cost, unit, maxCost, limitedBy: formatLimit(limit) });
}

/** The highest level that fits into whole numbers with a wide margin. */
const MAX_LEVEL = 2 ** 51;

/**
 * The part of a limit that one of several processes may use alone, rounded down. Undefined if nothing may pass.
 *
 * Draining limits keep their count and get a longer period. Windows get a smaller count. A window of less than one call
 * becomes a longer window with one call.
 */
export function partOfLimit(given: Limit, part: number): Limit | undefined {
  const limit = withoutDeclaredRate(given);
  const { kind, align } = limit;
  const { isRate, doesDrain = false } = ruleOf(kind);
  if (doesDrain)
    return checked(slower(limit, part, Math.max(1, Math.floor(limit.capacity * part))));
  const count = Math.floor(limit.count * part);
  if (count >= 1) return { ...limit, count, capacity: count };
  // Running calls and calendar days cannot be stretched.
  if (!isRate || align !== undefined) return undefined;
  return checked(slower({ ...limit, count: 1 }, limit.count * part, 1));
}

/** A part of a limit shows its actual numbers, not the declared rate. */
function withoutDeclaredRate(limit: Limit): Limit {
  if (limit.label?.includes("/") !== true) return limit;
  const { label: _label, ...own } = limit;
  return own;
}

function slower(limit: Limit, part: number, capacity: number): Limit {
  return { ...limit, periodUs: Math.ceil(limit.periodUs / part), capacity };
}

/** Undefined for a limit so slow that its numbers no longer fit. It would let nothing pass. */
function checked(limit: Limit): Limit | undefined {
  const isWhole = Number.isSafeInteger(limit.periodUs);
  return isWhole && limit.capacity * limit.periodUs <= MAX_LEVEL ? limit : undefined;
}
