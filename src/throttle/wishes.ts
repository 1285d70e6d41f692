import type { Wish } from "../core/draw-messages.ts";
import { isLeased } from "../core/limits/registry.ts";
import { RANKS } from "../core/priority.ts";
import type { LinePlaces } from "./line-places.ts";
import { lacking, type Group } from "./group.ts";

/** What to ask for, and for whom: the groups stand in the order of the wishes. */
export interface Wishes {
  readonly groups: readonly Group[];
  readonly wishes: readonly Wish[];
}

/** One script serves so many; the rest come with the next one. */
const MOST_WISHES = 12;
/** An urgent call of one key may wait behind so many other keys. */
const MOST_LOOKED = 500;

/** From so many groups on, none is waited for, and not all are looked at. */
const MANY = 200;

/** When anybody may be asked for, and when the last slot comes that those who lack some hold. */
export function readiness(
  waitingIn: ReadonlySet<Group>,
  nowMs: number,
): { readonly readyAtMs: number; readonly lastAtMs: number; readonly isMany: boolean } {
  const isMany = waitingIn.size > MANY;
  let readyAtMs = Infinity;
  let lastAtMs = -Infinity;
  for (const { line, held, notBeforeMs } of waitingIn) {
    if (line.size <= held.size) continue;
    readyAtMs = Math.min(readyAtMs, notBeforeMs);
    lastAtMs = Math.max(lastAtMs, held.lastAtMs);
    // Among many, one that may be asked for is enough to know.
    if (isMany && notBeforeMs <= nowMs) break;
  }
  return { readyAtMs, lastAtMs, isMany };
}

/**
 * Whom to ask for: the most urgent first, then who came first, or was held back by its key first. If it is nobody's
 * time yet, the one whose time is nearest, to hear whether anything has changed.
 */
export function nextWishes(
  waitingIn: Iterable<Group>,
  linePlaces: LinePlaces,
  nowMs: number,
): Wishes {
  const ready: Group[] = [];
  let nearest: Group | undefined;
  let looked = 0;
  for (const group of waitingIn) {
    // Those who wait the longest stand first; to look at thousands would cost more than the draw.
    if (looked === MOST_LOOKED && ready.length === MOST_WISHES) break;
    if (group.line.size <= group.held.size) continue;
    looked += 1;
    if (group.notBeforeMs <= nowMs) insert(ready, group);
    else if (nearest === undefined || group.notBeforeMs < nearest.notBeforeMs) nearest = group;
  }
  if (ready.length === 0 && nearest !== undefined) ready.push(nearest);
  ready.sort(byArrival);
  const all = ready
    .filter((group, index) => !hasOtherLimits(ready.slice(0, index), group))
    .flatMap((group) => lacking(group).map((each) => ({ group, ...each })));
  if (all.length > 1) all.sort((a, b) => a.rank - b.rank);
  const first = all.length > MOST_WISHES ? all.slice(0, MOST_WISHES) : all;
  return {
    groups: first.map(({ group }) => group),
    wishes: first.map(({ group: { name, key, conditions }, rank, wanted }) => {
      const { keyLimits, costs } = conditions;
      const place = linePlaces.of(key);
      return { name, key, keyLimits, costs, wanted, rank, place };
    }),
  };
}

/** Keeps the first `MOST_WISHES` in order: to sort thousands for each draw would cost more than the draw. */
function insert(ready: Group[], group: Group): void {
  const last = ready.at(-1);
  if (ready.length === MOST_WISHES && last !== undefined && !comesBefore(group, last)) return;
  let at = ready.length;
  while (at > 0 && comesBefore(group, ready[at - 1]!)) at -= 1;
  ready.splice(at, 0, group);
  if (ready.length > MOST_WISHES) ready.pop();
}

/** Who is asked for first, where there are more than one script serves: a key that held its calls back gives way to all who had come by then. */
function comesBefore(a: Group, b: Group): boolean {
  const byRank = rankOf(a) - rankOf(b);
  return byRank === 0 ? standingOf(a) < standingOf(b) : byRank < 0;
}

function rankOf({ line }: Group): number {
  return RANKS[line.head!.priority];
}

function standingOf({ line, behind }: Group): number {
  return Math.max(line.head!.number, behind);
}

/** Who is served first by one script. */
function byArrival(a: Group, b: Group): number {
  return rankOf(a) - rankOf(b) || a.line.head!.number - b.line.head!.number;
}

/** A key whose tier has changed may wait under both; one draw knows one set of limits for it. */
function hasOtherLimits(before: readonly Group[], { key, conditions }: Group): boolean {
  if (key === undefined) return false;
  const { keyLimits } = conditions;
  return before.some((other) => other.key === key && other.conditions.keyLimits !== keyLimits);
}

/** How many leases such a draw can be given at most. */
export function mostLeases(limits: Wish["keyLimits"], wishes: readonly Wish[]): number {
  let most = 0;
  for (const { wanted, keyLimits } of wishes) {
    const bounds = [...limits, ...keyLimits].filter(isLeased);
    if (bounds.length > 0) most += Math.min(wanted, ...bounds.map(({ count }) => count));
  }
  return most;
}
