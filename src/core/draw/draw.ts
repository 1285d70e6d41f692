import { WrongResetsError } from "../errors.ts";
import { areResetsOff } from "../limits/calendar-windows.ts";
import { costTooLarge } from "../limits/registry.ts";
import type { LimitStatus } from "../limits/rule.ts";
import { NO_PLACE, type DrawReply, type DrawRequest, type Place, type Wish } from "../store.ts";
import {
  advance,
  isStateLost,
  newBucket,
  scopeOfKey,
  settleTerms,
  useUp,
  type BucketState,
} from "./bucket-state.ts";
import { closedBy, closedUntilUs, lineOf, settleLine, type Serving } from "./place.ts";
import { applyLimits, hasLimits, addStatuses, type Scope } from "./scope.ts";
import { serve, type Served } from "./serve.ts";
import { countAsker } from "./turns.ts";

const NONE: Set<string | undefined> = new Set();
const NO_KEYS: ReadonlyMap<string, Scope> = new Map();

/**
 * Books slots for a replica's wishes, in their order, within the horizon. Once a wish does not
 * fit, it and those behind it keep a turn at which to ask again.
 * Twin of `lua/bucket/slots-draw.lua` and `lua/lib/draw/draw.lua`.
 *
 * @throws {@link CostTooLargeError} when a call costs more than a limit can ever give; nothing has changed then.
 */
export function draw(
  found: BucketState | undefined,
  request: DrawRequest,
  serverUs: number,
): { readonly state: BucketState; readonly reply: DrawReply } {
  const { terms, wishes, drewUs, isTry } = request;
  assertPossible(request);
  const all = [...terms.limits, ...wishes.flatMap(({ keyLimits }) => keyLimits)];
  if (areResetsOff(all, serverUs)) throw new WrongResetsError(serverUs);
  const isLost = isStateLost(found, request, serverUs);
  const state = found ?? newBucket(terms, serverUs);
  const { clockUs, skewUs, version: versionBefore } = state;
  advance(state, serverUs);
  const nowUs = state.clockUs;
  const isAgreed = settleTerms(state, terms, serverUs);
  // One that only asks when calls could start takes no share, and keeps its place.
  const isLook = wishes.every(({ wanted }) => wanted === 0);
  const isNewWindow = !isTry && !isLook && countDraw(state, drewUs);
  const { generation, version } = state;
  const alive = Math.max(1, state.window.alive, state.window.aliveBefore);
  const { isOverride } = state;
  const closedUs = closedUntilUs(state.shared);
  const closed = {
    closedUntilUs: closedUs > nowUs ? closedUs : 0,
    closedBy: closedBy(state.shared, state.shared, nowUs),
  };
  const common = { nowUs, generation, version, alive, isOverride, ...closed };
  if (!isAgreed) {
    const nothing = { granted: [], place: NO_PLACE };
    return { state, reply: { ...common, newText: state.text, ...nothing } };
  }

  // The asker has just worked out the resets of calendar days.
  applyLimits(state.shared, terms.limits, nowUs);
  if (isLost) useUp(state.shared, nowUs);
  const lostKeys = isLost ? new Set(wishes.map(({ key }) => key)) : NONE;
  const serving: Serving = {
    state,
    request,
    alive,
    isNewWindow,
    missedUs: nowUs - Math.floor(request.horizonUs / 2),
    used: 0,
    lease: request.lease,
    hasGranted: false,
    refused: undefined,
    lines: new Map(),
  };
  const before = isTry && !isLost ? keysUnderOtherLimits(state, wishes) : NO_KEYS;
  const served = wishes.map((wish) => {
    const open = (): Scope | undefined => openKey(state, wish, lostKeys);
    const look = (): Scope | undefined => lookAtKey(state, wish, lostKeys);
    return serve(serving, wish, { open, look });
  });
  const place = isLook
    ? request.place
    : settleLine(serving, lineOf(serving, state.shared, request.place));
  const places = new Map<string | undefined, Place>();
  for (const wish of wishes) {
    if (!places.has(wish.key)) places.set(wish.key, placeIn(serving, wish));
  }
  const granted = served.map((each, index) => {
    const wish = wishes[index]!;
    const statuses = isTry ? statusesFor(state, wish) : each.statuses;
    return { ...each, statuses, place: places.get(wish.key)! };
  });
  if (isTry && serving.hasGranted && terms.limits.length > 0) state.triedUs = nowUs;
  const isUntouched = found !== undefined && version === versionBefore && !isLost;
  // A refused try changes nothing.
  if (isTry && !serving.hasGranted && isUntouched) Object.assign(state, { clockUs, skewUs });
  for (const [key, scope] of before) {
    const isDrawn = wishes.some((wish, index) => wish.key === key && isSome(served[index]!));
    if (!isDrawn) state.keys.set(key, scope);
  }
  return { state, reply: { ...common, newText: undefined, granted, place } };
}

/** Copies of those keys that are under other limits than the try knows; a refused try puts them back. */
function keysUnderOtherLimits(
  { keys }: BucketState,
  wishes: readonly Wish[],
): ReadonlyMap<string, Scope> {
  const found = new Map<string, Scope>();
  for (const { key, keyLimits } of wishes) {
    const scope = key === undefined ? undefined : keys.get(key);
    if (scope !== undefined && !hasLimits(scope, keyLimits)) {
      found.set(key!, structuredClone(scope));
    }
  }
  return found;
}

/** The asker's place for the key of a wish; as before, if the key was not looked at. */
function placeIn(serving: Serving, { key, place }: Wish): Place {
  const scope = key === undefined ? undefined : serving.state.keys.get(key);
  const line = scope && serving.lines.get(scope);
  if (line !== undefined) return settleLine(serving, line);
  return key === undefined ? NO_PLACE : place;
}

function isSome({ slotsUs, run }: Served): boolean {
  return slotsUs.length > 0 || run !== undefined;
}

/** The scope of the wish's key; undefined if the key has no limits of its own. */
function openKey(
  state: BucketState,
  { key, keyLimits }: Wish,
  lostKeys: Set<string | undefined>,
): Scope | undefined {
  if (key === undefined) return undefined;
  const scope = scopeOfKey(state, key);
  applyLimits(scope, keyLimits, state.clockUs);
  if (lostKeys.delete(key)) useUp(scope, state.clockUs);
  state.keys.set(key, scope);
  return scope;
}

/** The same, but it leaves the state as it is, unless that was lost. */
function lookAtKey(
  state: BucketState,
  wish: Wish,
  lostKeys: Set<string | undefined>,
): Scope | undefined {
  const { key, keyLimits } = wish;
  if (key === undefined || lostKeys.has(key)) return openKey(state, wish, lostKeys);
  const found = scopeOfKey(state, key);
  if (hasLimits(found, keyLimits)) return found;
  const scope = structuredClone(found);
  applyLimits(scope, keyLimits, state.clockUs);
  return scope;
}

/** Counts the asker; whether its draw begins a new second. */
function countDraw(state: BucketState, drewUs: number): boolean {
  const { isNew, ...window } = countAsker(state.window, { nowUs: state.clockUs, drewUs });
  state.window = window;
  return isNew;
}

function statusesFor(state: BucketState, { key, costs }: Wish): readonly LimitStatus[] {
  const { shared, clockUs: nowUs } = state;
  const statuses: LimitStatus[] = [];
  addStatuses(statuses, shared, costs, nowUs);
  if (key === undefined) return statuses;
  addStatuses(statuses, scopeOfKey(state, key), costs.slice(shared.records.length), nowUs);
  return statuses;
}

function assertPossible({ bucket, terms, wishes }: DrawRequest): void {
  for (const { costs, keyLimits } of wishes) {
    for (const [index, limit] of [...terms.limits, ...keyLimits].entries()) {
      const cost = costs[index]!;
      if (cost > limit.capacity) throw costTooLarge(bucket, cost, limit);
    }
  }
}
