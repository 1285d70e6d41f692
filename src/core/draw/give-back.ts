import { ruleOf } from "../limits/registry.ts";
import { noDrawer } from "../limits/rule.ts";
import type { LimitedKey, WaitPosition, ReturnRequest, SettleRequest } from "../store.ts";
import { addHoles, advance, holeName, type BucketState, type Hole } from "./bucket-state.ts";
import { settleShadows, shadowsOf } from "./shadows.ts";
import { applyLimits, areAllRates, commitAll, type Scope } from "./scope.ts";
import { leaveTurn } from "./turns.ts";

/**
 * Takes slots back, and the asker's position with them. Twin of `lua/bucket/slots-return.lua` and
 * `lua/lib/draw/give-back.lua`.
 */
export function giveBack(state: BucketState, request: ReturnRequest, serverUs: number): void {
  const { position, slotRequest, generation, asker } = request;
  // Under another policy, these slots are no longer booked.
  if (state.text !== request.terms.text) return;
  advance(state, serverUs);
  leave(state, state.shared, asker, position);
  for (const { key, limits, position: own } of slotRequest.scopes) {
    const scope = state.keys.get(key);
    if (scope === undefined) continue;
    applyLimits(scope, limits, state.clockUs);
    leave(state, scope, asker, own);
  }
  if (generation === state.generation) takeBack(state, request);
}

function leave(
  { clockUs: nowUs }: BucketState,
  scope: Scope,
  asker: string,
  { sinceUs, leaseOrder }: WaitPosition,
): void {
  if (sinceUs > 0) leaveTurn(scope, { asker, sinceUs });
  if (leaseOrder === 0) return;
  for (const { limit, state } of scope.records) {
    ruleOf(limit.kind).leavePosition?.(state, { asker, nowUs, order: leaseOrder, lease: 0 });
  }
}

/** A scope, with its part of numbers that are given for each limit of a call. */
interface Part {
  readonly scope: Scope;
  readonly numbers: readonly number[];
}

/** The shared limits and those of each key that is known, each with its part of the numbers. */
function partsOf(
  { shared, keys }: BucketState,
  scopes: readonly LimitedKey[],
  numbers: readonly number[],
): Part[] {
  let after = shared.records.length;
  const parts = [{ scope: shared, numbers: numbers.slice(0, after) }];
  for (const { key, limits } of scopes) {
    const scope = keys.get(key);
    const own = numbers.slice(after, after + limits.length);
    if (scope !== undefined) parts.push({ scope, numbers: own });
    after += limits.length;
  }
  return parts;
}

/**
 * Takes slots back, latest first. The last one booked is unbooked. One with others behind it becomes a
 * hole that the next draw takes first: a lower level would put a new slot on a time that is already booked.
 */
function takeBack(state: BucketState, { asker, slotRequest, slotsUs }: ReturnRequest): void {
  const { shared, clockUs: nowUs } = state;
  const parts = partsOf(state, slotRequest.scopes, slotRequest.costs);
  // A hole carries no lease, so slots that need one do not become holes.
  const canLeaveHoles = parts.every(({ scope }) => areAllRates(scope));
  const holes: Hole[] = [];
  for (const [index, slotUs] of slotsUs.entries()) {
    if (slotUs <= nowUs) continue;
    const isLast = parts.every(
      ({ scope }) => scope.lastUs === slotUs || (scope === shared && scope.records.length === 0),
    );
    if (isLast) {
      for (const { scope, numbers } of parts) unbook(scope, slotUs, numbers, nowUs);
    } else if (canLeaveHoles) {
      holes.push({
        slotUs,
        name: slotRequest.name,
        id: holeName(slotUs, asker, index, slotRequest.name),
      });
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
  const { terms, scopes, deltas, shadowDeltas } = request;
  // Under another policy, the numbers belong to other limits.
  if (state.text !== terms.text) return;
  advance(state, serverUs);
  if (shadowDeltas !== undefined) {
    state.shadows = shadowsOf(state.shadows, terms.shadows ?? []);
    settleShadows(state.shadows, { ...request, deltas: shadowDeltas }, state.clockUs);
  }
  for (const { key, limits } of scopes) {
    const scope = state.keys.get(key);
    if (scope !== undefined) applyLimits(scope, limits, state.clockUs);
  }
  for (const { scope, numbers } of partsOf(state, scopes, deltas)) {
    settleScope(state, scope, { ...request, deltas: numbers });
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
