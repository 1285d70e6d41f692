import { InvalidOptionError } from "../core/errors.ts";
import type { Policy } from "../core/policy/policy.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Knowledge } from "./known-terms.ts";

/** Where a unit was named: `cost.tokens` of `draw()`. */
export interface Naming {
  readonly where: string;
  /** What stands before a unit's name in an option: `"cost."`. */
  readonly path: string;
  readonly byUnit: Readonly<Record<string, unknown>>;
  /** Whether the call may be for a key. */
  readonly isKeyed: boolean;
}

/**
 * Checks that each unit is counted by some limit of some policy: by one in force, by what the code says, or by
 * that of another tier. A name that none of them knows is a slip of the pen; one that no limit counts at present
 * costs nothing, or a live change that leaves a unit out would fail all who wait.
 *
 * @throws {@link InvalidOptionError} when a unit is named that none of them counts.
 */
export function assertCounted(
  bucket: string,
  policies: readonly Policy[],
  { where, path, byUnit, isKeyed }: Naming,
): void {
  for (const unit of Object.keys(byUnit)) {
    if (unit === "calls" || policies.some((policy) => counts(policy, unit, isKeyed))) continue;
    const limits = policies.flatMap((policy) => [...policy.limits, ...(policy.perKey?.all ?? [])]);
    const units = [...new Set(limits.map((limit) => limit.unit))].join(", ");
    const remedy = `no limit of bucket "${bucket}" counts it; the units are ${units}`;
    throw new InvalidOptionError({ where, option: `${path}${unit}`, value: byUnit[unit], remedy });
  }
}

/** Checks the units of a call's cost, by all policies that are known. */
export function createUnitCheck(
  bucket: string,
  known: Knowledge,
): (where: string, options: TryOptions) => void {
  return (where, { key, cost }) => {
    if (typeof cost !== "object") return;
    const named = { where, path: "cost.", byUnit: cost, isKeyed: key !== undefined };
    assertCounted(bucket, [known.policy, known.declared], named);
  };
}

/** Where only a function tells the limits of keys, it may name any unit some day. */
function counts({ limits, perKey }: Policy, unit: string, isKeyed: boolean): boolean {
  if (limits.some((limit) => limit.unit === unit)) return true;
  if (perKey === undefined) return false;
  return perKey.all === undefined ? isKeyed : perKey.all.some((limit) => limit.unit === unit);
}
