import { WrongResetsError } from "../errors.ts";
import { areResetsOff } from "../limits/calendar-windows.ts";
import { costTooLarge } from "../limits/registry.ts";
import type { LimitStatus } from "../limits/rule.ts";
import {
  limitsOfCall,
  NO_POSITION,
  type DrawReply,
  type DrawRequest,
  type KeyScope,
  type LimitedKey,
  type WaitPosition,
  type SlotRequest,
} from "../store.ts";
import {
  advance,
  isStateLost,
  newBucket,
  scopeOfKey,
  settleTerms,
  useUp,
  type BucketState,
} from "./bucket-state.ts";
import { spareLeases } from "./leases.ts";
import { closedBy, closedUntilUs, lineOf, settleLine, type Serving } from "./fit.ts";
import { applyLimits, hasLimits, addStatuses, type Scope } from "./scope.ts";
import { serve, type Served } from "./serve.ts";
import { shadowsOf } from "./shadows.ts";
import { countAsker } from "./turns.ts";

const NONE: Set<string> = new Set();
const NO_KEYS: ReadonlyMap<string, Scope> = new Map();

/**
 * Books slots for a replica's slot requests, in their order, within the horizon. Once a slot request does not
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
  const { terms, slotRequests, drewUs, isTry } = request;
  assertPossible(request);
  const ofKeys = slotRequests.flatMap(({ scopes }) => scopes);
  const { shadows = [] } = terms;
  if (areResetsOff([...limitsOfCall(terms.limits, ofKeys), ...shadows], serverUs))
    throw new WrongResetsError(serverUs);
  const isLost = isStateLost(found, request, serverUs);
  const state = found ?? newBucket(terms, serverUs);
  const { clockUs, skewUs, version: versionBefore } = state;
  advance(state, serverUs);
  const nowUs = state.clockUs;
  const isAgreed = settleTerms(state, terms, serverUs);
  // One that only asks when calls could start takes no share, and keeps its position.
  const isLook = slotRequests.every(({ wanted }) => wanted === 0);
  if (!isTry && !isLook) state.window = countAsker(state.window, { nowUs, drewUs });
  const { generation, version } = state;
  const alive = Math.max(1, state.window.alive, state.window.aliveBefore);
  const isOverride = state.source !== "code";
  const closedUs = closedUntilUs(state.shared);
  const closed = {
    closedUntilUs: closedUs > nowUs ? closedUs : 0,
    closedBy: closedBy([{ scope: state.shared, number: 0 }], nowUs),
  };
  const common = { nowUs, generation, version, alive, isOverride, spareLeases: 0, ...closed };
  if (!isAgreed) {
    const nothing = { granted: [], position: NO_POSITION };
    return { state, reply: { ...common, newText: state.text, ...nothing } };
  }

  // The asker has just worked out the resets of calendar days.
  applyLimits(state.shared, terms.limits, nowUs);
  if (isLost) useUp(state.shared, nowUs);
  const lostKeys = isLost ? new Set(ofKeys.map(({ key }) => key)) : NONE;
  const serving: Serving = {
    state,
    request,
    alive,
    missedUs: nowUs - Math.floor(request.horizonUs / 2),
    lease: request.lease,
    hasGranted: false,
    index: 0,
    lines: new Map(),
    shadows: shadowsOf(state.shadows, shadows),
  };
  const before = isTry && !isLost ? keysUnderOtherLimits(state, ofKeys) : NO_KEYS;
  const served = slotRequests.map((slotRequest, index) => {
    serving.index = index;
    const open = (): Scope[] => slotRequest.scopes.map((key) => openKey(state, key, lostKeys));
    const look = (): Scope[] => slotRequest.scopes.map((key) => lookAtKey(state, key, lostKeys));
    return serve(serving, slotRequest, { open, look });
  });
  const position = isLook
    ? request.position
    : settleLine(serving, lineOf(serving, state.shared, request.position));
  const positions = new Map<string, WaitPosition>();
  for (const scope of ofKeys) {
    if (!positions.has(scope.key)) positions.set(scope.key, positionIn(serving, scope));
  }
  const granted = served.map((each, index) => {
    const slotRequest = slotRequests[index]!;
    const statuses = isTry ? statusesFor(state, slotRequest) : each.statuses;
    return {
      ...each,
      statuses,
      positions: slotRequest.scopes.map(({ key }) => positions.get(key)!),
    };
  });
  if (isTry && serving.hasGranted && terms.limits.length > 0) state.triedUs = nowUs;
  if (serving.hasGranted && shadows.length > 0) state.shadows = serving.shadows;
  const isUntouched = found !== undefined && version === versionBefore && !isLost;
  // A refused try changes nothing.
  if (isTry && !serving.hasGranted && isUntouched) Object.assign(state, { clockUs, skewUs });
  for (const [key, scope] of before) {
    const isDrawn = slotRequests.some(
      ({ scopes }, index) => isSome(served[index]!) && scopes.some((scope) => scope.key === key),
    );
    if (!isDrawn) state.keys.set(key, scope);
  }
  const spare = isTry ? 0 : spareLeases(state.shared, nowUs);
  return { state, reply: { ...common, spareLeases: spare, newText: undefined, granted, position } };
}

/** Copies of those keys that are under other limits than the try knows; a refused try puts them back. */
function keysUnderOtherLimits(
  { keys }: BucketState,
  tried: readonly LimitedKey[],
): ReadonlyMap<string, Scope> {
  const found = new Map<string, Scope>();
  for (const { key, limits } of tried) {
    const scope = keys.get(key);
    if (scope !== undefined && !hasLimits(scope, limits)) found.set(key, structuredClone(scope));
  }
  return found;
}

/** The asker's position for a key; as before, if the key was not looked at. */
function positionIn(serving: Serving, { key, position }: KeyScope): WaitPosition {
  const scope = serving.state.keys.get(key);
  const line = scope && serving.lines.get(scope);
  return line === undefined ? position : settleLine(serving, line);
}

function isSome({ slotsUs, run }: Served): boolean {
  return slotsUs.length > 0 || run !== undefined;
}

function openKey(state: BucketState, { key, limits }: LimitedKey, lostKeys: Set<string>): Scope {
  const scope = scopeOfKey(state, key);
  applyLimits(scope, limits, state.clockUs);
  if (lostKeys.delete(key)) useUp(scope, state.clockUs);
  state.keys.set(key, scope);
  return scope;
}

/** The same, but it leaves the state as it is, unless that was lost. */
function lookAtKey(state: BucketState, limited: LimitedKey, lostKeys: Set<string>): Scope {
  const { key, limits } = limited;
  if (lostKeys.has(key)) return openKey(state, limited, lostKeys);
  const found = scopeOfKey(state, key);
  if (hasLimits(found, limits)) return found;
  const scope = structuredClone(found);
  applyLimits(scope, limits, state.clockUs);
  return scope;
}

function statusesFor(state: BucketState, { scopes, costs }: SlotRequest): readonly LimitStatus[] {
  const { shared, clockUs: nowUs } = state;
  const statuses: LimitStatus[] = [];
  for (const scope of [shared, ...scopes.map(({ key }) => scopeOfKey(state, key))]) {
    addStatuses(statuses, scope, costs.slice(statuses.length), nowUs);
  }
  return statuses;
}

function assertPossible({ bucket, terms, slotRequests }: DrawRequest): void {
  for (const { costs, scopes } of slotRequests) {
    for (const [index, limit] of limitsOfCall(terms.limits, scopes).entries()) {
      const cost = costs[index]!;
      if (cost > limit.capacity) throw costTooLarge(bucket, cost, limit);
    }
  }
}
