import { advance, type BucketState } from "./bucket-state.ts";
import { nobodyAt } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";
import { applyLimits, type Scope } from "./scope.ts";
import type { SettleRequest } from "./store.ts";

/**
 * Books what a call came to cost beyond its estimate, now, and into debt if
 * need be; what it cost less is taken back from where it was booked.
 * Twin of `lua/costs-settle.lua`.
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
