import { advance, type BucketState } from "./bucket-state.ts";
import { addHoles, type Hole } from "./holes.ts";
import { drainUs } from "./limits/leaky-bucket.ts";
import type { ReturnRequest } from "./store.ts";

/**
 * Takes slots back. The last one booked is simply unbooked; one with others
 * behind it becomes a hole that the next draw takes first, since to move the
 * level would put a new slot on a time that is already booked.
 * Twin of `lua/slots-return.lua`.
 */
export function giveBack(
  found: BucketState,
  request: ReturnRequest,
  serverUs: number,
): BucketState {
  const { asker, cost, generation, slotsUs } = request;
  found.turns.delete(asker);
  if (generation !== found.generation || slotsUs.length === 0) return found;

  const state = advance(found, serverUs);
  const { policy, clockUs: nowUs } = state;
  const holes: Hole[] = [];
  for (const [index, slotUs] of slotsUs.entries()) {
    const lastUs = nowUs + drainUs(policy, state.level - policy.burst * policy.periodUs);
    if (slotUs <= nowUs) continue;
    if (slotUs === lastUs) state.level -= cost * policy.periodUs;
    else holes.push({ slotUs, cost, id: `${cost} ${slotUs} ${asker} ${index}` });
  }
  return { ...state, holes: addHoles(state.holes, holes) };
}
