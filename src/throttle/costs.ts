import type * as z from "zod";
import { ignoreRejection, isThenable } from "../core/describe.ts";
import { stepOf } from "../core/limits/registry.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { costTooLarge, isLeased, ruleOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import type { LimitOwner } from "../core/policy/per-key.ts";

/** How much of each unit one call takes: `{ tokens: 800 }`; a number is calls. */
export type Cost = number | Readonly<Record<string, number>>;

const A_COST =
  "give a whole number of calls from 1, or one for each unit that it takes, such as { tokens: 800 }";

/**
 * Each wrong amount of a cost by unit is an issue at the path of its unit.
 *
 * @internal
 */
export function checkCost(cost: unknown, context: z.RefinementCtx): void {
  if (typeof cost !== "object" || cost === null || Array.isArray(cost)) {
    if (!isAmount(cost)) context.addIssue({ code: "custom", message: A_COST });
    return;
  }
  const amounts = Object.entries(cost);
  if (amounts.length === 0) context.addIssue({ code: "custom", message: A_COST });
  for (const [unit, amount] of amounts) {
    if (isAmount(amount)) continue;
    ignoreRejection(amount);
    const message = "give a whole number from 1, and leave out a unit that the call does not take";
    context.addIssue({ code: "custom", message, path: [unit] });
  }
}

function isAmount(amount: unknown): boolean {
  return Number.isSafeInteger(amount) && (amount as number) >= 1;
}

/**
 * The cost of one call for each limit: 1 for calls and 0 for other units, unless `cost` names the unit.
 * A concurrency limit counts running calls, whatever they cost. A unit that no limit counts costs nothing.
 *
 * @throws {@link CostTooLargeError} when a limit could never give so much at once.
 */
export function costsOf(
  bucket: string,
  limits: readonly Limit[],
  cost: Cost | undefined,
): number[] {
  const byUnit = amountsOf(cost);
  return limits.map((limit) => {
    if (!ruleOf(limit.kind).isRate) return 1;
    const amount = amountUnder(limit, byUnit);
    if (amount <= limit.capacity) return amount;
    throw costTooLarge(bucket, amount, limit);
  });
}

/** What a call needs beyond what was drawn for it before: no lease, whatever it costs. */
export function costsBeyond(
  before: readonly number[],
  costs: readonly number[],
  limits: readonly Limit[],
): number[] {
  return limits.map((limit, index) =>
    isLeased(limit) ? 0 : Math.max(0, costs[index]! - before[index]!),
  );
}

/** The same of limits that only count, beyond what was drawn for the call before; undefined if there are none. */
export function shadowCostsOf(
  shadows: readonly Limit[],
  cost: Cost | undefined,
  beyond?: { readonly cost?: Cost | undefined },
): readonly number[] | undefined {
  if (shadows.length === 0) return undefined;
  const [byUnit, before] = [amountsOf(cost), amountsOf(beyond?.cost)];
  return shadows.map((limit) => {
    const amount = amountUnder(limit, byUnit);
    return beyond === undefined ? amount : Math.max(0, amount - amountUnder(limit, before));
  });
}

function amountUnder({ unit }: Limit, byUnit: Readonly<Record<string, number>>): number {
  return Object.hasOwn(byUnit, unit) ? byUnit[unit]! : unit === "calls" ? 1 : 0;
}

/** A cost in which each unit that `over` leaves out is as in `under`. */
export function mergeCosts(under: Cost | undefined, over: Cost | undefined): Cost | undefined {
  if (under === undefined || over === undefined) return over ?? under;
  return { ...amountsOf(under), ...amountsOf(over) };
}

function amountsOf(cost: Cost = 1): Readonly<Record<string, number>> {
  return typeof cost === "object" ? cost : { calls: cost };
}

/** Whether this is a cost by unit; a promise and a list are none. */
export function isByUnit(cost: unknown): boolean {
  return typeof cost === "object" && cost !== null && !Array.isArray(cost) && !isThenable(cost);
}

/** The longest time that a limit may take to make up for a cost: a wrong figure must not stop a bucket for decades. */
const MOST_DEBT_US = 366 * 86_400_000_000;

/**
 * What a call cost beyond its estimate, for each limit; a unit that is left out stays as estimated.
 *
 * @throws {@link InvalidOptionError} when an amount can never be a cost.
 */
export function differences(
  limits: readonly Limit[],
  estimates: readonly number[],
  actual: Readonly<Record<string, unknown>>,
): number[] {
  if (!isByUnit(actual)) {
    const remedy = "give its cost by unit, such as { tokens: 812 }";
    throw new InvalidOptionError({ where: "settle()", option: "cost", value: actual, remedy });
  }
  const byUnit = Object.fromEntries(
    Object.entries(actual).filter(([, amount]) => amount !== undefined && amount !== null),
  );
  for (const [unit, amount] of Object.entries(byUnit)) {
    if (Number.isSafeInteger(amount) && (amount as number) >= 0) continue;
    const remedy = "give a whole number from 0, or leave it out if it is unknown";
    throw new InvalidOptionError({ where: "settle()", option: unit, value: amount, remedy });
  }
  return limits.map((limit, index) => {
    const difference = differenceUnder(limit, estimates[index]!, actual);
    if (isBearable(limit, difference)) return difference;
    const remedy = "the limit would take more than a year to make up for it";
    const { unit } = limit;
    throw new InvalidOptionError({ where: "settle()", option: unit, value: byUnit[unit], remedy });
  });
}

/** The same under limits that only count, of amounts that {@link differences} has checked: they refuse none. */
export function shadowDifferences(
  shadows: readonly Limit[],
  estimates: readonly number[],
  actual: Readonly<Record<string, unknown>>,
): number[] {
  return shadows.map((limit, index) => {
    const estimate = estimates[index]!;
    const difference = differenceUnder(limit, estimate, actual);
    // A call that could never pass has taken no room.
    return estimate <= limit.capacity && isBearable(limit, difference) ? difference : 0;
  });
}

function differenceUnder(
  { kind, unit }: Limit,
  estimate: number,
  actual: Readonly<Record<string, unknown>>,
): number {
  const amount = Object.hasOwn(actual, unit) ? actual[unit] : undefined;
  return typeof amount === "number" && ruleOf(kind).isRate ? amount - estimate : 0;
}

function isBearable({ kind, count, periodUs }: Limit, difference: number): boolean {
  const isWhole = ruleOf(kind).doesRenew === true || Math.abs(difference) * periodUs < 2 ** 52;
  return isWhole && (difference * periodUs) / count <= MOST_DEBT_US;
}

/** The limits and costs of the calls of a group; all keys that have the same limits share one. */
export interface CallTerms {
  /** What all keys share. */
  readonly shared: readonly Limit[];
  /** What each of the call's keys has of its own, the widest first. */
  readonly scopeLimits: readonly (readonly Limit[])[];
  /** The shared limits and then those of the keys. */
  readonly limits: readonly Limit[];
  /** For each of the limits. */
  readonly costs: readonly number[];
  /** For each shadow of the policy; undefined if it has none. */
  readonly shadowCosts: readonly number[] | undefined;
  /** LimitOwner each of the limits is. */
  readonly whose: readonly LimitOwner[];
  /** The text of the policy that these limits are of. */
  readonly text: string;
  /** Whether its calls hold leases. */
  readonly hasLeases: boolean;
  /** Whether no key of its own has a limit on calls at once. */
  readonly areLeasesShared: boolean;
  /** Whether all limits that hold units per time give them evenly. */
  readonly areDrains: boolean;
  /** Whether a draw numbers a lease for each slot of them, also for calls that need no lease of their own. */
  readonly areNumbered: boolean;
  /** What one call takes of the downstream, in ms. */
  readonly stepMs: number;
  /** The same under the limits that all keys share; 0 if there are none. */
  readonly sharedStepMs: number;
  /** The time between two calls of this cost where limits space them evenly; undefined where none does. */
  readonly intervalMs: number | undefined;
}

/** What a call costs under each limit, and under each that only counts. */
export type CallCosts = Pick<CallTerms, "costs"> & Partial<Pick<CallTerms, "shadowCosts">>;

export function textOfCosts({ costs, shadowCosts }: CallCosts): string {
  return (shadowCosts === undefined ? costs : [...costs, ...shadowCosts]).join(" ");
}

type CallTermsInput = Pick<CallTerms, "shared" | "scopeLimits" | "whose" | "text"> & CallCosts;

export function callTermsOf(given: CallTermsInput): CallTerms {
  const { shared, scopeLimits, costs, shadowCosts, whose, text } = given;
  const limits = [...shared, ...scopeLimits.flat()];
  // A key's own limit is a gate: it is the shared or the widest one that others' slots are spaced by.
  const spacing = shared.length > 0 ? shared : (scopeLimits[0] ?? []);
  const isSpaced = spacing.some(({ kind }) => ruleOf(kind).doesSpace === true);
  return {
    shared,
    scopeLimits,
    limits,
    costs,
    shadowCosts,
    whose,
    text,
    hasLeases: limits.some((limit, index) => isLeased(limit) && costs[index]! > 0),
    areNumbered: limits.some(isLeased),
    areLeasesShared: !scopeLimits.flat().some(isLeased),
    areDrains: limits.every(({ kind }) => !ruleOf(kind).isRate || ruleOf(kind).doesDrain === true),
    stepMs: stepOf(limits, costs) / 1_000,
    sharedStepMs: stepOf(shared, costs) / 1_000,
    intervalMs: isSpaced ? stepOf(spacing, costs) / 1_000 : undefined,
  };
}

/** What a call is estimated to cost. */
export interface Estimate {
  /** The cost of each unit. */
  readonly costOf: (unit: string) => number;
  /** What one call takes of the downstream, in ms. */
  readonly stepMs: number;
}

export function estimateOf({ limits, costs, stepMs }: CallTerms): Estimate {
  const costOf = (unit: string): number => {
    const index = limits.findIndex((limit) => limit.unit === unit && !isLeased(limit));
    return index === -1 ? (unit === "calls" ? 1 : 0) : costs[index]!;
  };
  return { costOf, stepMs };
}

/** What one call takes of what all keys share, and of what its own keys have, in ms; 0 where there is no rate. */
export function stepsOf({ shared, limits, costs }: CallTerms): {
  readonly sharedMs: number;
  readonly keyMs: number;
} {
  const { length } = shared;
  return {
    sharedMs: stepOf(shared, costs) / 1_000,
    keyMs: stepOf(limits.slice(length), costs.slice(length)) / 1_000,
  };
}
