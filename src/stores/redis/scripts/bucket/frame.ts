/** The parts that the scripts of a bucket have in common: keys, limits, and numbers packed into one argument. */
import { ruleOf } from "../../../../core/limits/registry.ts";
import type { Limit } from "../../../../core/limits/rule.ts";
import type { KnownTerms, ScopesRequest } from "../../../../core/store.ts";
import { bucketKeys } from "../keys.ts";

/** The fields that each script of a bucket receives in addition to its own. */
export interface Frame {
  readonly prefix: string;
  /** Set by tests only; production leaves the time to the server. */
  readonly pinnedUs?: number;
}

export function frameKeys(
  { prefix, bucket, terms, scopes }: ScopesRequest & Frame,
  shadows?: readonly Limit[],
): string[] {
  return bucketKeys(prefix, bucket, terms.limits, scopes, shadows);
}

/** The policy and the keys, as `lua/lib/request/request.lua` reads them. */
export function frameNumbers({ terms, scopes }: Pick<ScopesRequest, "terms" | "scopes">): number[] {
  const keys = scopes.flatMap(({ limits }) => limitsNumbers(limits));
  return [...termsNumbers(terms), scopes.length, ...keys];
}

/** Whole numbers in one argument, as doubles: Redis reads twenty of them faster than it parses twenty strings. */
export function packNumbers(numbers: readonly number[]): Buffer {
  const doubles = Float64Array.from(numbers);
  return Buffer.from(doubles.buffer);
}

/** The policy, as `read_terms` in `lua/lib/request/request.lua` reads it. */
export function termsNumbers({ version, shares, limits }: KnownTerms): number[] {
  return [version, ...shares, ...limitsNumbers(limits)];
}

/** Limits that only count, at the end of a request; `read_shadows` in `lua/lib/draw/shadows.lua` reads them. */
export function shadowsNumbers({ shadows = [] }: Pick<KnownTerms, "shadows">): number[] {
  return shadows.length === 0 ? [] : limitsNumbers(shadows);
}

/** Limits, as `read_limits` in `lua/lib/limits/read-limits.lua` reads them. */
export function limitsNumbers(limits: readonly Limit[]): number[] {
  const numbers = [limits.length];
  for (const { kind, count, periodUs, capacity, resets = [] } of limits) {
    numbers.push(ruleOf(kind).code, count, periodUs, capacity, resets.length, ...resets);
  }
  return numbers;
}

/** The scripts reply -1 for a time that cannot be known. */
export function orInfinity(us: number): number {
  return us === -1 ? Infinity : us;
}
