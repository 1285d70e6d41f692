import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Limit } from "../limits/rule.ts";
import type { Scope, Turn } from "./scope.ts";

/**
 * How many replicas draw from a bucket, and which of them comes first: the one whose call is the most urgent, and
 * has waited longest. Here a replica is an asker, by the name that it asks with. Twin of `lua/lib/draw/turns.lua`.
 */

/** An asker counts as alive in the second in which it drew, and in the next. */
const WINDOW_US = 1_000_000;

/** A waiting asker asks at least this often, so that a live change reaches it within a second. */
export const LONGEST_ASK_GAP_US = 500_000;

export interface AliveWindow {
  readonly windowUs: number;
  readonly alive: number;
  readonly aliveBefore: number;
}

/** Counts the askers of each second. Each says when it last drew, so no list of them is needed. */
export function countAsker(
  { windowUs, alive, aliveBefore }: AliveWindow,
  { nowUs, drewUs }: { nowUs: number; drewUs: number },
): AliveWindow {
  const ageUs = nowUs - windowUs;
  const isNew = ageUs >= WINDOW_US;
  const startUs = isNew ? nowUs : windowUs;
  const isFirstDraw = drewUs === 0 || drewUs < startUs;
  return {
    windowUs: startUs,
    alive: (isNew ? 0 : alive) + (isFirstDraw ? 1 : 0),
    aliveBefore: isNew ? (ageUs < 2 * WINDOW_US ? alive : 0) : aliveBefore,
  };
}

/** An even share of a horizon. A lone asker leaves a quarter, so that it can ask again before its slots run out. */
export function shareOf(slots: number, alive: number): number {
  return Math.max(1, Math.floor(Math.min(slots * 0.75, slots / alive)));
}

/** Above every time of a bucket's clock until 2041, and small enough for four ranks to be whole numbers. */
const RANK_STEP = 2 ** 51;
/** Calls that came in the same millisecond came together: their askers take turns. */
const TOGETHER_US = 1_000;

/** The order of a call: by its rank, and then by the time since when it waits, in µs. */
export function orderOf(rank: number, sinceUs: number): number {
  return rank * RANK_STEP + sinceUs - (sinceUs % TOGETHER_US);
}

/** More needs than this are not kept of one asker; those that come first matter most. */
export const MOST_NEEDS = 8;
/** More turns than this are not kept; those that come first matter most. */
const MOST_TURNS = 128;

/** The turns of other askers, in their order, but for those that were missed. */
export function readTurns(scope: Scope, asker: string, missedUs: number): readonly Turn[] {
  if (scope.turnsUntilUs < missedUs) return [];
  const limitCount = scope.records.length;
  // A key's limits may be others to another asker.
  return scope.turns.filter(
    (turn) =>
      turn.asker !== asker &&
      turn.dueUs >= missedUs &&
      turn.needs[0]!.amounts.length === limitCount,
  );
}

/** Sets the asker's turn, or takes it away. Returns since when it waits for that; 0: it has no turn. */
export function keepTurn(
  scope: Scope,
  { asker, sinceUs }: { readonly asker: string; readonly sinceUs: number },
  given: Turn | undefined,
  missedUs: number,
): number {
  if (given === undefined && sinceUs === 0) return 0;
  const known = scope.turnsUntilUs < missedUs ? [] : scope.turns;
  const turns = known.filter((turn) => turn.asker !== asker && turn.dueUs >= missedUs);
  if (given !== undefined) {
    const turn = { ...given, needs: given.needs.slice(0, MOST_NEEDS) };
    const at = turns.findIndex((each) => comesBefore(turn, each));
    turns.splice(at === -1 ? turns.length : at, 0, turn);
    scope.turnsUntilUs = Math.max(scope.turnsUntilUs, turn.dueUs);
  }
  scope.turns = turns.slice(0, MOST_TURNS);
  return given?.sinceUs ?? 0;
}

function comesBefore(a: Turn, b: Turn): boolean {
  return (a.needs[0]!.order - b.needs[0]!.order || a.sinceUs - b.sinceUs) < 0;
}

/** Takes the turn away that an asker gives up. */
export function leaveTurn(
  scope: Scope,
  given: { readonly asker: string; readonly sinceUs: number },
): void {
  scope.turns = scope.turns.filter(
    ({ asker, sinceUs }) => asker !== given.asker || sinceUs !== given.sinceUs,
  );
}

/** Something that comes before a call, with what it and all before it need of each limit. */
export interface Ahead {
  readonly order: number;
  readonly amounts: readonly number[];
  readonly sums: readonly number[];
  /** When the first of its asker's calls may start, and what is needed from there on until this one may. */
  readonly startUs: number;
  readonly after: readonly number[];
}

/** What comes before a call of this order, in order. Of those that came together, the turn that has waited longest does. */
export function aheadOf(
  turns: readonly Turn[],
  { order, sinceUs: ownSinceUs }: { readonly order: number; readonly sinceUs: number },
): Ahead[] {
  const before: Omit<Ahead, "sums">[] = [];
  for (const { needs, startUs, sinceUs } of turns) {
    let after: readonly number[] = [];
    for (const [index, need] of needs.entries()) {
      if (index > 0) after = need.amounts.map((amount, each) => amount + (after[each] ?? 0));
      const isBefore = need.order < order || (need.order === order && sinceUs < ownSinceUs);
      if (isBefore) before.push({ ...need, startUs, after });
    }
  }
  before.sort((a, b) => a.order - b.order);
  let sums: readonly number[] = [];
  return before.map((each) => {
    sums = each.amounts.map((amount, index) => amount + (sums[index] ?? 0));
    return { ...each, sums };
  });
}

/**
 * Whether what comes before a call has all the room it needs in time if this is booked before it: until `untilUs`, or
 * when its asker was told.
 */
export function isInTime(
  { records }: Scope,
  { sums, amounts, after, startUs }: Ahead,
  costs: readonly number[],
  { opensUs, untilUs }: { opensUs: number; untilUs: number },
): boolean {
  return records.every(({ limit, state }, index) => {
    const cost = costs[index]!;
    if (cost === 0 || (amounts[index] ?? 0) === 0 || !ruleOf(limit.kind).isRate) return true;
    const deadlineUs = Math.max(untilUs, startUs + afterUs(limit, after[index] ?? 0));
    return roomAtUs(limit, state, opensUs, sums[index]! + cost) <= deadlineUs;
  });
}

/** How much later a limit gives this amount more. */
export function afterUs({ kind, periodUs, count }: Limit, amount: number): number {
  return ruleOf(kind).doesDrain === true ? Math.ceil((amount * periodUs) / count) : 0;
}

/** When a limit has room for an amount, which may be more than it can ever give at once. */
export function roomAtUs(limit: Limit, state: unknown, atUs: number, amount: number): number {
  const rule = ruleOf(limit.kind);
  const drawer = noDrawer(atUs);
  const beyond = amount - limit.capacity;
  if (beyond <= 0) return rule.earliest(limit, state, atUs, amount, drawer);
  const fullUs = rule.earliest(limit, state, atUs, limit.capacity, drawer);
  return fullUs + Math.ceil((beyond * limit.periodUs) / limit.count);
}
