import { isLeased } from "../../core/limits/registry.ts";
import { NO_PLACE, type Place, type Wish } from "../../core/store.ts";
import { rankOf, type GroupSchedule } from "./group-schedule.ts";
import { lacking, type Group } from "./group.ts";

/** What to ask for: a wish is what one request asks for one group and priority; the groups are in the wishes' order. */
export interface Wishes {
  readonly groups: readonly Group[];
  readonly wishes: readonly Wish[];
}

/** What one script serves; the rest come with the next one. */
const MOST_WISHES = 12;

/**
 * What to ask for: the most urgent calls first, then those that came first, or were deferred by their key first. If no
 * group's time has come, the one whose time is nearest is asked for, to notice whether anything has changed.
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

/** Which group one script serves first. */
function byArrival(a: Group, b: Group): number {
  return rankOf(a) - rankOf(b) || a.line.head!.number - b.line.head!.number;
}

/** A key whose tier has changed may wait under both; one draw takes one set of limits for it. */
function hasOtherLimits(before: readonly Group[], { limitedKey, callTerms }: Group): boolean {
  if (limitedKey === undefined) return false;
  const { keyLimits } = callTerms;
  return before.some(
    (other) => other.limitedKey === limitedKey && other.callTerms.keyLimits !== keyLimits,
  );
}

/** How many leases a draw with these wishes can be given at most. */
export function mostLeases(limits: Wish["keyLimits"], wishes: readonly Wish[]): number {
  let most = 0;
  for (const { wanted, keyLimits } of wishes) {
    const bounds = [...limits, ...keyLimits].filter(isLeased);
    if (bounds.length > 0) most += Math.min(wanted, ...bounds.map(({ count }) => count));
  }
  return most;
}

/** This process's places in the lines of a bucket. */
export interface LinePlaces {
  /** Its place in the line of the bucket itself. */
  shared: Place;
  /** Its place in the line of one key. */
  of(key: string | undefined): Place;
  keep(key: string | undefined, place: Place): void;
  /** Another generation has begun: its turns are others, but an asker that waited for a lease does so since then. */
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
