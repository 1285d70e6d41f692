import { ruleOf } from "../limits/registry.ts";
import { nobodyAt } from "../limits/rule.ts";
import type { ReturnRequest, SettleRequest } from "../store.ts";
import { addHoles, advance, type BucketState, type Hole } from "./bucket-state.ts";
import { applyLimits, commitAll, isAllRate, type Scope } from "./scope.ts";

/**
 * Takes slots back, and the turns that go with them. The last one booked is
 * simply unbooked; one with others behind it becomes a hole that the next draw
 * takes first, since to move the level would put a new slot on a time that is
 * already booked. Twin of `lua/bucket/slots-return.lua`.
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

/**
 * Books what a call came to cost beyond its estimate, now, and into debt if
 * need be; what it cost less is taken back from where it was booked.
 * Twin of `lua/bucket/costs-settle.lua`.
 */
export function settle(state: BucketState, request: SettleRequest, serverUs: number): void {
  const { key, deltas } = request;
  // Limits have changed in the meantime: what the numbers meant is gone.
  if (state.text !== request.terms.text) return;
  advance(state, serverUs);
  const count = state.shared.records.length;
  settleScope(state, state.shared, { ...request, deltas: deltas.slice(0, count) });
  const keyScope = key === undefined ? undefined : state.keys.get(key);
  if (keyScope !== undefined) {
    applyLimits(keyScope, request.keyLimits, state.clockUs);
    settleScope(state, keyScope, { ...request, deltas: deltas.slice(count) });
  }
}

function settleScope(
  { clockUs: nowUs }: BucketState,
  scope: Scope,
  { deltas, slotUs, isUnused = false }: Pick<SettleRequest, "deltas" | "slotUs" | "isUnused">,
): void {
  const drawer = nobodyAt(nowUs);
  const atUs = Math.max(nowUs, scope.lastUs);
  for (const [index, { limit, state }] of scope.records.entries()) {
    const rule = ruleOf(limit.kind);
    const delta = deltas[index] ?? 0;
    if (delta === 0 || !rule.isRate) continue;
    // Given back from under a later slot, its time would be handed out twice.
    if (isUnused && rule.doesDrain && scope.lastUs > slotUs) continue;
    rule.commit(limit, state, delta > 0 ? atUs : slotUs, delta, drawer);
  }
}
