import type { LimitStatus } from "../limits/rule.ts";
import type { Change, KnownTerms, Peeked, ScopesRequest, SteerRequest } from "../store.ts";
import {
  advance,
  clearPositions,
  newBucket,
  putInForce,
  scopeOfKey,
  type BucketState,
} from "./bucket-state.ts";
import { applyLimits, factorAt, addStatuses, wholeAtUs, type Scope } from "./scope.ts";
import { countsOf, shadowsOf } from "./shadows.ts";

/** The rate right after a cooldown, per mille. */
const RAMP_FROM = 250;

/**
 * Changes a bucket, or one key of it: its policy, pause, cooldown, rate or gap. `hasChanged` says whether
 * slots that were handed out are worthless now. Twin of `lua/bucket/bucket-steer.lua`.
 */
export function steer(
  found: BucketState | undefined,
  { terms, scope: steered, change, generation }: SteerRequest,
  serverUs: number,
): { readonly state: BucketState; readonly hasChanged: boolean; readonly isStale: boolean } {
  const state = found ?? newBucket(terms, serverUs);
  const isStale =
    found !== undefined && generation !== undefined && found.generation !== generation;
  if (isStale) return { state, hasChanged: false, isStale };
  advance(state, serverUs);
  if (change.do === "configure") {
    return { state, hasChanged: configure(state, terms, change, serverUs), isStale };
  }
  const scope = steered === undefined ? state.shared : scopeOfKey(state, steered.key);
  if (steered !== undefined) {
    applyLimits(scope, steered.limits, state.clockUs);
    state.keys.set(steered.key, scope);
  }
  const hasChanged = changeScope(scope, change, state.clockUs);
  // A key leaves the generation as it is: otherwise one key could make the slots of all others worthless.
  if (hasChanged && steered === undefined) {
    state.generation = Math.max(state.generation + 1, state.clockUs);
    clearPositions(state);
  }
  return { state, hasChanged, isStale };
}

/** Whether slots that were handed out are worthless now. Twin of `configure` in `lua/lib/draw/steer.lua`. */
function configure(
  state: BucketState,
  terms: KnownTerms,
  { source, doesYield }: Extract<Change, { do: "configure" }>,
  serverUs: number,
): boolean {
  const isSame = state.source === source && (source === "code" || state.text === terms.text);
  if (doesYield && (state.source === "override" || isSame)) return false;
  putInForce(state, terms, Math.max(serverUs, state.version + 1));
  state.source = source;
  return true;
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

/** How a bucket is now, and what of it holds for calls of some keys; changes nothing. Twin of `lua/bucket/bucket-peek.lua`. */
export function peek(
  found: BucketState | undefined,
  { terms, scopes }: ScopesRequest,
  serverUs: number,
): Peeked {
  const state = (found && structuredClone(found)) ?? newBucket(terms, serverUs);
  advance(state, serverUs);
  const { clockUs: nowUs, generation, version, text, source, window, shared } = state;
  const ofKeys = scopes.map(({ key, limits }) => {
    const scope = scopeOfKey(state, key);
    applyLimits(scope, limits, nowUs);
    return scope;
  });
  const all = [shared, ...ofKeys];
  const statuses: LimitStatus[] = [];
  for (const scope of text === terms.text ? all : ofKeys) {
    addStatuses(statuses, scope, onesFor(scope), nowUs);
  }
  const alive =
    nowUs - window.windowUs < 2_000_000 ? Math.max(window.alive, window.aliveBefore) : 0;
  const mostOf = (read: (scope: Scope) => number): number => Math.max(...all.map(read));
  return {
    nowUs,
    generation,
    version,
    text,
    source,
    alive,
    coolUntilUs: mostOf(({ coolUntilUs }) => coolUntilUs),
    pausedUntilUs: mostOf(({ pausedUntilUs }) => pausedUntilUs),
    factor: Math.min(...all.map((scope) => factorAt(scope, nowUs))),
    wholeAtUs: mostOf(wholeAtUs),
    gapUs: mostOf(({ gapUs }) => gapUs),
    gapUntilUs: mostOf(({ gapUntilUs }) => gapUntilUs),
    statuses,
    shadows: shadowsOf(state.shadows, terms.shadows ?? []).map(countsOf),
  };
}

/** A call of one unit. */
function onesFor({ records }: Scope): number[] {
  return records.map(() => 1);
}
