import * as z from "zod";
import { atPath, InvalidOptionError } from "../errors.ts";
import { budgetName } from "../limits/budget.ts";
import type { RateInput } from "../limits/rate.ts";
import { formatLimit, ruleOf } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import { PRIORITIES, readOptions, type Priority } from "../input/options.ts";
import {
  assertShared,
  compileFair,
  fairText,
  fairUnder,
  formatFair,
  isFairText,
  readFairText,
  type Fair,
  type FairOptions,
  type FairText,
} from "./fair.ts";
import { inParallel, isLimit, limitMakers, rateLimit, type LimitsOptions } from "./limit-makers.ts";
import { isTiers, pathOf } from "./key-limits.ts";
import {
  compilePerKey,
  formatPerKey,
  readPerKeyText,
  type KeyPolicy,
  type PerKey,
} from "./per-key.ts";
import {
  compilePool,
  formatPool,
  POOL_SHAPE,
  poolText,
  readPoolText,
  type MemberLimits,
  type PoolPolicy,
  type PoolText,
} from "./pool.ts";
import { isPerKeyText, optionsOfText, type PartText, type PerKeyText } from "./per-key-text.ts";

/** The options that limit how fast calls of a bucket may start. */
export interface PolicyOptions<
  Rate extends RateInput = RateInput,
  KeyRate extends RateInput = RateInput,
> extends LimitsOptions<Rate> {
  /**
   * Limits that apply to each key separately. They are the same for all keys, or come from a function of the key or
   * from a table of tiers.
   */
  readonly perKey?: PerKey<KeyRate> | undefined;
  /**
   * The part of the booking horizon (100 ms) that calls of each priority may fill, from 0.01 to 1. Defaults to `{ low:
   * 0.7, normal: 0.8, high: 0.9, critical: 1 }`.
   */
  readonly shares?: Partial<Readonly<Record<Priority, number>>> | undefined;
  /**
   * Whether calls with different keys take turns at the limits that all keys share, and with which weights. Defaults to
   * `true`: each key has the same weight. `false`: calls start in the order of their arrival.
   */
  readonly fair?: boolean | FairOptions | undefined;
}

/** A compiled policy. All numbers in it are whole numbers. */
export interface Policy {
  /** The limits that all keys share. */
  readonly limits: readonly Limit[];
  /** Limits that delay nothing, and only count the calls that they would have delayed. */
  readonly shadows: readonly Limit[];
  readonly perKey: KeyPolicy | undefined;
  /** The part of the booking horizon that each priority may fill, in per mille and in the order of `PRIORITIES`. */
  readonly shares: readonly number[];
  /** How keys take turns. If undefined, calls start in the order of their arrival. */
  readonly fair: Fair | undefined;
  /** The members of a pool, one of which each call uses. Undefined for other buckets. */
  readonly pool?: PoolPolicy | undefined;
  /** The policy as JSON. The text identifies the policy, and other replicas read the policy from it. */
  readonly text: string;
  /**
   * The same policy without the key limits that only the code of other processes knows. Set if only other processes
   * declare the policy. For reading only, never for draws.
   */
  readonly asKnown?: Policy | undefined;
}

/** Returns the part of a policy that this process knows. For reading only, never for draws. */
export function asFarAsKnown(policy: Policy): Policy {
  return policy.asKnown ?? policy;
}

/**
 * Formats the policy for errors and warnings: `"100/s with a burst of 5"`, `"500/min + 25 at once; per key 5/s"`. Keys
 * with equal turns are not mentioned.
 */
export function formatPolicy({ limits, shadows, perKey, fair, pool }: Policy): string {
  const ofKeys = perKey === undefined ? "" : `per key ${formatPerKey(perKey)}`;
  const inShadow = shadows.length === 0 ? "" : `in shadow ${formatLimits(shadows)}`;
  const ofMembers = pool === undefined ? "" : `members ${formatPool(pool)}`;
  const areShared = limits.length > 0 || pool !== undefined;
  const turns = areShared ? formatFair(fair) : "";
  return [formatLimits(limits), ofMembers, ofKeys, inShadow, turns]
    .filter((part) => part !== "")
    .join("; ");
}

function formatLimits(limits: readonly Limit[]): string {
  return limits.map(formatLimit).join(" + ");
}

const DEFAULT_SHARES = { critical: 1, high: 0.9, normal: 0.8, low: 0.7 };
/**
 * The placeholder for a policy that this process does not know yet. The first call with this placeholder makes the
 * bucket look up the policy.
 */
export const UNKNOWN_POLICY: Policy = Object.freeze({
  limits: [],
  shadows: [],
  perKey: undefined,
  shares: PRIORITIES.map((each) => DEFAULT_SHARES[each] * 1_000),
  fair: undefined,
  text: "unknown",
});
const SHARE_ERROR = { error: "give a part of the horizon, from 0.01 to 1" };
const SHARE = z.number(SHARE_ERROR).min(0.01, SHARE_ERROR).max(1, SHARE_ERROR).optional();
const SHARES = z.strictObject({ critical: SHARE, high: SHARE, normal: SHARE, low: SHARE });
const LIMIT_ERROR = { error: `give what ${limitMakers()} returned` };
const LIMITS_SHAPE = {
  rate: z.custom<RateInput>().optional(),
  burst: z.custom<number>().optional(),
  shadow: z.boolean({ error: "give true or false" }).optional(),
  concurrency: z.custom<number>().optional(),
  limits: z.array(z.custom<Limit>(isLimit, LIMIT_ERROR), LIMIT_ERROR).optional(),
};
const LIMITS = z.strictObject(LIMITS_SHAPE);
const POLICY = z.strictObject({
  ...LIMITS_SHAPE,
  perKey: z.custom<PerKey>().optional(),
  shares: SHARES.optional(),
  fair: z.custom<PolicyOptions["fair"]>().optional(),
  ...POOL_SHAPE,
});
/** The most limits of one policy, because a script checks all of them in each draw. */
const MOST_LIMITS = 8;

/**
 * Compiles a bucket's options into whole numbers.
 *
 * @throws {@link InvalidOptionError} when the options can never work, or contradict each other.
 */
export function compilePolicy(where: string, given: unknown): Policy {
  const policy = compileAlone(where, given, { isWhole: true });
  assertInOrder(where, policy);
  assertSharing(where, (given as PolicyOptions).fair, policy);
  return policy;
}

/**
 * Compiles options that will override another policy. These options may combine shadows, and the weights and floors of
 * keys, with limits that apply only per key. They may change members of a pool without their limits. With `isWhole`,
 * members need limits.
 */
export function compileAlone(
  where: string,
  given: unknown,
  { isWhole = false }: { readonly isWhole?: boolean } = {},
): Policy {
  const { members, prefer, stickyBy, stickyMs, ...others } = readOptions(where, POLICY, given);
  const { perKey, shares, fair, ...shared } = others;
  const ofPool = { members, prefer, stickyBy, stickyMs };
  const isOfPool = Object.values(isWhole ? { members } : ofPool).some((v) => v !== undefined);
  const hasOthers = perKey !== undefined || isOfPool;
  const hasNoShared = hasOthers && Object.values(shared).every((v) => v === undefined);
  const { limits, shadows } = hasNoShared ? NO_LIMITS : compileShared(where, shared);
  const keyPolicy = perKey === undefined ? undefined : keyPolicyOf(where, perKey, limits);
  const pool = compilePool(where, ofPool, { compile: memberCompiler(where, limits), isWhole });
  return makePolicy({
    ...(pool && { pool }),
    limits,
    shadows,
    perKey: keyPolicy,
    shares: inPerMille(shares),
    fair: compileFair(where, fair, limits),
  });
}

/**
 * Rejects turns of keys that share nothing. In a pool, keys share the members, but a floor is a part of a shared limit.
 */
function assertSharing(
  where: string,
  fair: PolicyOptions["fair"],
  { limits, pool }: Pick<Policy, "limits" | "pool">,
): void {
  const given = typeof fair === "object" && pool !== undefined ? { floors: fair.floors } : fair;
  assertShared(where, given, limits);
}

/** Returns a function that compiles the limits of a member, beside those that all members share. */
function memberCompiler(where: string, shared: readonly Limit[]) {
  return (path: string, given: MemberLimits): readonly Limit[] =>
    atPath(path, () => {
      const limits = compileLimits(where, readOptions(where, LIMITS, given), shared);
      if (!limits.some(isShadow)) return limits;
      const remedy = "only limits that all members share can be shadows; leave it out here";
      throw new InvalidOptionError({ where, option: "shadow", value: true, remedy });
    });
}

/** The limits that all keys share: `limits` delay calls, `shadows` only count calls. */
type Shared = Pick<Policy, "limits" | "shadows">;

const NO_LIMITS: Shared = { limits: [], shadows: [] };

function compileShared(where: string, given: LimitsOptions): Shared {
  const all = compileLimits(where, given);
  if (!all.some(isShadow)) return { limits: all, shadows: [] };
  const limits = Object.freeze(all.filter((limit) => !isShadow(limit)));
  const shadows = Object.freeze(all.filter(isShadow));
  assertDistinct(where, shadows);
  return { limits, shadows };
}

/** Rejects equal shadows, because metrics could not distinguish them. */
function assertDistinct(where: string, shadows: readonly Limit[]): void {
  const names = shadows.map(formatLimit);
  const value = names.find((name, index) => names.indexOf(name) < index);
  if (value === undefined) return;
  const remedy = "two shadows of a bucket are the same: leave one of them out";
  throw new InvalidOptionError({ where, option: "shadow", value, remedy });
}

function isShadow({ shadow }: Limit): boolean {
  return shadow === true;
}

/**
 * Rejects shadows if the bucket has only per-key limits. A shadow must see all slots in the order of their times, but
 * slots of different keys are booked in any order.
 */
function assertInOrder(
  where: string,
  { limits, shadows, perKey, pool }: Omit<Policy, "text">,
): void {
  const hasOthers = perKey !== undefined || pool !== undefined;
  if (shadows.length === 0 || limits.length > 0 || !hasOthers) return;
  const remedy =
    "a shadow needs a limit that applies to all calls, not only limits of keys or members; add such a limit";
  const value = formatLimits(shadows);
  throw new InvalidOptionError({ where, option: "shadow", value, remedy });
}

function inPerMille(shares: Partial<Record<Priority, number | undefined>> | undefined): number[] {
  return PRIORITIES.map((each) => Math.floor((shares?.[each] ?? DEFAULT_SHARES[each]) * 1_000));
}

/**
 * Compiles the per-key limits. A key may have no limits if the bucket has shared limits, or if other levels have
 * limits.
 */
function keyPolicyOf(where: string, perKey: PerKey, shared: readonly Limit[]): KeyPolicy {
  const compiled = compilePerKey(where, perKey, (path, each, { wider, isOneOfMany }) => {
    const wrong = (remedy: string): InvalidOptionError =>
      new InvalidOptionError({ where, option: path, value: each, remedy });
    if (each instanceof Promise)
      throw wrong("give limits, not a promise of them; a draw cannot wait");
    if (typeof each !== "object" || each === null) {
      throw wrong(
        'give the limits of each key, such as { rate: "5/s" }, a function of the key, or tiers',
      );
    }
    if (Array.isArray(each) || isLimit(each)) {
      throw wrong("give a list of limits as { limits: [...] }");
    }
    return atPath(path, () => {
      const read = readOptions(where, LIMITS, each);
      const isNone = Object.values(read).every((value) => value === undefined);
      const mayBeNone = shared.length > 0 || isOneOfMany;
      if (isNone && mayBeNone) return [];
      const limits = compileLimits(where, read, [...shared, ...wider]);
      if (!limits.some(isShadow)) return limits;
      const remedy = "only limits that all keys share can be shadows; leave it out here";
      throw new InvalidOptionError({ where, option: "shadow", value: true, remedy });
    });
  });
  if (shared.length > 0 || compiled.all?.length !== 0) return compiled;
  const remedy = 'a bucket needs a limit: give one of them a rate, such as "5/s", or limits';
  throw new InvalidOptionError({ where, option: "perKey", value: perKey, remedy });
}

/**
 * Compiles a policy that overrides another one. Each part that the options omit keeps its value: the shared limits, the
 * per-key limits, the shares of priorities, or the turns of keys.
 *
 * @throws {@link InvalidOptionError} as {@link compilePolicy} does, and when the options contain functions or tiers,
 * because only one process has those.
 */
export function compileOver(where: string, given: PolicyOptions, under: Policy): Policy {
  const { members, prefer, stickyBy, stickyMs, ...others } = readOptions(where, POLICY, given);
  const { perKey, shares, fair, ...shared } = others;
  const local = localPart(perKey);
  if (local !== undefined) {
    const remedy =
      "functions and tiers exist only in the code of a process; give limits that are the same for all keys";
    throw new InvalidOptionError({ where, ...local, remedy });
  }
  if (Object.values(given).every((value) => value === undefined)) {
    const remedy = 'give what to change, such as { rate: "20/s" }, or "code"';
    throw new InvalidOptionError({ where, option: "options", value: given, remedy });
  }
  const isSharedGiven = Object.values(shared).some((value) => value !== undefined);
  const { limits, shadows } = isSharedGiven ? sharedOver(where, shared, under) : under;
  const compiled = perKey === undefined ? under.perKey : keyPolicyOf(where, perKey, limits);
  assertSameKind(where, perKey, compiled, under);
  const byPriority = shares === undefined ? under.shares : inPerMille(shares);
  const turns =
    fair === undefined ? fairUnder(under.fair, limits) : compileFair(where, fair, limits);
  const ofPool = { members, prefer, stickyBy, stickyMs };
  const compile = memberCompiler(where, limits);
  const pool =
    under.pool === undefined
      ? noPool(where, ofPool)
      : compilePool(where, ofPool, { under: under.pool, compile, isWhole: true });
  assertSharing(where, fair, { limits, pool });
  const own = { limits, shadows, perKey: compiled, shares: byPriority, fair: turns };
  const policy = makePolicy({ ...own, ...(pool && { pool }) });
  assertInOrder(where, policy);
  return policy;
}

/** @throws {@link InvalidOptionError} when an override of a bucket that is no pool has an option of pools. */
function noPool(where: string, given: Readonly<Record<string, unknown>>): undefined {
  const [option, value] = Object.entries(given).find((each) => each[1] !== undefined) ?? [];
  if (option === undefined) return undefined;
  const remedy = "this bucket is no pool; create the pool with sluice.pool()";
  throw new InvalidOptionError({ where, option, value, remedy });
}

/**
 * Merges the shared limits of an override into the policy that it overrides. If the override contains only shadows, the
 * existing limits stay, because adding a counter must not remove them.
 */
function sharedOver(where: string, given: LimitsOptions, under: Policy): Shared {
  const own = compileShared(where, given);
  return own.limits.length > 0 ? own : { limits: under.limits, shadows: own.shadows };
}

/** Finds a function or a table of tiers in the per-key limits. Only this process would know its results. */
function localPart(perKey: PerKey | undefined): { option: string; value: unknown } | undefined {
  const isLocal = (value: unknown): boolean => typeof value === "function" || isTiers(value);
  if (isLocal(perKey)) return { option: "perKey", value: perKey };
  if (typeof perKey !== "object" || perKey === null) return undefined;
  const entries = Object.entries(perKey) as [string, unknown][];
  const found = entries.find(([, value]) => isLocal(value));
  if (found === undefined) return undefined;
  const [name, value] = found;
  return { option: Array.isArray(perKey) ? `perKey[${name}]` : pathOf("perKey", name, ""), value };
}

/**
 * Rejects an override that switches between `key` and `keys`. The code of each call passes one of the two, and an
 * override cannot change the code.
 */
function assertSameKind(
  where: string,
  value: unknown,
  compiled: KeyPolicy | undefined,
  { perKey: before }: Policy,
): void {
  if ((compiled?.names === undefined) === (before?.names === undefined)) return;
  const remedy =
    compiled?.names === undefined
      ? `calls of this bucket give keys by name; give limits for ${before!.names!.join(", ")}`
      : "calls of this bucket give no keys by name; give limits by level, or declare perKey with names";
  throw new InvalidOptionError({ where, option: "perKey", value, remedy });
}

export function makePolicy(parts: Omit<Policy, "text">): Policy {
  return Object.freeze({ ...parts, text: writePolicyText(parts) });
}

function compileLimits(
  where: string,
  { rate, burst, shadow, concurrency, limits }: LimitsOptions,
  within: readonly Limit[] = [],
): readonly Limit[] {
  const isPaced = [rate, burst, shadow].some((value) => value !== undefined);
  const compiled = [
    ...(isPaced ? [rateLimit(where, { rate, burst, shadow })] : []),
    ...(limits ?? []),
    ...(concurrency === undefined ? [] : [inParallel(where, concurrency)]),
  ];
  if (compiled.length === 0) {
    const remedy = 'a bucket needs a limit: give a rate, such as "100/s", or concurrency or limits';
    const option = limits === undefined ? "rate" : "limits";
    throw new InvalidOptionError({ where, option, value: limits, remedy });
  }
  if (compiled.length > MOST_LIMITS) {
    const remedy = `give at most ${MOST_LIMITS} limits`;
    throw new InvalidOptionError({ where, option: "limits", value: compiled.length, remedy });
  }
  const holding = compiled.filter((limit) => !isShadow(limit));
  for (const limit of holding) assertPossible(where, limit, [...holding, ...within]);
  assertOneBudgetEach(where, compiled);
  return Object.freeze(compiled);
}

/** Rejects a burst that is larger than a window of the same unit, because no call could ever use that burst. */
function assertPossible(where: string, limit: Limit, others: readonly Limit[]): void {
  const { doesDrain = false, capacityName: option } = ruleOf(limit.kind);
  if (!doesDrain) return;
  const least = others.find(
    (other) => isWindow(other) && other.unit === limit.unit && other.capacity < limit.capacity,
  );
  if (least === undefined) return;
  const remedy = `${formatLimit(least)} lets no more than ${least.capacity} pass at once; give a ${option} of ${least.capacity} or less`;
  throw new InvalidOptionError({ where, option, value: limit.capacity, remedy });
}

/** True if a limit counts units per window. */
function isWindow({ kind }: Limit): boolean {
  const { isRate, isBudget = false, doesDrain = false } = ruleOf(kind);
  return isRate && !doesDrain && !isBudget;
}

/** Rejects two budgets of one unit and period at one level, because they would share one balance. */
function assertOneBudgetEach(where: string, limits: readonly Limit[]): void {
  const budgets = limits.filter(({ budget }) => budget !== undefined);
  const names = budgets.map(budgetName);
  const second = budgets.find((limit, index) => names.indexOf(budgetName(limit)) < index);
  if (second === undefined) return;
  const remedy = "there is another budget of this unit and period at this level; keep one of them";
  throw new InvalidOptionError({ where, option: "limits", value: formatLimit(second), remedy });
}

/** Writes the policy as text for other replicas, without the functions and tiers of this process. */
function writePolicyText(parts: Omit<Policy, "text">): string {
  const { limits, shadows, perKey, shares, fair, pool } = parts;
  const inShadow = shadows.length === 0 ? undefined : shadows;
  return JSON.stringify({
    limits,
    perKey: perKey?.text ?? null,
    shares,
    shadows: inShadow,
    fair: fairText(fair),
    pool: poolText(pool),
  });
}

/**
 * Reads a policy that another replica wrote. The functions and tiers for keys come from this process.
 *
 * @throws {@link InvalidOptionError} when this process cannot apply the policy. Calls then fail, so that no call runs
 * without a limit.
 */
export function readPolicyText(where: string, text: string, own: Policy): Policy {
  const {
    perKey,
    shadows = [],
    fair: turns,
    pool: members,
    ...others
  } = parsePolicy(text) ?? unreadable(where, text);
  const fair = readFairText(turns);
  const pool = members && { pool: readPoolText(members) };
  const keyPolicy = perKey === null ? undefined : readPerKeyText(where, perKey, own.perKey);
  if (perKey !== null && keyPolicy === undefined) unreadable(where, text);
  return Object.freeze({ ...others, ...pool, shadows, perKey: keyPolicy, fair, text });
}

/**
 * Reads a policy that the code of other processes declares. The text lacks the results of functions and tiers, which
 * only that code knows. A request for such key limits fails, so that no call runs without a limit.
 *
 * @throws {@link InvalidOptionError} when the text is from another version of this package.
 */
export function readPolicyElsewhere(where: string, text: string): Policy {
  const {
    perKey,
    shadows = [],
    fair: turns,
    pool: members,
    ...read
  } = parsePolicy(text) ?? unreadable(where, text);
  const fair = readFairText(turns);
  const others = { ...read, ...(members && { pool: readPoolText(members) }) };
  if (perKey === null) return Object.freeze({ ...others, shadows, perKey: undefined, fair, text });
  const unknown = (): never => {
    const remedy =
      "only the code of other processes knows the limits of its keys, since they are functions or tiers; draw there";
    throw new InvalidOptionError({ where, option: "perKey", value: "a function", remedy });
  };
  const readWith = (ofUnknown: () => LimitsOptions): Policy => {
    const optionOf = (part: PartText): LimitsOptions | (() => LimitsOptions) =>
      part === true ? ofUnknown : { limits: [...part] };
    const options = optionsOfText(perKey, optionOf) as PerKey;
    return { ...others, shadows, perKey: keyPolicyOf(where, options, others.limits), fair, text };
  };
  return Object.freeze({ ...readWith(unknown), asKnown: readWith(() => ({})) });
}

/**
 * Returns the shared limits that the code of other processes declares. Returns undefined if the text is from another
 * version of this package.
 */
export function limitsElsewhere(text: string): readonly Limit[] | undefined {
  return parsePolicy(text)?.limits;
}

interface PolicyText {
  readonly limits: Limit[];
  readonly perKey: PerKeyText | null;
  readonly shares: number[];
  readonly shadows?: Limit[];
  readonly fair?: FairText;
  readonly pool?: PoolText;
}

function parsePolicy(text: string): PolicyText | undefined {
  const areLimits = (value: unknown): boolean => Array.isArray(value) && value.every(isLimit);
  try {
    const read = JSON.parse(text) as PolicyText;
    const { limits, perKey, shares, shadows = [], fair, pool } = read;
    const isShared =
      areLimits([...limits, ...shadows]) &&
      Array.isArray(shares) &&
      shares.length === PRIORITIES.length &&
      isFairText(fair);
    const isKeyed = perKey === null || isPerKeyText(perKey, areLimits);
    const arePooled = pool === undefined || pool.members.every((each) => areLimits(each.limits));
    const isSome = limits.length + shadows.length > 0 || perKey !== null || pool !== undefined;
    return isShared && isKeyed && isSome && arePooled ? read : undefined;
  } catch {
    // The text is not JSON. The caller reports this.
    return undefined;
  }
}

function unreadable(where: string, text: string): never {
  const remedy =
    "another replica put this policy in force, and this one cannot apply it; run the same version of your code on all replicas";
  throw new InvalidOptionError({ where, option: "policy", value: text, remedy });
}
