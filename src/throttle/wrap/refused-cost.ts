import type { Cost } from "../costs.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";
import type { SettledCost } from "../call-options.ts";
import type { Slot } from "../slot/slot.ts";

/**
 * What a refused call cost in the end: none of what it was estimated to take, but the call itself, which most
 * downstreams count all the same. Undefined if it was not refused, or was estimated as calls only. After a 503 or a
 * 403 the estimate holds: work may have begun.
 */
export function refusedCost(
  { heard, answer }: ReportedOutcome,
  cost: Cost | undefined,
): SettledCost | undefined {
  if (!answer.refused || !isUnused(heard.status) || typeof cost !== "object") return undefined;
  const units = Object.keys(cost).filter((unit) => unit !== "calls");
  return units.length === 0 ? undefined : Object.fromEntries(units.map((unit) => [unit, 0]));
}

function isUnused(status: number | undefined): boolean {
  return status !== 503 && status !== 403;
}

/** Gives back what a refused call did not take. Never rejects. */
export async function settleRefused(
  outcome: ReportedOutcome,
  slot: Slot,
  cost: Cost | undefined,
): Promise<void> {
  const unused = refusedCost(outcome, cost);
  // By now the policy may have changed, and may not count these units any more.
  if (unused !== undefined) await slot.settle(unused).catch(() => {});
}
