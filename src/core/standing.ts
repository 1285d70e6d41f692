import { nobodyAt, type Limit } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";
import type { Scope } from "./scope.ts";
import type { Standing } from "./draw-messages.ts";

/** How each limit of a scope stands. Twin of `lua/lib/standing.lua`. */
export function standingsOf(scope: Scope, costs: readonly number[], nowUs: number): Standing[] {
  const drawer = nobodyAt(nowUs);
  return scope.records.map(({ limit, state }, index) => {
    const rule = ruleOf(limit.kind);
    const earliest = (cost: number): number => rule.earliest(limit, state, nowUs, cost, drawer);
    const remaining = remainingOf(limit, state, nowUs);
    return { remaining, resetUs: earliest(limit.capacity), nextUs: earliest(costs[index]!) };
  });
}

/** How much a limit would let pass at once, found by asking. */
export function remainingOf(limit: Limit, state: unknown, nowUs: number): number {
  const rule = ruleOf(limit.kind);
  const drawer = nobodyAt(nowUs);
  let remaining = 0;
  let tooMany = limit.capacity + 1;
  while (tooMany - remaining > 1) {
    const middle = Math.floor((remaining + tooMany) / 2);
    if (rule.earliest(limit, state, nowUs, middle, drawer) <= nowUs) remaining = middle;
    else tooMany = middle;
  }
  return remaining;
}
