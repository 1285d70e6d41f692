import { CostTooLargeError } from "../errors.ts";
import { concurrency } from "./concurrency.ts";
import { fixedWindow } from "./fixed-window.ts";
import { leakyBucket } from "./leaky-bucket.ts";
import type { Limit, Rule } from "./rule.ts";
import { slidingLog } from "./sliding-log.ts";
import { slidingWindow } from "./sliding-window.ts";
import { tokenBucket } from "./token-bucket.ts";

/** Only a rule knows the type of its state. */
type AnyRule = Rule<unknown>;

/** Every kind of limit. `lua/lib/limits/` has a twin of each, with the same name. */
export const RULES: ReadonlyMap<string, AnyRule> = new Map(
  [leakyBucket, tokenBucket, slidingLog, slidingWindow, fixedWindow, concurrency].map((rule) => [
    rule.kind,
    rule as AnyRule,
  ]),
);

/** @throws {@link TypeError} for an unknown kind. Policies are checked earlier. */
export function ruleOf(kind: string): AnyRule {
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
