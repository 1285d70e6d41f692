import { reasonOf } from "../../core/describe.ts";
import { ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { MOST_RETURNED, type KeyScope, type Place } from "../../core/store.ts";
import type { BucketContext } from "../known-policy.ts";
import type { Group } from "./group.ts";
import type { HeldSlot } from "../slot/held-slots.ts";

/** What no caller here needs any more, and another replica can use: slots, and places in lines. */
interface Unneeded {
  /** The generation of the slots. */
  readonly generation: number;
  readonly group: Group;
  readonly slots: readonly HeldSlot[];
  /** In the line of the bucket, and in those of the keys of the group. */
  readonly place: Place;
  readonly scopes: readonly KeyScope[];
}

/** Gives back slots whose time has yet to come, and places. Never rejects. */
export function giveBack(
  context: BucketContext,
  { generation, group, slots, place, scopes }: Unneeded,
): Promise<void> {
  const { store, bucket, asker, known, count } = context;
  const { name, callTerms } = group;
  const slotsUs = slots.map(({ slotUs }) => slotUs).slice(0, MOST_RETURNED);
  if (slotsUs.length > 0) count("returned", slotsUs.length);
  const wish = { name, scopes, costs: callTerms.costs };
  const { terms } = known;
  const request = { bucket, asker, terms, generation, place, wish, slotsUs };
  return sent(store.giveBack(request), context);
}

const MOST_REFUNDS = 20;

/**
 * Gives back what slots that were not used in time took of quotas, and of units such as tokens; the time itself is gone.
 * Resolves when that is done. Never rejects.
 */
export async function refundUnused(
  context: BucketContext,
  { scopes, callTerms }: Group,
  slots: readonly HeldSlot[],
): Promise<void> {
  const { store, bucket, known, count } = context;
  if (slots.length > 0) count("late", slots.length);
  const { limits, shared, costs, text } = callTerms;
  /** As if the call had left and taken nothing. */
  const isSettled = limits.map((limit, index) => isOfUnits(limit) && costs[index]! > 0);
  const isReturned = limits.map(
    (limit, index) => !isSettled[index] && (index >= shared.length || isQuota(limit)),
  );
  const parts = [
    { isIncluded: isReturned, isUnused: true },
    { isIncluded: isSettled, isUnused: false },
  ].filter(({ isIncluded }) => isIncluded.includes(true));
  if (parts.length === 0 || text !== known.terms.text) return;
  const counts = new Map<number, number>();
  for (const { slotUs } of slots) counts.set(slotUs, (counts.get(slotUs) ?? 0) + 1);
  // A burst lies on one moment; slots that are spread over many moments are not worth a request each.
  const largest = [...counts].sort(([, a], [, b]) => b - a).slice(0, MOST_REFUNDS);
  const settled = largest.flatMap(([slotUs, count]) =>
    parts.map(({ isIncluded, isUnused }) => {
      const deltas = costs.map((cost, index) => (isIncluded[index] ? -count * cost : 0));
      const { terms } = known;
      const request = { bucket, terms, scopes, deltas, slotUs, isUnused };
      return sent(store.settle(request), context);
    }),
  );
  await Promise.all(settled);
}

/** What cannot be given back is wasted, one horizon at most; no caller waits for it. */
async function sent(sending: Promise<void>, { bucket, logger }: BucketContext): Promise<void> {
  try {
    await sending;
  } catch (error) {
    logger.warn({ bucket, reason: reasonOf(error) }, "Unused slots could not be given back.");
  }
}

/** Whether a limit counts what calls use, such as tokens, in a time that drains evenly. A late slot has used none. */
function isOfUnits({ kind, unit }: Limit): boolean {
  const { isRate, doesDrain } = ruleOf(kind);
  return isRate && doesDrain === true && unit !== "calls";
}

/**
 * Whether a limit counts what was used in a time. What all keys share and drains evenly
 * cannot be given back afterwards: it may have drained since, and others are booked
 * behind it. A key's own may be: a slow one would lose an hour for a slot 10 ms late.
 */
function isQuota({ kind }: Limit): boolean {
  const { isRate, doesDrain } = ruleOf(kind);
  return isRate && doesDrain !== true;
}
