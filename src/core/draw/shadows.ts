import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Limit } from "../limits/rule.ts";
import { slotOfRun, type Granted, type ShadowCounts } from "../store.ts";

/**
 * Limits that hold nothing back, and only count which calls they would have: each keeps the line that there would have
 * been. Twin of `lua/lib/draw/shadows.lua`.
 */
export interface Shadow extends Counts {
  readonly limit: Limit;
  readonly state: unknown;
  /** The latest slot in its line. */
  lastUs: number;
}

type Counts = { -readonly [Name in keyof ShadowCounts]: ShadowCounts[Name] };

/** A call that would have waited longer than this counts as refused, and takes no room. */
const MOST_AHEAD_US = 3_600_000_000;

/** The shadows of a policy; one that has other numbers now begins anew. */
export function shadowsOf(found: readonly Shadow[], limits: readonly Limit[]): Shadow[] {
  return limits.map((limit, index) => {
    const before = found[index];
    if (before !== undefined && isSame(before.limit, limit)) return { ...before, limit };
    const state = ruleOf(limit.kind).fresh();
    return { limit, state, lastUs: 0, calls: 0, waited: 0, refused: 0, longestUs: 0 };
  });
}

function isSame(a: Limit, b: Limit): boolean {
  const isOfKind = a.kind === b.kind && a.count === b.count;
  return isOfKind && a.periodUs === b.periodUs && a.capacity === b.capacity;
}

/** Counts the calls for which slots were booked, a cost for each shadow. */
export function countCalls(
  shadows: readonly Shadow[],
  { slotsUs, run }: Pick<Granted, "slotsUs" | "run">,
  costs: readonly number[],
  nowUs: number,
): void {
  for (const [index, shadow] of shadows.entries()) {
    const cost = costs[index]!;
    for (let at = 0; at < (run?.count ?? 0); at += 1) {
      countCall(shadow, slotOfRun(run!, at), cost, nowUs);
    }
    for (const slotUs of slotsUs) countCall(shadow, slotUs, cost, nowUs);
  }
}

/** Counts a call that leaves at a time. It takes its position in the line that there would have been. */
function countCall(shadow: Shadow, atUs: number, cost: number, nowUs: number): void {
  if (cost === 0) return;
  const { limit, state } = shadow;
  const rule = ruleOf(limit.kind);
  const drawer = noDrawer(nowUs);
  shadow.calls += 1;
  const fromUs = Math.max(atUs, shadow.lastUs);
  const isTooLarge = cost > limit.capacity;
  const slotUs = isTooLarge ? Infinity : rule.earliest(limit, state, fromUs, cost, drawer);
  if (slotUs > atUs + MOST_AHEAD_US) {
    shadow.refused += 1;
    return;
  }
  if (slotUs > atUs) shadow.waited += 1;
  shadow.longestUs = Math.max(shadow.longestUs, slotUs - atUs);
  rule.commit(limit, state, slotUs, cost, drawer);
  shadow.lastUs = slotUs;
}

/**
 * Books what a call cost beyond its estimate, or takes back what it cost less. Where a call at its time would be refused
 * for its wait, it most likely was: it has taken no room.
 */
export function settleShadows(
  shadows: readonly Shadow[],
  { slotUs, deltas }: { readonly slotUs: number; readonly deltas: readonly number[] },
  nowUs: number,
): void {
  for (const [index, { limit, state, lastUs }] of shadows.entries()) {
    const delta = deltas[index]!;
    if (delta === 0) continue;
    const rule = ruleOf(limit.kind);
    const drawer = noDrawer(nowUs);
    const nextUs = rule.earliest(limit, state, Math.max(slotUs, lastUs), 1, drawer);
    if (nextUs > slotUs + MOST_AHEAD_US) continue;
    const atUs = delta > 0 ? Math.max(nowUs, lastUs) : slotUs;
    rule.commit(limit, state, atUs, delta, drawer);
  }
}

export function countsOf({ calls, waited, refused, longestUs }: Shadow): ShadowCounts {
  return { calls, waited, refused, longestUs };
}
