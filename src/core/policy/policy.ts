import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import type { RateInput } from "../limits/rate.ts";
import { formatLimit } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import { PRIORITIES, readOptions, type Priority } from "../options.ts";
import { inParallel, isLimit, rateLimit, type LimitsOptions } from "./limit-makers.ts";
import { compilePerKey, isTiers, type KeyPolicy, type PerKey } from "./per-key.ts";

/** What a bucket is told about its downstream. */
export interface PolicyOptions extends LimitsOptions {
  /** Limits that each key has for itself: the same for all, by a function of the key, or from a table of tiers. */
  readonly perKey?: PerKey | undefined;
  /** How much of the horizon each priority may fill. Defaults to `{ low: 0.7, normal: 0.8, high: 0.9, critical: 1 }`. */
  readonly shares?: Partial<Readonly<Record<Priority, number>>> | undefined;
}

/** A policy in whole numbers. */
export interface Policy {
  /** What all keys share. */
  readonly limits: readonly Limit[];
  readonly perKey: KeyPolicy | undefined;
  /** Per mille of the horizon, in the order of `PRIORITIES`. */
  readonly shares: readonly number[];
  /** What tells two policies apart, and what other replicas learn this one by. */
  readonly text: string;
}

/** The policy as errors and warnings name it: `"100/s with a burst of 5"`, `"500/min + 25 at once; per key 5/s"`. */
export function formatPolicy({ limits, perKey }: Policy): string {
  const shared = limits.map(formatLimit).join(" + ");
  if (perKey === undefined) return shared;
  const each = perKey.fixed?.map(formatLimit).join(" + ") ?? "by its tier";
  return [shared, `per key ${each}`].filter((part) => part !== "").join("; ");
}

const DEFAULT_SHARES = { critical: 1, high: 0.9, normal: 0.8, low: 0.7 };
const SHARE_ERROR = { error: "give a part of the horizon, above 0 and up to 1" };
const SHARE = z.number(SHARE_ERROR).min(0.01, SHARE_ERROR).max(1, SHARE_ERROR).optional();
const SHARES = z.strictObject({ critical: SHARE, high: SHARE, normal: SHARE, low: SHARE });
const LIMIT_ERROR = {
  error:
    "give what leakyBucket(), tokenBucket(), slidingLog(), slidingWindow(), fixedWindow() or concurrency() returned",
};
const LIMITS_SHAPE = {
  rate: z.custom<RateInput>().optional(),
  burst: z.custom<number>().optional(),
  concurrency: z.custom<number>().optional(),
  limits: z.array(z.custom<Limit>(isLimit, LIMIT_ERROR), LIMIT_ERROR).optional(),
};
const LIMITS = z.strictObject(LIMITS_SHAPE);
const POLICY = z.strictObject({
  ...LIMITS_SHAPE,
  perKey: z.custom<PerKey>().optional(),
  shares: SHARES.optional(),
});
/** A draw looks at all of them, in one script. */
const MOST_LIMITS = 8;

/**
 * Compiles a bucket's options into whole numbers.
 *
 * @throws {@link InvalidOptionError} when they can never work, or contradict each other.
 */
export function compilePolicy(where: string, given: unknown): Policy {
  const { perKey, shares, ...shared } = readOptions(where, POLICY, given);
  const isPerKeyOnly = perKey !== undefined && Object.values(shared).every((v) => v === undefined);
  const limits = isPerKeyOnly ? [] : compileLimits(where, shared);
  const keyPolicy = perKey === undefined ? undefined : keyPolicyOf(where, perKey, limits);
  return makePolicy(limits, keyPolicy, inPerMille(shares));
}

function inPerMille(shares: Partial<Record<Priority, number | undefined>> | undefined): number[] {
  return PRIORITIES.map((each) => Math.floor((shares?.[each] ?? DEFAULT_SHARES[each]) * 1_000));
}

/** The limits of each key; beside shared ones, a key may have none. */
function keyPolicyOf(where: string, perKey: PerKey, shared: readonly Limit[]): KeyPolicy {
  return compilePerKey(where, perKey, (path, each) => {
    const wrong = (remedy: string): InvalidOptionError =>
      new InvalidOptionError({ where, option: path, value: each, remedy });
    if (each instanceof Promise) throw wrong("give limits at once: a draw cannot wait for them");
    if (typeof each !== "object" || each === null) {
      throw wrong(
        'give the limits of each key, such as { rate: "5/s" }, a function of it, or tiers',
      );
    }
    if (Array.isArray(each)) throw wrong("give a list of limits as { limits: [...] }");
    const at = `${where}: ${path}`;
    const read = readOptions(at, LIMITS, each);
    const isNone = Object.values(read).every((value) => value === undefined);
    return isNone && shared.length > 0 ? [] : compileLimits(at, read, shared);
  });
}

/**
 * A policy that is put over another: what it leaves out stays, be it what all keys
 * share, what each key has, or the priorities' shares.
 *
 * @throws {@link InvalidOptionError} as {@link compilePolicy} does, and for what only one process can tell.
 */
export function compileOver(where: string, given: PolicyOptions, under: Policy): Policy {
  const { perKey, shares, ...shared } = readOptions(where, POLICY, given);
  if (typeof perKey === "function" || isTiers(perKey)) {
    const remedy =
      "functions and tiers live in the code of each process: give limits that are the same for all keys";
    throw new InvalidOptionError({ where, option: "perKey", value: perKey, remedy });
  }
  if (Object.values(given).every((value) => value === undefined)) {
    const remedy = 'name what is to change, such as { rate: "20/s" }, or give "code"';
    throw new InvalidOptionError({ where, option: "options", value: given, remedy });
  }
  const isSharedGiven = Object.values(shared).some((value) => value !== undefined);
  const limits = isSharedGiven ? compileLimits(where, shared) : under.limits;
  const compiled = perKey === undefined ? under.perKey : keyPolicyOf(where, perKey, limits);
  const inOrder = shares === undefined ? under.shares : inPerMille(shares);
  return makePolicy(limits, compiled, inOrder);
}

export function makePolicy(
  limits: readonly Limit[],
  perKey: KeyPolicy | undefined,
  shares: readonly number[],
): Policy {
  const text = writePolicyText(limits, perKey, shares);
  return Object.freeze({ limits, perKey, shares, text });
}

function compileLimits(
  where: string,
  { rate, burst, concurrency, limits }: LimitsOptions,
  within: readonly Limit[] = [],
): readonly Limit[] {
  const isPaced = rate !== undefined || burst !== undefined;
  const compiled = [
    ...(isPaced ? [rateLimit(where, rate, burst)] : []),
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
  for (const limit of compiled) assertPossible(where, limit, [...compiled, ...within]);
  return Object.freeze(compiled);
}

/** A burst that a window of the same unit could never hold promises what no call can get. */
function assertPossible(where: string, limit: Limit, others: readonly Limit[]): void {
  if (!limit.kind.endsWith("bucket")) return;
  const least = others.find(
    ({ kind, unit, capacity }) =>
      /^(sliding|fixed)/.test(kind) && unit === limit.unit && capacity < limit.capacity,
  );
  if (least === undefined) return;
  const option = limit.kind === "token-bucket" ? "capacity" : "burst";
  const remedy = `${formatLimit(least)} lets no more than ${least.capacity} pass at once; give a ${option} of ${least.capacity} or less`;
  throw new InvalidOptionError({ where, option, value: limit.capacity, remedy });
}

/** What other replicas learn a policy by; what only this process can tell of keys is left out. */
function writePolicyText(
  limits: readonly Limit[],
  perKey: KeyPolicy | undefined,
  shares: readonly number[],
): string {
  return JSON.stringify({ limits, perKey: perKey?.fixed ?? perKey?.isLocal ?? null, shares });
}

/**
 * Reads what another replica made of its policy; functions of keys stay those of this process.
 *
 * @throws {@link InvalidOptionError} when this process cannot hold to it: calls fail rather than go unlimited.
 */
export function readPolicyText(where: string, text: string, own: Policy): Policy {
  const { limits, perKey, shares } = parsePolicy(text) ?? unreadable(where, text);
  const fixed = Array.isArray(perKey) ? perKey : undefined;
  const fixedPolicy = fixed && { limitsOf: () => fixed, fixed, all: fixed, isLocal: false };
  const keyPolicy = perKey === true ? own.perKey : fixedPolicy;
  if (perKey === true && keyPolicy === undefined) unreadable(where, text);
  return Object.freeze({ limits, perKey: keyPolicy, shares, text });
}

interface PolicyText {
  readonly limits: Limit[];
  readonly perKey: Limit[] | true | null;
  readonly shares: number[];
}

function parsePolicy(text: string): PolicyText | undefined {
  const areLimits = (value: unknown): boolean => Array.isArray(value) && value.every(isLimit);
  try {
    const read = JSON.parse(text) as PolicyText;
    const { limits, perKey, shares } = read;
    const isShared =
      areLimits(limits) && Array.isArray(shares) && shares.length === PRIORITIES.length;
    const isKeyed = perKey === true || perKey === null || areLimits(perKey);
    return isShared && isKeyed && (limits.length > 0 || perKey !== null) ? read : undefined;
  } catch {
    // No JSON: told as what it is, by the caller.
    return undefined;
  }
}

function unreadable(where: string, text: string): never {
  const remedy =
    "another replica has put it in force and this one cannot hold to it; give all replicas the same version of your code";
  throw new InvalidOptionError({ where, option: "policy", value: text, remedy });
}
