import type { LimitStatus } from "../limits/rule.ts";
import type { Change, Peeked, ScopeRequest, SteerRequest } from "../store.ts";
import {
  advance,
  clearPlaces,
  newBucket,
  putInForce,
  scopeOfKey,
  type BucketState,
} from "./bucket-state.ts";
import { applyLimits, factorAt, addStatuses, wholeAtUs, type Scope } from "./scope.ts";

/** The rate right after a cooldown, per mille. */
const RAMP_FROM = 250;

/**
 * Changes a bucket, or one key of it: its policy, pause, cooldown, rate or gap. `hasChanged` says whether
 * slots that were handed out are worthless now. Twin of `lua/bucket/bucket-steer.lua`.
 */
export function steer(
  found: BucketState | undefined,
  { terms, key, keyLimits, change }: SteerRequest,
  serverUs: number,
): { readonly state: BucketState; readonly hasChanged: boolean } {
  const state = found ?? newBucket(terms, serverUs);
  advance(state, serverUs);
  if (change.do === "configure") {
    putInForce(state, terms, Math.max(serverUs, state.version + 1));
    state.isOverride = change.isOverride;
    return { state, hasChanged: true };
  }
  const scope = key === undefined ? state.shared : scopeOfKey(state, key);
  if (key !== undefined) {
    applyLimits(scope, keyLimits, state.clockUs);
    state.keys.set(key, scope);
  }
  const hasChanged = changeScope(scope, change, state.clockUs);
  // A key leaves the generation as it is: otherwise one key could make the slots of all others worthless.
  if (hasChanged && key === undefined) {
    state.generation = Math.max(state.generation + 1, state.clockUs);
    clearPlaces(state);
  }
  return { state, hasChanged };
}

/** Whether slots that were handed out are worthless now. Twin of `CHANGES` in `lua/lib/draw/steer.lua`, as is all below up to `peek`. */
function changeScope(
  scope: Scope,
  change: Exclude<Change, { do: "configure" }>,
  nowUs: number,
): boolean {
  switch (change.do) {
    case "pause":
      scope.pausedUntilUs = change.durationUs === 0 ? 0 : nowUs + change.durationUs;
      return true;
    case "space":
      scope.gapUs = change.gapUs;
      scope.gapUntilUs = nowUs + change.durationUs;
      return false;
    case "cool":
      return cool(scope, change, nowUs);
    case "cut":
      return cut(scope, change, nowUs);
  }
}

function cool(
  scope: Scope,
  { durationUs, rampUs, slotUs }: Extract<Change, { do: "cool" }>,
  nowUs: number,
): boolean {
  if (!startNothing(scope, nowUs, durationUs)) return false;
  scope.factor = Math.min(RAMP_FROM, scope.factor);
  scope.recoverUs = rampUs;
  if (slotUs <= scope.cutUs) return false;
  scope.cutUs = handedOutUntilUs(scope, nowUs);
  return true;
}

function cut(
  scope: Scope,
  { factor, floor, recoverUs, durationUs, slotUs }: Extract<Change, { do: "cut" }>,
  nowUs: number,
): boolean {
  const isNew = slotUs > scope.cutUs;
  if (isNew) {
    scope.cutUs = handedOutUntilUs(scope, nowUs);
    const sinceUs = Math.max(nowUs, scope.coolUntilUs);
    scope.factor = Math.max(floor, Math.floor((factorAt(scope, sinceUs) * factor) / 1_000));
    scope.sinceUs = sinceUs;
    scope.recoverUs = recoverUs;
  }
  startNothing(scope, nowUs, durationUs);
  return isNew;
}

/** Until `durationUs` from now, nothing starts and the rate does not grow back; false if a cooldown lasts as long already. */
function startNothing(scope: Scope, nowUs: number, durationUs: number): boolean {
  const untilUs = nowUs + durationUs;
  if (durationUs === 0 || untilUs <= scope.coolUntilUs) return false;
  scope.factor = factorAt(scope, nowUs);
  scope.coolUntilUs = untilUs;
  scope.sinceUs = untilUs;
  return true;
}

/** The last time for which slots were handed out. Answers to calls on those slots are about the rate before the change. */
function handedOutUntilUs({ lastUs }: Scope, nowUs: number): number {
  return Math.max(nowUs, lastUs);
}

/** How a bucket is now, or one key of it; changes nothing. Twin of `lua/bucket/bucket-peek.lua`. */
export function peek(
  found: BucketState | undefined,
  { terms, key, keyLimits }: ScopeRequest,
  serverUs: number,
): Peeked {
  const state = (found && structuredClone(found)) ?? newBucket(terms, serverUs);
  advance(state, serverUs);
  const { clockUs: nowUs, generation, version, text, isOverride, window, shared } = state;
  const statuses: LimitStatus[] = [];
  if (text === terms.text) addStatuses(statuses, shared, onesFor(shared), nowUs);
  const keyScope = key === undefined ? undefined : scopeOfKey(state, key);
  if (keyScope !== undefined) {
    applyLimits(keyScope, keyLimits, nowUs);
    addStatuses(statuses, keyScope, onesFor(keyScope), nowUs);
  }
  const alive =
    nowUs - window.windowUs < 2_000_000 ? Math.max(window.alive, window.aliveBefore) : 0;
  const scope = keyScope ?? shared;
  return {
    nowUs,
    generation,
    version,
    text,
    isOverride,
    alive,
    coolUntilUs: Math.max(shared.coolUntilUs, scope.coolUntilUs),
    pausedUntilUs: Math.max(shared.pausedUntilUs, scope.pausedUntilUs),
    factor: Math.min(factorAt(shared, nowUs), factorAt(scope, nowUs)),
    wholeAtUs: Math.max(wholeAtUs(shared), wholeAtUs(scope)),
    gapUs: Math.max(shared.gapUs, scope.gapUs),
    gapUntilUs: Math.max(shared.gapUntilUs, scope.gapUntilUs),
    statuses,
  };
}

/** A call of one unit. */
function onesFor({ records }: Scope): number[] {
  return records.map(() => 1);
}
