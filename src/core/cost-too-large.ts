import { CostTooLargeError } from "./errors.ts";
import { formatLimit } from "./format-limit.ts";
import type { Limit } from "./limits/limit.ts";

/** What is told of a call that costs more than a limit of its bucket could ever give at once. */
export function costTooLarge(bucket: string, cost: number, limit: Limit): CostTooLargeError {
  const { unit, capacity: maxCost } = limit;
  return new CostTooLargeError({ bucket, cost, unit, maxCost, limitedBy: formatLimit(limit) });
}
