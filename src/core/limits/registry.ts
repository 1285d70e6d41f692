import { CostTooLargeError } from "../errors.ts";
import { concurrency } from "./concurrency.ts";
import { fixedWindow } from "./fixed-window.ts";
import { leakyBucket } from "./leaky-bucket.ts";
import type { Limit, Rule } from "./rule.ts";
import { slidingLog } from "./sliding-log.ts";
import { slidingWindow } from "./sliding-window.ts";
import { tokenBucket } from "./token-bucket.ts";

/** Only a rule knows the form of its state. */
type AnyRule = Rule<unknown>;

/** Every kind of limit. `lua/lib/limits/` has a twin of each, by the same name. */
export const RULES: ReadonlyMap<string, AnyRule> = new Map(
  [leakyBucket, tokenBucket, slidingLog, slidingWindow, fixedWindow, concurrency].map((rule) => [
    rule.kind,
    rule as AnyRule,
  ]),
);

/** @throws {@link TypeError} for an unknown kind; policies are checked before. */
export function ruleOf(kind: string): AnyRule {
  const rule = RULES.get(kind);
  if (rule === undefined) throw new TypeError(`no limit is called "${kind}"`);
  return rule;
}

/** Whether calls hold a lease of this limit while they run. */
export function isLeased({ kind }: Limit): boolean {
  return !ruleOf(kind).isRate;
}

/** How many limits of the same kind come before this one. */
export function countSameKindBefore(limits: readonly Limit[], index: number): number {
  const { kind } = limits[index]!;
  return limits.slice(0, index).filter((limit) => limit.kind === kind).length;
}

/** A limit as errors, headers and `peek` write it: `"100/s"`, `"90000/min tokens"`, `"25 at once"`. */
export function formatLimit(limit: Limit): string {
  const unit = limit.unit === "calls" ? "" : ` ${limit.unit}`;
  return `${limit.label ?? ruleOf(limit.kind).format(limit)}${unit}`;
}

/** The error for a call that costs more than this limit could ever give at once. */
export function costTooLarge(bucket: string, cost: number, limit: Limit): CostTooLargeError {
  const { unit, capacity: maxCost } = limit;
  return new CostTooLargeError({ bucket, cost, unit, maxCost, limitedBy: formatLimit(limit) });
}

/** The highest level that whole numbers hold with room to spare. */
const MAX_LEVEL = 2 ** 51;

/**
 * The part of a limit that one process of several may use alone, rounded down; undefined if nothing
 * may pass. Limits that drain keep their count and get a longer period. Windows get a smaller count;
 * a window of less than one call becomes a longer one with one call.
 */
export function partOfLimit(given: Limit, part: number): Limit | undefined {
  const limit = withoutDeclaredRate(given);
  const { kind, align } = limit;
  const { isRate, doesDrain = false } = ruleOf(kind);
  if (doesDrain)
    return checked(slower(limit, part, Math.max(1, Math.floor(limit.capacity * part))));
  const count = Math.floor(limit.count * part);
  if (count >= 1) return { ...limit, count, capacity: count };
  // Neither a running call nor a calendar day can be stretched.
  if (!isRate || align !== undefined) return undefined;
  return checked(slower({ ...limit, count: 1 }, limit.count * part, 1));
}

/** A part of a limit is not what was declared: it shows its own numbers. */
function withoutDeclaredRate(limit: Limit): Limit {
  if (limit.label?.includes("/") !== true) return limit;
  const { label: _label, ...own } = limit;
  return own;
}

function slower(limit: Limit, part: number, capacity: number): Limit {
  return { ...limit, periodUs: Math.ceil(limit.periodUs / part), capacity };
}

/** Undefined for a limit so slow that its numbers no longer fit; it would let nothing pass anyway. */
function checked(limit: Limit): Limit | undefined {
  const isWhole = Number.isSafeInteger(limit.periodUs);
  return isWhole && limit.capacity * limit.periodUs <= MAX_LEVEL ? limit : undefined;
}
