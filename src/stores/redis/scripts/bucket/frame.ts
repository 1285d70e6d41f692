/**
 * The parts that all scripts of a bucket share: keys, limits, and numbers for one argument.
 */
import { budgetNumbers } from "../../../../core/limits/budget.ts";
import { adaptiveNumbers, ruleOf } from "../../../../core/limits/registry.ts";
import { ADAPTIVE_REASONS, type AdaptiveWindow, type Limit } from "../../../../core/limits/rule.ts";
import type { KnownTerms, ScopesRequest } from "../../../../core/store.ts";
import { bucketKeys } from "../keys.ts";

/** The input fields that all scripts of a bucket have in common. */
export interface Frame {
  readonly prefix: string;
  /** A fixed time for tests, in µs. In production, the script uses the server's time. */
  readonly pinnedUs?: number;
}

export function frameKeys(
  { prefix, bucket, terms, scopes }: ScopesRequest & Frame,
  shadows?: readonly Limit[],
): string[] {
  return bucketKeys(prefix, bucket, terms.limits, scopes, shadows);
}

/** Returns the numbers of the policy and the keys, as `lua/lib/request/request.lua` reads them. */
export function frameNumbers({ terms, scopes }: Pick<ScopesRequest, "terms" | "scopes">): number[] {
  const keys = scopes.flatMap(({ limits }) => limitsNumbers(limits));
  return [...termsNumbers(terms), scopes.length, ...keys];
}

/**
 * Returns the numbers of the policy, as `read_terms` in `lua/lib/request/request.lua` reads them.
 */
export function termsNumbers({ version, shares, limits }: KnownTerms): number[] {
  return [version, ...shares, ...limitsNumbers(limits)];
}

/**
 * Returns the numbers of shadow limits, which only count calls. They come at the end of a request,
 * where `read_shadows` in `lua/lib/draw/shadows.lua` reads them.
 */
export function shadowsNumbers({ shadows = [] }: Pick<KnownTerms, "shadows">): number[] {
  return shadows.length === 0 ? [] : limitsNumbers(shadows);
}

/**
 * Returns the numbers of limits, as `read_limits` in `lua/lib/limits/read-limits.lua` reads them.
 */
export function limitsNumbers(limits: readonly Limit[]): number[] {
  const numbers = [limits.length];
  for (const limit of limits) {
    const { kind, count, periodUs, capacity, resets = [] } = limit;
    numbers.push(ruleOf(kind).code, count, periodUs, capacity, resets.length, ...resets);
    if (limit.budget !== undefined) numbers.push(...budgetNumbers(limit));
    if (limit.adaptive !== undefined) numbers.push(...adaptiveNumbers(limit));
  }
  return numbers;
}

/** Converts -1 to Infinity: a script replies -1 for a time that is unknown. */
export function orInfinity(us: number): number {
  return us === -1 ? Infinity : us;
}

/** Reads the state of a limit that adapts, in the order of `ADAPTIVE` in `lua/lib/limits/adaptive/window.lua`. */
export function adaptiveWindow(fields: readonly number[]): AdaptiveWindow {
  const [bound, value, baselineUs, recentUs, , reason, windows] = fields;
  return {
    bound: bound!,
    value: value! / 1_000,
    baselineUs: baselineUs!,
    recentUs: recentUs!,
    reason: ADAPTIVE_REASONS[reason! - 1]!,
    windows: windows!,
  };
}
