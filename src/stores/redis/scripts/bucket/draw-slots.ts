/** Helpers for the draw scripts: choose the script for a request, and read its refusals. */
import type { CostTooLargeError } from "../../../../core/errors.ts";
import { costTooLarge } from "../../../../core/limits/registry.ts";
import { limitsOfCall, type DrawReply, type DrawRequest } from "../../../../core/store.ts";
import { refusalOf, type Script } from "../script.ts";
import { planScopesTry, scopesTry } from "./scopes-try.ts";
import type { SlotsDraw } from "./slots-draw.ts";
import { isPlainTry, slotsTry } from "./slots-try.ts";

/**
 * Runs `slots-try` or `scopes-try` if one of them can serve the request. Returns undefined if
 * neither can.
 */
export function runPlainTry<Reply>(
  input: SlotsDraw,
  run: <Input extends SlotsDraw>(
    script: Script<Input, DrawReply | undefined>,
    input: Input,
  ) => Reply,
): Reply | undefined {
  if (input.pool !== undefined) return undefined;
  if (isPlainTry(input)) return run(slotsTry, input);
  const planned = planScopesTry(input);
  return planned && run(scopesTry, planned);
}

/**
 * Converts a script's refusal to an error if a call costs more than a limit can ever allow. Returns
 * undefined for any other error.
 */
export function readCostTooLarge(
  error: unknown,
  { bucket, terms, slotRequests }: Pick<DrawRequest, "bucket" | "terms" | "slotRequests">,
): CostTooLargeError | undefined {
  const refusal = refusalOf(error);
  if (refusal?.reason !== "COST_TOO_LARGE") return undefined;
  const [cost, maxCost] = refusal.detail.split(" ").map(Number) as [number, number];
  const limits = slotRequests.flatMap(({ scopes, costs }) =>
    limitsOfCall(terms.limits, scopes).filter((_limit, index) => costs[index] === cost),
  );
  const limit = limits.find(({ capacity }) => capacity === maxCost);
  return limit && costTooLarge(bucket, cost, limit);
}
