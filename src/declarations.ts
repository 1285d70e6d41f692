import { isDeepStrictEqual } from "node:util";
import { describeValue } from "./core/describe.ts";
import { InvalidOptionError } from "./core/errors.ts";
import { formatPolicy, type Policy, type PolicyOptions } from "./core/policy/policy.ts";

/** The options that a bucket or a queue was declared with. */
export type Declaration = Readonly<Record<string, unknown>>;

/**
 * A later declaration of the same name would have no effect: what it names must be what the first
 * one did, and what it leaves out stays. Values and tables are compared by what they hold; what
 * functions and schemas do nobody can tell, so they have to be the same ones.
 *
 * @throws {@link InvalidOptionError} when an option is another.
 */
export function assertSame(
  where: string,
  what: "bucket" | "queue",
  { first, later }: { readonly first: Declaration; readonly later: Declaration },
): void {
  for (const [option, value] of Object.entries(later)) {
    if (value === undefined || isSame(value, first[option])) continue;
    const remedy = isSameText(value, first[option])
      ? `this sluice has made the ${what} before, with other functions or schemas of the same text; make it once, and keep it`
      : `this sluice has made the ${what} with another before; give it one`;
    throw new InvalidOptionError({ where, option, value, remedy });
  }
}

/** @throws {@link InvalidOptionError} when a later declaration of a bucket gives it another policy. */
export function assertSamePolicy(
  where: string,
  given: PolicyOptions,
  { first, later }: { readonly first: Policy; readonly later: Policy },
): void {
  if (later.text === first.text) return;
  const option = differing(given, first, later);
  const remedy = `this sluice has given the bucket ${formatPolicy(first)} before; give it one policy`;
  throw new InvalidOptionError({ where, option, value: given[option], remedy });
}

/** The option that makes the difference. */
function differing({ rate }: PolicyOptions, first: Policy, later: Policy): keyof PolicyOptions {
  if (!isDeepStrictEqual(first.limits, later.limits)) return rate === undefined ? "limits" : "rate";
  return isDeepStrictEqual(first.shares, later.shares) ? "perKey" : "shares";
}

/** Whether an error would show both as one, and no part of them is cut off. */
function isSameText(value: unknown, other: unknown): boolean {
  const text = describeValue(value);
  return text === describeValue(other) && !text.includes("…");
}

function isSame(value: unknown, other: unknown): boolean {
  return value === other || (isTable(value) && isDeepStrictEqual(value, other));
}

function isTable(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
