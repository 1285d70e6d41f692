import { ruleOf } from "../limits/registry.ts";
import { noDrawer } from "../limits/rule.ts";
import type { Place, ReturnRequest, SettleRequest } from "../store.ts";
import { addHoles, advance, holeName, type BucketState, type Hole } from "./bucket-state.ts";
import { applyLimits, areAllRates, commitAll, type Scope } from "./scope.ts";

/**
 * Takes slots back, and the asker's place with them. Twin of `lua/bucket/slots-return.lua` and
 * `lua/lib/draw/give-back.lua`.
 */
export function giveBack(state: BucketState, request: ReturnRequest, serverUs: number): void {
  const { place, wish, generation } = request;
  // Under another policy, these slots are no longer booked.
  if (state.text !== request.terms.text) return;
  const keyScope = wish.key === undefined ? undefined : state.keys.get(wish.key);
  advance(state, serverUs);
  if (keyScope !== undefined) applyLimits(keyScope, wish.keyLimits, state.clockUs);
  leave(state, state.shared, request.asker, place);
  if (keyScope !== undefined) leave(state, keyScope, request.asker, wish.place);
  if (generation === state.generation) takeBack(state, keyScope, request);
}

function leave(
  { clockUs: nowUs }: BucketState,
  { turns, records }: Scope,
  asker: string,
  { turnName, leaseOrder }: Place,
): void {
  turns.delete(turnName);
  if (leaseOrder === 0) return;
  for (const { limit, state } of records) {
    ruleOf(limit.kind).leavePlace?.(state, { asker, nowUs, order: leaseOrder, lease: 0 });
  }
}

/**
 * Takes slots back, latest first. The last one booked is unbooked. One with others behind it becomes a
 * hole that the next draw takes first: a lower level would put a new slot on a time that is already booked.
 */
function takeBack(
  state: BucketState,
  keyScope: Scope | undefined,
  { asker, wish, slotsUs }: ReturnRequest,
): void {
  const { shared, clockUs: nowUs } = state;
  const sharedCosts = wish.costs.slice(0, shared.records.length);
  const keyCosts = wish.costs.slice(shared.records.length);
  // A hole carries no lease, so slots that need one do not become holes.
  const canLeaveHoles = areAllRates(shared) && (keyScope === undefined || areAllRates(keyScope));
  const holes: Hole[] = [];
  for (const [index, slotUs] of slotsUs.entries()) {
    if (slotUs <= nowUs) continue;
    const isLast =
      (shared.records.length === 0 || shared.lastUs === slotUs) &&
      (keyScope === undefined || keyScope.lastUs === slotUs);
    if (isLast) {
      unbook(shared, slotUs, sharedCosts, nowUs);
      if (keyScope !== undefined) unbook(keyScope, slotUs, keyCosts, nowUs);
    } else if (canLeaveHoles) {
      holes.push({ slotUs, name: wish.name, id: holeName(slotUs, asker, index, wish.name) });
    }
  }
  state.holes = addHoles(state.holes, holes);
}

function unbook(scope: Scope, slotUs: number, costs: readonly number[], nowUs: number): void {
  if (scope.records.length === 0) return;
  const negative = costs.map((cost) => -cost);
  commitAll(scope, slotUs, negative, noDrawer(nowUs));
  // The next slot that comes back lies before this one and is no longer the last: it becomes a hole.
  scope.lastUs = slotUs - 1;
}

/**
 * Settles a call's true cost. What it cost beyond its estimate is booked now, into debt if need be; what it
 * cost less is taken back from where it was booked. Twin of `lua/bucket/costs-settle.lua`.
 */
export function settle(state: BucketState, request: SettleRequest, serverUs: number): void {
  const { key, deltas } = request;
  // Under another policy, the numbers belong to other limits.
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
  const drawer = noDrawer(nowUs);
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
