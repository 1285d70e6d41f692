import { ruleOf } from "../limits/registry.ts";
import { noDrawer } from "../limits/rule.ts";
import type { SlotRequest } from "../store.ts";
import {
  closedBy,
  closedUntilUs,
  slowedBy,
  type Fitting,
  type Numbered,
  type Serving,
} from "./fit.ts";
import { leastOpensAtUs, stepOf, type Scope } from "./scope.ts";

/**
 * When a call can start at the earliest, however many others leave: what a reply tells of it, so that a call which does
 * not wait that long is refused at once. Twin of `lua/lib/draw/soonest.lua`.
 */

/** When the next call of a slot request can start at the earliest, and what decides that. */
export interface Soonest {
  readonly soonestUs: number;
  /** As in `Granted`; 0: nothing that lasts beyond the horizon. */
  readonly bindsAt: number;
}

/** A scope that a call has to fit. */
type Gate = Pick<Fitting, "scope" | "number" | "costs" | "stepUs" | "drawer" | "after"> & {
  /** A scope of which a cooldown or a pause holds too; the same one if there is none. */
  readonly beside: Numbered;
};

/** Of a slot request that was looked at, under the limits of the bucket and of its keys. */
export function soonestOf(
  { state, request }: Serving,
  asked: {
    readonly main: Fitting;
    readonly gates: readonly Fitting[];
    readonly horizonUs: number;
  },
): Soonest {
  const { main, gates, horizonUs } = asked;
  // A try is told when to ask again.
  if (request.isTry) return { soonestUs: 0, bindsAt: 0 };
  const { shared, clockUs: nowUs } = state;
  const ofKeys = gates.map((gate) => ({ ...gate, beside: gate }));
  return latestOf(
    [{ ...main, beside: { scope: shared, number: 0 } }, ...ofKeys],
    nowUs,
    nowUs + horizonUs,
  );
}

/** Of a slot request that was not served, under the limits of the bucket, and of its keys if those were opened. */
export function soonestUnserved(
  { state }: Serving,
  { costs }: SlotRequest,
  { keyScopes, horizonUs }: { readonly keyScopes: readonly Scope[]; readonly horizonUs: number },
): Soonest {
  const { shared, clockUs: nowUs } = state;
  let after = 0;
  const gates = [shared, ...keyScopes].map((scope, number): Gate => {
    const limits = scope.records.map(({ limit }) => limit);
    const own = costs.slice(after, after + limits.length);
    const gate = {
      scope,
      number,
      beside: { scope, number },
      costs: own,
      stepUs: stepOf(limits, own),
      after,
    };
    after += limits.length;
    return { ...gate, drawer: noDrawer(nowUs) };
  });
  return latestOf(gates, nowUs, nowUs + horizonUs);
}

/** The first of the scopes that let the call start last. */
function latestOf(gates: readonly Gate[], nowUs: number, untilUs: number): Soonest {
  const all = gates.map((gate) => soonestIn(gate, nowUs, untilUs));
  return all.reduce((latest, each) => (each.soonestUs > latest.soonestUs ? each : latest));
}

/** It is not known when a lease comes free: then the rest decides. */
function soonestIn(gate: Gate, nowUs: number, untilUs: number): Soonest {
  const { scope, beside, costs, stepUs, drawer, after } = gate;
  const both = [beside, gate];
  const closedUs = Math.max(closedUntilUs(beside.scope), closedUntilUs(scope));
  const opensUs = Math.max(closedUs, leastOpensAtUs(scope, nowUs, stepUs));
  let soonestUs = opensUs;
  let binding = 0;
  for (const [index, { limit, state }] of scope.records.entries()) {
    const atUs = ruleOf(limit.kind).earliest(limit, state, opensUs, costs[index]!, drawer);
    if (atUs < Infinity && atUs > soonestUs) [soonestUs, binding] = [atUs, after + index + 1];
  }
  if (soonestUs <= untilUs) return { soonestUs, bindsAt: 0 };
  if (binding > 0) return { soonestUs, bindsAt: binding };
  if (closedUs >= opensUs) return { soonestUs, bindsAt: closedBy(both, nowUs) };
  return { soonestUs, bindsAt: slowedBy(both, nowUs) };
}
