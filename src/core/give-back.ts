import { advance, type BucketState } from "./bucket-state.ts";
import { addHoles, type Hole } from "./holes.ts";
import { nobodyAt } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";
import { applyLimits, commitAll, isAllRate, type Scope } from "./scope.ts";
import type { ReturnRequest } from "./store.ts";

/**
 * Takes slots back, and the turns that go with them. The last one booked is
 * simply unbooked; one with others behind it becomes a hole that the next draw
 * takes first, since to move the level would put a new slot on a time that is
 * already booked. Twin of `lua/slots-return.lua`.
 */
export function giveBack(state: BucketState, request: ReturnRequest, serverUs: number): void {
  const { asker, place, wish, generation, slotsUs } = request;
  // What was booked under another policy is not this asker's to take back.
  if (state.text !== request.terms.text) return;
  const keyScope = wish.key === undefined ? undefined : state.keys.get(wish.key);
  advance(state, serverUs);
  if (keyScope !== undefined) applyLimits(keyScope, wish.keyLimits, state.clockUs);
  for (const [scope, own] of [
    [state.shared, place],
    [keyScope, wish.place],
  ] as const) {
    scope?.turns.delete(own.turnName);
    for (const { limit, state: limitState } of own.sinceUs > 0 ? (scope?.records ?? []) : []) {
      const drawer = { asker, nowUs: state.clockUs, sinceUs: own.sinceUs, lease: 0 };
      ruleOf(limit.kind).leavePlace?.(limitState, drawer);
    }
  }
  if (generation !== state.generation) return;

  const holes: Hole[] = [];
  for (const [index, slotUs] of slotsUs.entries()) {
    if (slotUs <= state.clockUs) continue;
    const hasLease = [state.shared, keyScope].some((scope) => scope && !isAllRate(scope));
    if (isLast(state, keyScope, slotUs)) unbook(state, keyScope, slotUs, wish.costs);
    else if (!hasLease) {
      holes.push({ slotUs, name: wish.name, id: `${slotUs} ${asker} ${index} ${wish.name}` });
    }
  }
  state.holes = addHoles(state.holes, holes);
}

function isLast({ shared }: BucketState, keyScope: Scope | undefined, slotUs: number): boolean {
  const isLastShared = shared.records.length === 0 || shared.lastUs === slotUs;
  return isLastShared && (keyScope === undefined || keyScope.lastUs === slotUs);
}

function unbook(
  { shared, clockUs: nowUs }: BucketState,
  keyScope: Scope | undefined,
  slotUs: number,
  costs: readonly number[],
): void {
  const drawer = nobodyAt(nowUs);
  const count = shared.records.length;
  const negative = costs.map((cost) => -cost);
  if (count > 0) {
    commitAll(shared, slotUs, negative.slice(0, count), drawer);
    // One that lies before it is no longer the last: it becomes a hole.
    shared.lastUs = slotUs - 1;
  }
  if (keyScope === undefined) return;
  commitAll(keyScope, slotUs, negative.slice(count), drawer);
  keyScope.lastUs = slotUs - 1;
}
