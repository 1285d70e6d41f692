import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Drawer } from "../limits/rule.ts";
import type { Wish } from "../store.ts";
import { closedBy, closedUntilUs, slowedBy, type Fitting, type Serving } from "./place.ts";
import { leastOpensAtUs, stepOf, type Scope } from "./scope.ts";

/**
 * When a call can start at the earliest, however many others leave: what a reply tells of it, so that a call which does
 * not wait that long is refused at once. Twin of `lua/lib/draw/soonest.lua`.
 */

/** When the next call of a wish can start at the earliest, and what decides that. */
export interface Soonest {
  readonly soonestUs: number;
  /** As in `Granted`; 0: nothing that lasts beyond the horizon. */
  readonly bindsAt: number;
}

/** A scope that a call has to fit. */
interface Gate {
  readonly scope: Scope;
  /** A scope of which a cooldown or a pause holds too; the same one if there is none. */
  readonly beside: Scope;
  readonly costs: readonly number[];
  readonly stepUs: number;
  readonly drawer: Drawer;
  /** What numbers the limits of this scope come after. */
  readonly after: number;
}

/** Of a wish that was looked at, under the limits of the bucket and of its key. */
export function soonestOf(
  { state, request }: Serving,
  asked: {
    readonly main: Fitting;
    readonly keyFitting: Fitting | undefined;
    readonly horizonUs: number;
  },
): Soonest {
  const { main, keyFitting, horizonUs } = asked;
  // A try is told when to ask again.
  if (request.isTry) return { soonestUs: 0, bindsAt: 0 };
  const { shared, clockUs: nowUs } = state;
  const untilUs = nowUs + horizonUs;
  const ofMain = soonestIn({ ...main, beside: shared, after: 0 }, nowUs, untilUs);
  if (keyFitting === undefined) return ofMain;
  const keyGate = { ...keyFitting, beside: keyFitting.scope, after: shared.records.length };
  const ofKey = soonestIn(keyGate, nowUs, untilUs);
  return ofKey.soonestUs > ofMain.soonestUs ? ofKey : ofMain;
}

/** Of a wish that was not served, under the limits of the bucket, and of its key if that was opened. */
export function soonestUnserved(
  { state }: Serving,
  { costs }: Wish,
  { keyScope, horizonUs }: { readonly keyScope: Scope | undefined; readonly horizonUs: number },
): Soonest {
  const { shared, clockUs: nowUs } = state;
  const ofScope = (scope: Scope, after: number): Soonest => {
    const limits = scope.records.map(({ limit }) => limit);
    const own = costs.slice(after, after + limits.length);
    const stepUs = stepOf(limits, own);
    const gate = { scope, beside: scope, costs: own, stepUs, drawer: noDrawer(nowUs), after };
    return soonestIn(gate, nowUs, nowUs + horizonUs);
  };
  const ofBucket = ofScope(shared, 0);
  const ofKey = keyScope && ofScope(keyScope, shared.records.length);
  return ofKey !== undefined && ofKey.soonestUs > ofBucket.soonestUs ? ofKey : ofBucket;
}

/** It is not known when a lease comes free: then the rest decides. */
function soonestIn(gate: Gate, nowUs: number, untilUs: number): Soonest {
  const { scope, beside, costs, stepUs, drawer, after } = gate;
  const closedUs = Math.max(closedUntilUs(beside), closedUntilUs(scope));
  const opensUs = Math.max(closedUs, leastOpensAtUs(scope, nowUs, stepUs));
  let soonestUs = opensUs;
  let binding = 0;
  for (const [index, { limit, state }] of scope.records.entries()) {
    const atUs = ruleOf(limit.kind).earliest(limit, state, opensUs, costs[index]!, drawer);
    if (atUs < Infinity && atUs > soonestUs) [soonestUs, binding] = [atUs, after + index + 1];
  }
  if (soonestUs <= untilUs) return { soonestUs, bindsAt: 0 };
  if (binding > 0) return { soonestUs, bindsAt: binding };
  if (closedUs >= opensUs) return { soonestUs, bindsAt: closedBy(beside, scope, nowUs) };
  return { soonestUs, bindsAt: slowedBy(beside, scope, nowUs) };
}
