import {
  commitAll,
  earliestForAllUs,
  referenceScope,
  type ReferenceScope,
} from "../../support/draws/reference-limits.ts";
import { scopesOf } from "../../../src/core/policy/per-key.ts";
import type { MixCall, MixRun } from "./run-mix.ts";

interface Fitting {
  readonly name: string | undefined;
  readonly scope: ReferenceScope;
  readonly costs: readonly number[];
}

const ORIGIN_US = 1_800_000_000_000_000;

/**
 * When each call of a run would have gone in one line for all replicas that takes no time: by priority, then by
 * arrival; a key that is full holds back its own calls only. Calls that would not have gone are left out.
 * `aheadUs` says how far ahead the line gives slots to calls of a rank: more urgent calls that come later do not get those.
 */
export function idealOf(
  { calls, policy, forMs }: MixRun,
  aheadUs: (rank: number) => number = () => 0,
): ReadonlyMap<MixCall, number> {
  const went = new Map<MixCall, number>();
  const shared = referenceScope(policy.limits);
  const keys = new Map<string, ReferenceScope>();
  const known = new Map<MixCall, readonly Fitting[]>();
  const arrivals = calls.toSorted((a, b) => a.atMs - b.atMs);
  const line: MixCall[] = [];
  const count = policy.limits.length;

  /** What a call has to fit, the widest first, with its costs there; what all share has no name. */
  function fittingsOf(call: MixCall): readonly Fitting[] {
    const found = known.get(call);
    if (found !== undefined) return found;
    const { key, costs } = call;
    const fittings: Fitting[] = [];
    known.set(call, fittings);
    let after = count;
    if (count > 0) fittings.push({ name: undefined, scope: shared, costs: costs.slice(0, count) });
    for (const { key: name, limits } of scopesOf(policy, key)) {
      const scope = keys.get(name) ?? referenceScope(limits);
      keys.set(name, scope);
      fittings.push({ name, scope, costs: costs.slice(after, after + limits.length) });
      after += limits.length;
    }
    return fittings;
  }

  /** Gives slots to those who may have one at this time; returns when the next may. */
  function letGo(atMs: number): number {
    const atUs = Math.round(ORIGIN_US + atMs * 1_000);
    const full = new Set<string>();
    let nextUs = Infinity;
    const waiting = line.slice();
    for (const call of waiting) {
      const reachUs = aheadUs(call.rank);
      const fittings = fittingsOf(call);
      if (fittings.some(({ name }) => name !== undefined && full.has(name))) continue;
      const [main, ...gates] = fittings;
      const opensUs = Math.max(atUs, ...fittings.map(({ scope }) => scope.lastUs));
      const slotUs = earliestForAllUs(main!.scope, opensUs, main!.costs);
      // Beside what decides the slots, a key's limits give nothing ahead: they let a slot pass or not.
      const held = gates
        .map(({ name, scope, costs }) => {
          return { name, untilUs: earliestForAllUs(scope, slotUs, costs) };
        })
        .toSorted((a, b) => b.untilUs - a.untilUs)[0];
      if (held !== undefined && held.untilUs > slotUs) {
        nextUs = Math.min(nextUs, held.untilUs - reachUs);
        full.add(held.name!);
        continue;
      }
      if (slotUs > atUs + reachUs) {
        if (main!.name === undefined) return Math.min(nextUs, slotUs - reachUs);
        nextUs = Math.min(nextUs, slotUs - reachUs);
        full.add(main!.name);
        continue;
      }
      for (const { scope, costs } of fittings) commitAll(scope, slotUs, costs);
      went.set(call, (slotUs - ORIGIN_US) / 1_000);
      line.splice(line.indexOf(call), 1);
    }
    return nextUs;
  }

  let atMs = 0;
  for (let next = 0; ;) {
    for (; arrivals[next] !== undefined && arrivals[next]!.atMs <= atMs; next++) {
      const call = arrivals[next]!;
      const place = line.findLastIndex(({ rank }) => rank <= call.rank);
      line.splice(place + 1, 0, call);
    }
    const nextMs = (letGo(atMs) - ORIGIN_US) / 1_000;
    const dueMs = Math.min(nextMs, arrivals[next]?.atMs ?? Infinity);
    if (dueMs > 3 * forMs) return went;
    atMs = Math.max(dueMs, atMs + 0.001);
  }
}
