import type { Limit } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";

/** The highest level that whole numbers hold with room to spare. */
const MAX_LEVEL = 2 ** 51;

/**
 * The part of a limit that one process of several may use by itself, rounded down; undefined if nothing
 * may pass. Buckets keep their count and get a longer period; windows get a smaller count, and one that
 * would come to less than one call lets one pass in a longer window.
 */
export function partOfLimit(limit: Limit, part: number): Limit | undefined {
  const { kind, align } = limit;
  const { isRate, doesDrain = false } = ruleOf(kind);
  if (doesDrain)
    return checked(slower(limit, part, Math.max(1, Math.floor(limit.capacity * part))));
  const count = Math.floor(limit.count * part);
  if (count >= 1) return { ...limit, count, capacity: count };
  // Whether a call runs, or a day begins, cannot be stretched.
  if (!isRate || align !== undefined) return undefined;
  return checked(slower({ ...limit, count: 1 }, limit.count * part, 1));
}

function slower(limit: Limit, part: number, capacity: number): Limit {
  return { ...limit, periodUs: Math.ceil(limit.periodUs / part), capacity };
}

/** So slow a limit lets nothing pass while an outage lasts. */
function checked(limit: Limit): Limit | undefined {
  const isWhole = Number.isSafeInteger(limit.periodUs);
  return isWhole && limit.capacity * limit.periodUs <= MAX_LEVEL ? limit : undefined;
}
