import { isLeased } from "../../core/limits/registry.ts";
import { NO_PLACE, type Place, type Wish } from "../../core/store.ts";
import { MANY, rankOf, type SoonestGroups, type GroupSchedule } from "./group-schedule.ts";
import { lacking, type Group } from "./group.ts";

/** What to ask for, and for whom: the groups stand in the order of the wishes. */
export interface Wishes {
  readonly groups: readonly Group[];
  readonly wishes: readonly Wish[];
}

/** One script serves so many; the rest come with the next one. */
const MOST_WISHES = 12;

/** When anybody may be asked for, and when the last slot comes that those who lack some hold. */
export function readiness(schedule: SoonestGroups): {
  readonly readyAtMs: number;
  readonly lastAtMs: number;
  readonly isMany: boolean;
} {
  const isMany = schedule.size > MANY;
  let readyAtMs = Infinity;
  let lastAtMs = -Infinity;
  for (const { line, held, notBeforeMs } of schedule) {
    if (line.size <= held.size) continue;
    readyAtMs = Math.min(readyAtMs, notBeforeMs);
    lastAtMs = Math.max(lastAtMs, held.lastAtMs);
  }
  return { readyAtMs, lastAtMs, isMany };
}

/**
 * Whom to ask for: the most urgent first, then who came first, or was held back by its key first. If it is nobody's
 * time yet, the one whose time is nearest, to hear whether anything has changed.
 */
export function nextWishes(schedule: GroupSchedule, linePlaces: LinePlaces, nowMs: number): Wishes {
  const ready = schedule.next(MOST_WISHES, nowMs);
  ready.sort(byArrival);
  const all = ready
    .filter((group, index) => !hasOtherLimits(ready.slice(0, index), group))
    .flatMap((group) => lacking(group).map((each) => ({ group, ...each })));
  if (all.length > 1) all.sort((a, b) => a.rank - b.rank);
  const first = all.length > MOST_WISHES ? all.slice(0, MOST_WISHES) : all;
  return {
    groups: first.map(({ group }) => group),
    wishes: first.map(({ group: { name, limitedKey: key, callTerms }, rank, wanted }) => {
      const { keyLimits, costs } = callTerms;
      const place = linePlaces.of(key);
      return { name, key, keyLimits, costs, wanted, rank, place };
    }),
  };
}

/** Who is served first by one script. */
function byArrival(a: Group, b: Group): number {
  return rankOf(a) - rankOf(b) || a.line.head!.number - b.line.head!.number;
}

/** A key whose tier has changed may wait under both; one draw knows one set of limits for it. */
function hasOtherLimits(before: readonly Group[], { limitedKey, callTerms }: Group): boolean {
  if (limitedKey === undefined) return false;
  const { keyLimits } = callTerms;
  return before.some(
    (other) => other.limitedKey === limitedKey && other.callTerms.keyLimits !== keyLimits,
  );
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

/** This process's places among those who wait in a bucket. */
export interface LinePlaces {
  /** Among those who wait for the bucket itself. */
  shared: Place;
  /** Among those who wait for one key. */
  of(key: string | undefined): Place;
  keep(key: string | undefined, place: Place): void;
  /** Another generation has begun: its turns are others, but who waited for a lease does so since then. */
  forgetTurns(): void;
}

export function createLinePlaces(): LinePlaces {
  const ofKeys = new Map<string, Place>();

  return {
    shared: NO_PLACE,
    of: (key) => (key !== undefined && ofKeys.get(key)) || NO_PLACE,
    keep(key, place) {
      if (key === undefined) return;
      if (isNone(place)) ofKeys.delete(key);
      else ofKeys.set(key, place);
    },
    forgetTurns() {
      this.shared = withoutTurn(this.shared);
      for (const [key, place] of ofKeys) this.keep(key, withoutTurn(place));
    },
  };
}

function withoutTurn({ sinceUs }: Place): Place {
  return { ...NO_PLACE, sinceUs };
}

/** Whether an asker waits for nothing. */
export function isNone({ turnUs, sinceUs }: Place): boolean {
  return turnUs === 0 && sinceUs === 0;
}
