import type * as z from "zod";
import { ignoreRejection, isThenable } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { amountIn, MILLIONTHS, MOST_UNITS } from "../core/limits/budget.ts";
import { costTooLarge, hasPace, isLeased, ruleOf, stepOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import type { LimitOwner } from "../core/policy/per-key.ts";
import type { Member } from "../core/policy/pool.ts";

/**
 * The amount of each unit that one call uses: `{ tokens: 800 }`. A plain number counts calls. Only units that no other
 * limit than budgets counts may have fractions, or be 0 for a free call: `{ usd: 0.0123 }`.
 */
export type Cost = number | Readonly<Record<string, number>>;

const A_COST =
  "give a whole number of calls from 1, or one for each unit that it takes, such as { tokens: 800 }";

/**
 * Validates a cost. Adds an issue for each invalid amount, at the path of the amount's unit.
 *
 * @internal
 */
export function checkCost(cost: unknown, context: z.RefinementCtx): void {
  if (typeof cost !== "object" || cost === null || Array.isArray(cost)) {
    if (!isWholeAmount(cost)) context.addIssue({ code: "custom", message: A_COST });
    return;
  }
  const amounts = Object.entries(cost);
  if (amounts.length === 0) context.addIssue({ code: "custom", message: A_COST });
  for (const [unit, amount] of amounts) {
    if (isAmount(amount)) continue;
    ignoreRejection(amount);
    context.addIssue({ code: "custom", message: AN_AMOUNT, path: [unit] });
  }
}

const AN_AMOUNT =
  "give a whole number from 1, and leave out a unit that the call does not take; only units of budgets take 0 and fractions";

function isWholeAmount(amount: unknown): boolean {
  return Number.isSafeInteger(amount) && (amount as number) >= 1;
}

/** True for whole amounts, and for 0 and fractions, which budgets accept. */
function isAmount(amount: unknown): boolean {
  return isWholeAmount(amount) || amount === 0 || (isFraction(amount) && amount > 0);
}

function isFraction(amount: unknown): amount is number {
  return Number.isFinite(amount) && !Number.isInteger(amount);
}

/**
 * Rejects an amount that only budgets take, if another limit counts its unit.
 *
 * @throws {@link InvalidOptionError} with the name of the unit.
 */
function assertWhole(
  limits: readonly Limit[],
  byUnit: Readonly<Record<string, unknown>>,
  { where, path, remedy }: { where: string; path: string; remedy: string },
  isOnlyForBudgets: (amount: unknown) => boolean,
): void {
  for (const [unit, value] of Object.entries(byUnit)) {
    if (!isOnlyForBudgets(value)) continue;
    const counting = limits.filter((limit) => limit.unit === unit && !isLeased(limit));
    if (unit !== "calls" && counting.every(({ budget }) => budget !== undefined)) continue;
    throw new InvalidOptionError({ where, option: `${path}${unit}`, value, remedy });
  }
}

/**
 * Rejects a cost of 0, or a fraction, of a unit that other limits than budgets count.
 *
 * @throws {@link InvalidOptionError} with the name of the unit.
 */
export function assertCost(
  limits: readonly Limit[],
  byUnit: Readonly<Record<string, unknown>>,
  where: string,
): void {
  const isOnlyForBudgets = (amount: unknown): boolean => amount === 0 || isFraction(amount);
  assertWhole(limits, byUnit, { where, path: "cost.", remedy: AN_AMOUNT }, isOnlyForBudgets);
}

/**
 * Returns the cost of one call under each limit. If `cost` does not name the limit's unit, the cost is 1 for calls and
 * 0 for other units. Under a concurrency limit, each call costs 1.
 *
 * @throws {@link CostTooLargeError} when a cost exceeds the capacity of its limit.
 */
export function costsOf(
  bucket: string,
  limits: readonly Limit[],
  cost: Cost | undefined,
): number[] {
  const byUnit = amountsOf(cost);
  assertCost(limits, byUnit, `bucket("${bucket}")`);
  return limits.map((limit) => {
    if (!ruleOf(limit.kind).isRate) return 1;
    const amount = amountUnder(limit, byUnit);
    if (amount <= limit.capacity) return amount;
    throw costTooLarge(bucket, amount, limit);
  });
}

/**
 * Returns the cost of one call under the limits of each member of a pool. A member whose limits never allow the cost
 * takes no such call.
 *
 * `only` is the name of the only member that the call may use. Undefined if it may use each.
 *
 * @throws {@link CostTooLargeError} when the cost exceeds a limit of each member that the call may use. It names the
 * limit of the member that allows the largest cost.
 */
export function memberCostsOf(
  bucket: string,
  members: readonly Pick<Member, "name" | "limits">[],
  cost: Cost | undefined,
  only?: string,
): number[] {
  const byUnit = amountsOf(cost);
  const all = members.flatMap(({ limits }) => limits);
  assertCost(all, byUnit, `pool("${bucket}")`);
  const costs: number[] = [];
  /** The limit that allows the largest part of the cost, of those that keep the call from each member. */
  let widest: (Tight & { readonly name: string }) | undefined;
  let isAllowed = members.length === 0;
  for (const { name, limits } of members) {
    const own = limits.map((limit) => (ruleOf(limit.kind).isRate ? amountUnder(limit, byUnit) : 1));
    costs.push(...own);
    if (only !== undefined && name !== only) continue;
    const tight = tightestOf(limits, own);
    isAllowed ||= tight.part >= 1;
    if (widest === undefined || tight.part > widest.part) widest = { name, ...tight };
  }
  if (isAllowed || widest === undefined) return costs;
  throw costTooLarge(bucket, widest.amount, widest.limit, ` (member ${widest.name})`);
}

/** A limit, a cost under it, and the part of the cost that the limit ever allows. */
interface Tight {
  readonly limit: Limit;
  readonly amount: number;
  readonly part: number;
}

/** Returns the limit that allows the smallest part of a cost. */
function tightestOf(limits: readonly Limit[], costs: readonly number[]): Tight {
  const all = limits.map((limit, index) => {
    const amount = costs[index]!;
    return { limit, amount, part: amount === 0 ? Infinity : limit.capacity / amount };
  });
  return all.reduce((least, each) => (each.part < least.part ? each : least));
}

/** Returns the costs of a call beyond those that were already drawn for it. The call needs no second lease. */
export function costsBeyond(
  before: readonly number[],
  costs: readonly number[],
  limits: readonly Limit[],
): number[] {
  return limits.map((limit, index) =>
    isLeased(limit) ? 0 : Math.max(0, costs[index]! - before[index]!),
  );
}

/**
 * Returns the cost of a call under each shadow limit, without the cost `beyond` that was already drawn. Undefined if
 * there are no shadow limits.
 */
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

function amountUnder(limit: Limit, byUnit: Readonly<Record<string, number>>): number {
  const { unit } = limit;
  return amountIn(limit, Object.hasOwn(byUnit, unit) ? byUnit[unit]! : unit === "calls" ? 1 : 0);
}

/** Merges two costs by unit. The amounts of `over` win. */
export function mergeCosts(under: Cost | undefined, over: Cost | undefined): Cost | undefined {
  if (under === undefined || over === undefined) return over ?? under;
  return { ...amountsOf(under), ...amountsOf(over) };
}

function amountsOf(cost: Cost = 1): Readonly<Record<string, number>> {
  return typeof cost === "object" ? cost : { calls: cost };
}

/** True for an object of amounts by unit, but not for a promise or a list. */
export function isByUnit(cost: unknown): boolean {
  return typeof cost === "object" && cost !== null && !Array.isArray(cost) && !isThenable(cost);
}

/**
 * The longest time for which a settled cost may block a limit. Without this bound, a wrong number could stop a bucket
 * for decades.
 */
const MOST_DEBT_US = 366 * 86_400_000_000;

/**
 * Returns the actual minus the estimated cost under each limit. Omitted units count as estimated, with a difference of
 * 0.
 *
 * @throws {@link InvalidOptionError} when an amount is not a valid cost.
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
  const remedy = "give a whole number from 0, or leave it out if it is unknown";
  for (const [unit, amount] of Object.entries(byUnit)) {
    const isNumber = Number.isSafeInteger(amount) || isFraction(amount);
    if (isNumber && (amount as number) >= 0) continue;
    throw new InvalidOptionError({ where: "settle()", option: unit, value: amount, remedy });
  }
  assertWhole(limits, byUnit, { where: "settle()", path: "", remedy }, isFraction);
  return limits.map((limit, index) => {
    const difference = differenceUnder(limit, estimates[index]!, actual);
    if (isBearable(limit, difference)) return difference;
    const { unit, budget } = limit;
    const why =
      budget === undefined
        ? "report a smaller amount: the limit would need more than a year to work off this one"
        : `report at most ${MOST_UNITS}`;
    const facts = { where: "settle()", option: unit, value: byUnit[unit] };
    throw new InvalidOptionError({ ...facts, remedy: why });
  });
}

/**
 * Does the same as {@link differences} for shadow limits, but rejects no cost. That function has validated the amounts.
 */
export function shadowDifferences(
  shadows: readonly Limit[],
  estimates: readonly number[],
  actual: Readonly<Record<string, unknown>>,
): number[] {
  return shadows.map((limit, index) => {
    const estimate = estimates[index]!;
    const difference = differenceUnder(limit, estimate, actual);
    // A shadow limit never booked a call that cost more than its capacity, so there is nothing to correct.
    return estimate <= limit.capacity && isBearable(limit, difference) ? difference : 0;
  });
}

function differenceUnder(
  limit: Limit,
  estimate: number,
  actual: Readonly<Record<string, unknown>>,
): number {
  const { kind, unit } = limit;
  const amount = Object.hasOwn(actual, unit) ? actual[unit] : undefined;
  const isCounted = typeof amount === "number" && ruleOf(kind).isRate;
  return isCounted ? amountIn(limit, amount) - estimate : 0;
}

function isBearable({ kind, count, periodUs, budget }: Limit, difference: number): boolean {
  if (budget !== undefined) return difference <= MOST_UNITS * MILLIONTHS;
  const isWhole = ruleOf(kind).doesRenew === true || Math.abs(difference) * periodUs < 2 ** 52;
  return isWhole && (difference * periodUs) / count <= MOST_DEBT_US;
}

/** The limits and costs that apply to all calls of a group. Groups of keys with equal limits share one object. */
export interface CallTerms {
  /** The limits that all keys share. */
  readonly shared: readonly Limit[];
  /** The limits of each level of the call's key. The widest level comes first. */
  readonly scopeLimits: readonly (readonly Limit[])[];
  /** The limits of each member of a pool. Empty for other buckets. */
  readonly memberLimits: readonly (readonly Limit[])[];
  /** All limits of the call: the shared limits, the per-key limits, and then those of all members. */
  readonly limits: readonly Limit[];
  /** The cost under each of `limits`, in the same order. */
  readonly costs: readonly number[];
  /** The cost under each shadow limit of the policy. Undefined if the policy has no shadow limits. */
  readonly shadowCosts: readonly number[] | undefined;
  /** The owner of each of `limits`: the bucket, or a level of its keys. */
  readonly whose: readonly LimitOwner[];
  /** The text of the policy that `limits` come from. */
  readonly text: string;
  /** Says why no member of a pool takes the calls now. Undefined if a member does, and for other buckets. */
  readonly whyClosed: () => string | undefined;
  /** True if a limit adapts to the latency of the calls. */
  readonly adapts: boolean;
  /** True if the calls hold leases while they run, because of a concurrency limit. */
  readonly hasLeases: boolean;
  /** True if no key has its own concurrency limit. */
  readonly areLeasesShared: boolean;
  /** True if all rate limits drain evenly. */
  readonly areDrains: boolean;
  /** True if the calls use a budget, so that unused slots must always be returned. */
  readonly hasBudgets: boolean;
  /** True if the calls use a budget and settle their cost, so that the estimate is only reserved until then. */
  readonly reserves: boolean;
  /** True if a draw assigns a lease number to each slot, even for calls that need no lease. */
  readonly areNumbered: boolean;
  /** The time that one call uses up in the rate limits, in ms: the longest cost × period ÷ count of these limits. */
  readonly stepMs: number;
  /** Like `stepMs`, but for the shared limits only. 0 without shared rate limits. */
  readonly sharedStepMs: number;
  /** The interval between two calls of this cost, in ms. Undefined if no limit spaces calls evenly. */
  readonly intervalMs: number | undefined;
}

/** The costs of a call under each limit and each shadow limit. */
export type CallCosts = Pick<CallTerms, "costs"> & Partial<Pick<CallTerms, "shadowCosts">>;

export function textOfCosts({ costs, shadowCosts }: CallCosts): string {
  return (shadowCosts === undefined ? costs : [...costs, ...shadowCosts]).join(" ");
}

type CallTermsInput = Pick<CallTerms, "shared" | "scopeLimits" | "whose" | "text"> &
  CallCosts & {
    readonly settles?: boolean | undefined;
    readonly memberLimits?: readonly (readonly Limit[])[] | undefined;
    readonly whyClosed?: CallTerms["whyClosed"] | undefined;
  };

const isOpen = (): undefined => undefined;

export function callTermsOf(given: CallTermsInput): CallTerms {
  const { shared, scopeLimits, costs, shadowCosts, whose, text, settles = false } = given;
  const { memberLimits = [], whyClosed = isOpen } = given;
  const own = [...shared, ...scopeLimits.flat()];
  const limits = [...own, ...memberLimits.flat()];
  const poolStep = stepOfPool(memberLimits, costs.slice(own.length));
  const hasBudgets = usesBudget(limits, costs);
  // The shared limits set the interval between slots. Without shared limits, the limits of the widest key level set it.
  // Limits of narrower levels only delay single calls.
  const spacing = shared.length > 0 ? shared : (scopeLimits[0] ?? []);
  const isSpaced = spacing.some(({ kind }) => ruleOf(kind).doesSpace === true);
  return {
    shared,
    scopeLimits,
    memberLimits,
    limits,
    costs,
    shadowCosts,
    whose,
    text,
    whyClosed,
    adapts: limits.some(({ adaptive }) => adaptive !== undefined),
    hasLeases: limits.some((limit, index) => isLeased(limit) && costs[index]! > 0),
    hasBudgets,
    reserves: hasBudgets && settles,
    areNumbered: limits.some(isLeased),
    areLeasesShared: !scopeLimits.flat().some(isLeased),
    areDrains: limits.every(({ kind }) => !ruleOf(kind).isRate || ruleOf(kind).doesDrain === true),
    stepMs: Math.max(stepOf(own, costs), poolStep) / 1_000,
    sharedStepMs: Math.max(stepOf(shared, costs), poolStep) / 1_000,
    intervalMs: isSpaced ? stepOf(spacing, costs) / 1_000 : undefined,
  };
}

/**
 * Returns the time between two calls of a pool at the rate of all members together, in µs. A member that could never
 * take the call does not count.
 */
function stepOfPool(memberLimits: readonly (readonly Limit[])[], costs: readonly number[]): number {
  let rate = 0;
  let after = 0;
  for (const limits of memberLimits) {
    const own = costs.slice(after, after + limits.length);
    after += limits.length;
    if (limits.every(({ capacity }, index) => own[index]! <= capacity))
      rate += 1 / stepOf(limits, own);
  }
  return rate === 0 ? 0 : 1 / rate;
}

/** True if a call with these costs uses a budget. */
export function usesBudget(limits: readonly Limit[], costs: readonly number[]): boolean {
  return limits.some(({ budget }, index) => budget !== undefined && costs[index]! > 0);
}

/** Returns `count` times the costs under the budgets of a call. The costs under other limits are 0. */
export function budgetCostsOf(
  { limits, costs }: Pick<CallTerms, "limits" | "costs">,
  count = 1,
): number[] {
  return limits.map(({ budget }, index) => (budget === undefined ? 0 : count * costs[index]!));
}

/** The estimated cost of a call, by unit. */
export interface Estimate {
  readonly costOf: (unit: string) => number;
  /** The time that the call uses up in the rate limits, in ms. */
  readonly stepMs: number;
}

export function estimateOf({ limits, costs, stepMs }: CallTerms): Estimate {
  const costOf = (unit: string): number => {
    const index = limits.findIndex((limit) => limit.unit === unit && hasPace(limit.kind));
    return index === -1 ? (unit === "calls" ? 1 : 0) : costs[index]!;
  };
  return { costOf, stepMs };
}

/**
 * Returns the time that one call occupies in the shared limits and in the limits of its key, in ms. The time is 0 if no
 * rate applies.
 */
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
