import { InvalidOptionError } from "../core/errors.ts";
import { keyLimitsOf } from "../core/per-key.ts";
import type { Policy } from "../core/policy.ts";
import { costsOf } from "./costs.ts";
import type { TryOptions } from "./draw-options.ts";
import { createGroup, type Group } from "./group.ts";
import type { SlotKeeper } from "./slot.ts";

/** The groups of one bucket: calls of one key and cost are interchangeable. */
export interface Groups {
  /**
   * @throws {@link InvalidOptionError} when a unit or a tier is unknown, or the bucket's limits are all per key and none is given.
   * @throws {@link CostTooLargeError} when the call could never pass.
   */
  of(options: TryOptions): Group;
  /** Another policy is in force: all groups are made anew. */
  clear(): void;
}

/** So many are kept before those in which nobody waits are dropped. */
const LEAST_SWEPT = 1_000;

export function createGroups(keeper: SlotKeeper, policy: () => Policy): Groups {
  const { name: bucket } = keeper;
  const groups = new Map<string, Group>();
  const byKey = new Map<string, Group>();
  let plain: Group | undefined;
  let sweepAt = LEAST_SWEPT;

  function forgetIdle(): void {
    byKey.clear();
    for (const [name, { line, held }] of groups) {
      if (line.size === 0 && held.size === 0) groups.delete(name);
    }
    // To look at all of them for each new one would cost more than they do.
    sweepAt = Math.max(LEAST_SWEPT, 2 * groups.size);
  }

  function find({ key, cost }: TryOptions): Group {
    const inForce = policy();
    const { limits: shared, perKey, text } = inForce;
    if (perKey !== undefined && shared.length === 0 && key === undefined) {
      const remedy = "all limits of the bucket are per key: say whom the call is for";
      throw new InvalidOptionError({
        where: `bucket("${bucket}")`,
        option: "key",
        value: key,
        remedy,
      });
    }
    const keyLimits = keyLimitsOf(inForce, key);
    const limits = [...shared, ...keyLimits];
    const costs = costsOf(bucket, limits, cost);
    const own = keyLimits.length > 0 ? key : undefined;
    const name = `${costs.join(" ")} ${own ?? ""}`;
    const found = groups.get(name);
    // A tier's limits may have changed since.
    const isSame = found?.keyLimits === keyLimits || keyLimits.length === 0;
    if (found !== undefined && isSame) return found;
    if (groups.size >= sweepAt) forgetIdle();
    const group = createGroup({ keeper, name, key: own, keyLimits, shared, costs, text });
    groups.set(name, group);
    return group;
  }

  /** Calls that say no more than whom they are for, under limits that are the same for all keys. */
  function findByKey(key: string): Group | undefined {
    const { perKey } = policy();
    if (perKey === undefined) return (plain ??= find({}));
    return perKey.fixed === undefined ? undefined : byKey.get(key);
  }

  return {
    of(options) {
      const { key, cost } = options;
      if (cost !== undefined) return find(options);
      if (key === undefined) return (plain ??= find(options));
      const known = findByKey(key);
      if (known !== undefined) return known;
      const group = find(options);
      if (group.key === key) byKey.set(key, group);
      return group;
    },
    clear() {
      groups.clear();
      byKey.clear();
      plain = undefined;
    },
  };
}
