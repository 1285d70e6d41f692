import { isThenable } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { costTooLarge, ruleOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";

/** How much of each unit one call takes: `{ tokens: 800 }`; a number is calls. */
export type Cost = number | Readonly<Record<string, number>>;

/**
 * What one call costs for each limit: calls cost 1 and other units nothing unless it is said.
 * A concurrency limit counts calls that run, whatever they cost. What no limit counts costs nothing.
 *
 * @throws {@link CostTooLargeError} when a limit could never give so much at once.
 */
export function costsOf(
  bucket: string,
  limits: readonly Limit[],
  cost: Cost | undefined,
): number[] {
  const byUnit: Readonly<Record<string, number>> =
    typeof cost === "object" ? cost : { calls: cost ?? 1 };
  return limits.map((limit) => {
    const { kind, unit, capacity } = limit;
    if (!ruleOf(kind).isRate) return 1;
    const amount = Object.hasOwn(byUnit, unit) ? byUnit[unit]! : unit === "calls" ? 1 : 0;
    if (amount <= capacity) return amount;
    throw costTooLarge(bucket, amount, limit);
  });
}

/** Whether this may say what a call cost of each unit. A promise would say nothing, and a list names no unit. */
export function isByUnit(cost: unknown): boolean {
  return typeof cost === "object" && cost !== null && !Array.isArray(cost) && !isThenable(cost);
}

/** A broken usage figure must not stop a bucket for decades. */
const MOST_DEBT_US = 366 * 86_400_000_000;

/** What a call came to cost beyond its estimate, for each limit; what the answer does not tell stays as estimated. */
export function differences(
  limits: readonly Limit[],
  estimates: readonly number[],
  actual: Readonly<Record<string, unknown>>,
): number[] {
  if (!isByUnit(actual)) {
    const remedy = "give what it cost by unit, such as { tokens: 812 }";
    throw new InvalidOptionError({ where: "settle()", option: "cost", value: actual, remedy });
  }
  const told = Object.entries(actual).filter(
    ([, amount]) => amount !== undefined && amount !== null,
  );
  const byUnit = Object.fromEntries(told) as Record<string, number>;
  for (const [unit, amount] of told) {
    if (Number.isSafeInteger(amount) && (amount as number) >= 0) continue;
    const remedy = "give a whole number from 0, or leave it out if the answer does not tell";
    throw new InvalidOptionError({ where: "settle()", option: unit, value: amount, remedy });
  }
  return limits.map(({ kind, unit, count, periodUs }, index) => {
    const amount = Object.hasOwn(byUnit, unit) ? byUnit[unit] : undefined;
    if (amount === undefined || !ruleOf(kind).isRate) return 0;
    const difference = amount - estimates[index]!;
    const isBearable = (difference * periodUs) / count <= MOST_DEBT_US;
    if (isBearable && Math.abs(difference) * periodUs < 2 ** 52) return difference;
    const remedy = "the limit would take more than a year to make up for it";
    throw new InvalidOptionError({ where: "settle()", option: unit, value: amount, remedy });
  });
}
