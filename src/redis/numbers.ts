import { ruleOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import type { KnownTerms } from "../core/store.ts";

/** Whole numbers in one argument, as doubles: to read twenty costs Redis less than to parse twenty. */
export function packNumbers(numbers: readonly number[]): Buffer {
  const doubles = Float64Array.from(numbers);
  return Buffer.from(doubles.buffer);
}

/** What `read_terms` in `lua/lib/request.lua` reads. */
export function termsNumbers({ version, shares, limits }: KnownTerms): number[] {
  return [version, ...shares, ...limitsNumbers(limits)];
}

/** What `read_limits` in `lua/lib/limits.lua` reads. */
export function limitsNumbers(limits: readonly Limit[]): number[] {
  const numbers = [limits.length];
  for (const { kind, count, periodUs, capacity, resets = [] } of limits) {
    numbers.push(ruleOf(kind).code, count, periodUs, capacity, resets.length, ...resets);
  }
  return numbers;
}

/** Lua has no other way to say that nobody can tell a time. */
export function orInfinity(us: number): number {
  return us === -1 ? Infinity : us;
}
