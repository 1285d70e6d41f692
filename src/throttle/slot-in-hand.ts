import { AsyncLocalStorage } from "node:async_hooks";
import { HORIZON_MS } from "../core/policy/limit-makers.ts";
import type { TryOptions } from "./draw-options.ts";
import type { Slot } from "./slot.ts";

interface SlotInHand {
  /** Which bucket it came from; two sluices may each have one of the same name. */
  readonly bucket: object;
  readonly slot: Slot;
  /** On `performance.now()`; from then on the slot is stale, and the call draws anew. */
  readonly staleAtMs: number;
  isUsed: boolean;
}

const inHand = new AsyncLocalStorage<SlotInHand>();

/**
 * Runs a handler that was started by a slot, and lets the first call that it
 * makes through the same bucket, within one horizon, leave on that slot:
 * otherwise each job whose handler calls a throttled client would take two.
 */
export function withSlotInHand<T>(
  { bucket, slot }: { bucket: object; slot: Slot },
  handler: () => T,
): T {
  const staleAtMs = performance.now() + HORIZON_MS;
  return inHand.run({ bucket, slot, staleAtMs, isUsed: false }, handler);
}

/**
 * The slot in hand, if this is the first call through its bucket, it is not stale, and was drawn for such a call.
 * If it does not fit, its lease is given back: a handler that kept it while it waits for another could wait for itself.
 */
export function takeSlotInHand(bucket: object, options: TryOptions): Slot | undefined {
  const hand = inHand.getStore();
  if (hand === undefined || hand.isUsed || hand.bucket !== bucket) return undefined;
  const doesFit = fits(hand, options);
  hand.isUsed = doesFit || hand.slot.hasLease;
  if (doesFit) return hand.slot;
  hand.slot.release();
  return undefined;
}

function fits({ slot, staleAtMs }: SlotInHand, { key, cost = 1 }: TryOptions): boolean {
  return cost === 1 && (key === undefined || key === slot.key) && performance.now() < staleAtMs;
}
