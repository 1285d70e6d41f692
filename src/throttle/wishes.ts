import { NO_PLACE, type Place, type Wish } from "../core/store.ts";
import { lacking, type Group } from "./group.ts";

/** What to ask for, and for whom: the groups stand in the order of the wishes. */
export interface Wishes {
  readonly groups: readonly Group[];
  readonly wishes: readonly Wish[];
}

/** One script serves so many; the rest come with the next one. */
const MOST_WISHES = 12;

/**
 * Whom to ask for: the most urgent first, then who came first. If it is nobody's
 * time yet, the one whose time is nearest, to hear whether anything has changed.
 */
export function nextWishes(
  waitingIn: Iterable<Group>,
  keyPlaces: ReadonlyMap<string, Place>,
  nowMs: number,
): Wishes {
  const lackers = [...waitingIn].filter(({ line, held }) => line.size > held.size);
  const isReady = lackers.some(({ notBeforeMs }) => notBeforeMs <= nowMs);
  const nearest = (): Group => lackers.reduce((a, b) => (b.notBeforeMs < a.notBeforeMs ? b : a));
  const ready = isReady ? lackers.filter(({ notBeforeMs }) => notBeforeMs <= nowMs) : [nearest()];
  if (ready.length > 1) ready.sort((a, b) => a.line.head!.number - b.line.head!.number);
  const all = ready.flatMap((group) => lacking(group).map((each) => ({ group, ...each })));
  if (all.length > 1) all.sort((a, b) => a.rank - b.rank);
  const first = all.length > MOST_WISHES ? all.slice(0, MOST_WISHES) : all;
  return {
    groups: first.map(({ group }) => group),
    wishes: first.map(({ group: { name, key, keyLimits, costs }, rank, wanted }) => {
      const place = (key !== undefined && keyPlaces.get(key)) || NO_PLACE;
      return { name, key, keyLimits, costs, wanted, rank, place };
    }),
  };
}

/** How many leases such a draw can be given at most. */
export function mostLeases(limits: Wish["keyLimits"], wishes: readonly Wish[]): number {
  let most = 0;
  for (const { wanted, keyLimits } of wishes) {
    const bounds = [...limits, ...keyLimits].filter(({ kind }) => kind === "concurrency");
    if (bounds.length > 0) most += Math.min(wanted, ...bounds.map(({ count }) => count));
  }
  return most;
}
