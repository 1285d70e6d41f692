import { ruleOf } from "../../../src/core/limits/registry.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { HORIZON_US } from "../../../src/core/policy/limit-makers.ts";
import { keyLimitsOf, scopesOf } from "../../../src/core/policy/per-key.ts";
import type { Policy } from "../../../src/core/policy/policy.ts";
import { EXCESS } from "../../support/draws/bounds.ts";
import { idealOf } from "./ideal.ts";
import { keyOf, type MixCaller } from "./mix.ts";
import type { MixCall, MixRun } from "./run-mix.ts";

const HORIZON_MS = HORIZON_US / 1_000;
/** Calls that come this close to each other may go in any order; requests take a while. */
const CLOSE_MS = 5;
/** The most that a call counts as later than it came. */
const MOST_APART_MS = 1_000;

/** How much of what binds was used while work waited, to within one call of each key: 1 is all of it. */
export function usedOf(run: MixRun): number {
  const { policy, calls, forMs } = run;
  const gone = calls.filter(({ wentMs }) => wentMs <= forMs);
  const count = policy.limits.length;
  const part = (limit: Limit, index: number, of: readonly MixCall[]): number =>
    of.reduce((sum, { costs }) => sum + costs[index]!, most(calls, index)) /
    possible(limit, forMs, most(calls, index));
  const shared = policy.limits.map((limit, index) => part(limit, index, gone));
  const names = new Set(calls.map(({ key }) => key));
  const keys = [...names].map((key) =>
    Math.max(
      0,
      ...limitsOfScopes(policy, key).map(({ limit, scope, index }) =>
        part(limit, count + index, gone.filter(isOf(policy, scope))),
      ),
    ),
  );
  const byLimits = Math.max(0, ...shared, Math.min(...keys));
  // Several limits may each keep the others from being used whole, in any order of the calls.
  const ideal = [...idealOf(run).values()].filter((atMs) => atMs <= forMs).length;
  return Math.max(byLimits, (gone.length + names.size) / ideal);
}

/** The limits of a call's keys, with their owners, in the order of the call's costs. */
function limitsOfScopes(
  policy: Policy,
  key: string | undefined,
): { readonly scope: string; readonly limit: Limit; readonly index: number }[] {
  return scopesOf(policy, key)
    .flatMap(({ key: scope, limits }) => limits.map((limit) => ({ scope, limit })))
    .map((each, index) => ({ ...each, index }));
}

/** Whether something is of a scope. */
function isOf(policy: Policy, scope: string) {
  return ({ key }: Pick<MixCall, "key">): boolean =>
    scopesOf(policy, key).some((each) => each.key === scope);
}

/** The most that a limit can give in this time, to calls of this cost at most: what is left may be too little for one. */
function possible({ kind, capacity, count, periodUs }: Limit, forMs: number, cost: number): number {
  const waste = Math.max(0, cost - 1);
  if (ruleOf(kind).doesDrain === true) return capacity + (count * forMs * 1_000) / periodUs - waste;
  return (capacity - waste) * Math.ceil((forMs * 1_000) / periodUs);
}

function most(calls: readonly MixCall[], index: number): number {
  return Math.max(...calls.map(({ costs }) => costs[index] ?? 0));
}

/**
 * By how many ms the call that came off worst waited too long: beyond its time in one line for all replicas, a horizon,
 * and what it takes to save up for the largest cost. A window that is missed by a moment costs a period. Slots that are
 * given ahead to less urgent calls are theirs, in that line too: what they delay is served with the more urgent calls
 * that come meanwhile.
 */
export function lateOf(run: MixRun): number {
  const { calls, forMs } = run;
  const like = new Map<string, [MixCall, number][]>();
  const { shares } = run.policy;
  const hasRanks = new Set(calls.map(({ rank }) => rank)).size > 1;
  const aheadUs = (rank: number): number => (HORIZON_US * shares[rank]!) / 1_000;
  const booked = hasRanks ? idealOf(run, aheadUs) : undefined;
  for (const [call, idealMs] of idealOf(run)) {
    const { rank, key } = call;
    const name = `${rank} ${key}`;
    if (!like.has(name)) like.set(name, []);
    const bookedMs = booked === undefined ? idealMs : (booked.get(call) ?? Infinity);
    like.get(name)!.push([call, Math.max(idealMs, bookedMs)]);
  }
  let worstMs = calls.length === 0 ? 0 : -Infinity;
  for (const group of like.values()) {
    group.sort(([a], [b]) => a.atMs - b.atMs);
    const afterMs = HORIZON_MS + saveUpMs(run, group[0]![0]);
    let from = 0;
    for (const [call] of group) {
      const closeMs = CLOSE_MS + call.apartMs;
      while (group[from]![0].atMs < call.atMs - CLOSE_MS - MOST_APART_MS) from += 1;
      let idealMs = 0;
      for (let each = from; each < group.length; each++) {
        const [{ atMs }, wentMs] = group[each]!;
        if (atMs > call.atMs + closeMs) break;
        if (atMs >= call.atMs - closeMs) idealMs = Math.max(idealMs, wentMs);
      }
      worstMs = Math.max(worstMs, Math.min(call.wentMs, forMs) - idealMs - afterMs);
    }
  }
  return worstMs;
}

function saveUpMs({ policy, calls }: MixRun, call: MixCall): number {
  const limits = [...policy.limits, ...keyLimitsOf(policy, call.key)];
  const before = calls.filter(({ rank }) => rank <= call.rank);
  const saveUp = limits.map(
    ({ periodUs, count }, index) => (most(before, index) * periodUs) / count,
  );
  const period = limits.map(({ kind, periodUs }) =>
    ruleOf(kind).doesDrain === true ? 0 : periodUs,
  );
  return (Math.max(...saveUp) + Math.max(...period)) / 1_000;
}

/** By how much a limit was passed: 0 or less if none was. */
export function excessOf({ policy, slots }: MixRun): number {
  const count = policy.limits.length;
  const shared = policy.limits.map((limit, index) => {
    const passed = slots.map(({ slotUs, costs }) => ({ slotUs, cost: costs[index]! }));
    return EXCESS[limit.kind]!(
      limit,
      passed.filter(({ cost }) => cost > 0),
    );
  });
  const keys = [...new Set(slots.map(({ key }) => key))].flatMap((key) =>
    limitsOfScopes(policy, key).map(({ limit, scope, index }) => {
      const own = slots.filter(isOf(policy, scope));
      const passed = own.map(({ slotUs, costs }) => ({ slotUs, cost: costs[count + index]! }));
      return EXCESS[limit.kind]!(
        limit,
        passed.filter(({ cost }) => cost > 0),
      );
    }),
  );
  return Math.max(-Infinity, ...shared, ...keys);
}

/**
 * By how many ms the call that waited longest waited for more than its turn in each of its lines, one after the other: each
 * caller of a line has one call in it at a time.
 */
export function stoodStillOf(
  { policy, calls, forMs }: MixRun,
  callers: readonly MixCaller[],
): number {
  const lines = new Map<string | undefined, number>();
  const turnsMs = (scope: string | undefined, limit: Limit, index: number): number => {
    const name = `${scope} ${index}`;
    const known = lines.get(name);
    if (known !== undefined) return known;
    const { kind, count, capacity, periodUs } = limit;
    const own = callers.filter(
      (caller) => scope === undefined || isOf(policy, scope)({ key: keyOf(caller) }),
    );
    const amount = own.length * most(calls, index);
    const periods =
      ruleOf(kind).doesDrain === true ? amount / count : Math.ceil(amount / capacity) + 1;
    const ms = (periods * periodUs) / 1_000;
    lines.set(name, ms);
    return ms;
  };
  return Math.max(
    ...calls.map(({ key, atMs, wentMs }) => {
      const shared = policy.limits.map((limit, index) => turnsMs(undefined, limit, index));
      const own = limitsOfScopes(policy, key).map(({ scope, limit, index }) =>
        turnsMs(scope, limit, policy.limits.length + index),
      );
      const turns = [...shared, ...own].reduce((sum, each) => sum + each, 0);
      return Math.min(wentMs, forMs) - atMs - turns - HORIZON_MS;
    }),
  );
}
