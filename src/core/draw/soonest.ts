import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Drawer } from "../limits/rule.ts";
import type { Wish } from "../store.ts";
import { closedBy, closedUntilUs, slowedBy, type Fitting, type Serving } from "./place.ts";
import { opensAtUs, stepOf, type Scope } from "./scope.ts";

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
  readonly drawer: Drawer;
  /** The earliest time at which anything may start. */
  readonly opensUs: number;
  /** What numbers the limits of this scope come after. */
  readonly after: number;
}

/** Of a wish that was looked at, under the limits of the bucket and of its key. */
export function soonestOf(
  { state, request }: Serving,
  asked: {
    readonly main: Fitting;
    readonly keyFitting: Fitting | undefined;
    readonly opens: () => number;
    readonly horizonUs: number;
  },
): Soonest {
  const { main, keyFitting, opens, horizonUs } = asked;
  // A try is told when to ask again.
  if (request.isTry) return { soonestUs: 0, bindsAt: 0 };
  const { shared, clockUs: nowUs } = state;
  const untilUs = nowUs + horizonUs;
  const { scope, costs, drawer } = main;
  const gate = { scope, beside: shared, costs, drawer, opensUs: opens(), after: 0 };
  const ofMain = soonestIn(gate, nowUs, untilUs);
  if (keyFitting === undefined) return ofMain;
  const ofKey = soonestIn(
    {
      scope: keyFitting.scope,
      beside: keyFitting.scope,
      costs: keyFitting.costs,
      drawer: keyFitting.drawer,
      opensUs: opensAtUs(keyFitting.scope, nowUs, keyFitting.stepUs),
      after: shared.records.length,
    },
    nowUs,
    untilUs,
  );
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
    const opensUs = opensAtUs(scope, nowUs, stepOf(limits, own));
    const drawer = noDrawer(nowUs);
    const gate = { scope, beside: scope, costs: own, drawer, opensUs, after };
    return soonestIn(gate, nowUs, nowUs + horizonUs);
  };
  const ofBucket = ofScope(shared, 0);
  const ofKey = keyScope && ofScope(keyScope, shared.records.length);
  return ofKey !== undefined && ofKey.soonestUs > ofBucket.soonestUs ? ofKey : ofBucket;
}

/** It is not known when a lease comes free: then the rest decides. */
function soonestIn(gate: Gate, nowUs: number, untilUs: number): Soonest {
  const { scope, beside, costs, drawer, opensUs, after } = gate;
  let soonestUs = opensUs;
  let binding = 0;
  let leased = 0;
  for (const [index, { limit, state }] of scope.records.entries()) {
    const atUs = ruleOf(limit.kind).earliest(limit, state, opensUs, costs[index]!, drawer);
    if (atUs === Infinity) leased = after + index + 1;
    else if (atUs > soonestUs) [soonestUs, binding] = [atUs, after + index + 1];
  }
  if (soonestUs <= untilUs) return { soonestUs, bindsAt: 0 };
  if (binding > 0) return { soonestUs, bindsAt: leased || binding };
  const isClosed = Math.max(closedUntilUs(beside), closedUntilUs(scope)) >= opensUs;
  if (isClosed) return { soonestUs, bindsAt: closedBy(beside, scope, nowUs) };
  return { soonestUs, bindsAt: leased || slowedBy(beside, scope, nowUs) };
}
