import { rollingDaysOf } from "./budget.ts";
import { daysAround, periodStarts, resetsAround } from "./calendar-days.ts";
import type { Limit } from "./rule.ts";

/** A window of a limit, in µs since 1970. `endUs` is not part of the window. */
interface Window {
  readonly startUs: number;
  readonly endUs: number;
}

/**
 * Returns the window of a limit that contains a time. `window_at` in `lua/lib/limits/fixed-window.lua` computes the
 * same window.
 */
export function windowAt({ periodUs, resets }: Limit, atUs: number): Window {
  if (resets === undefined) {
    const startUs = Math.floor(atUs / periodUs) * periodUs;
    return { startUs, endUs: startUs + periodUs };
  }
  const next = resets.findIndex((resetUs) => resetUs > atUs);
  if (next > 0) return { startUs: resets[next - 1]!, endUs: resets[next]! };
  // The time is outside the known resets. No booking reaches this far, so an estimate suffices for the time of the next
  // draw.
  const startUs = next === 0 ? resets[0]! - periodUs : resets.at(-1)!;
  return { startUs, endUs: startUs + periodUs };
}

/** Caches the computed resets of each limit for a day, because computing them takes as long as a draw. */
const reckoned = new WeakMap<Limit, Limit>();

interface Scoped {
  readonly scopes: readonly { readonly limits: readonly Limit[] }[];
}

/** The parts of a request that may contain limits with calendar windows. */
export interface WithResets extends Partial<Scoped> {
  readonly terms: {
    readonly limits: readonly Limit[];
    readonly shadows?: readonly Limit[] | undefined;
  };
  readonly scope?: Scoped["scopes"][number] | undefined;
  readonly slotRequest?: Scoped;
  readonly slotRequests?: readonly Scoped[];
  readonly pool?: { readonly members: Scoped["scopes"] } | undefined;
}

/** True if a request contains limits with calendar windows. Most requests contain none. */
export function hasDays({
  terms,
  scope,
  scopes = [],
  slotRequest,
  slotRequests = [],
  pool,
}: WithResets): boolean {
  const areSomeDays = (each: Scoped): boolean => each.scopes.some(({ limits }) => areDays(limits));
  return (
    areDays(terms.limits) ||
    (terms.shadows !== undefined && areDays(terms.shadows)) ||
    (scope !== undefined && areDays(scope.limits)) ||
    areSomeDays({ scopes }) ||
    (slotRequest !== undefined && areSomeDays(slotRequest)) ||
    slotRequests.some(areSomeDays) ||
    (pool !== undefined && areSomeDays({ scopes: pool.members }))
  );
}

/**
 * Adds the reset times around `nowUs` to all limits with calendar windows in a request. `nowUs` is a time on the bucket's clock.
 */
export function addResets<Request extends WithResets>(request: Request, nowUs: number): Request {
  if (!hasDays(request)) return request;
  const reckon = <Each extends { readonly limits: readonly Limit[] }>(each: Each): Each => ({
    ...each,
    limits: withResets(each.limits, nowUs),
  });
  const reckonAll = <Each extends Scoped>(each: Each): Each => ({
    ...each,
    scopes: each.scopes.map(reckon),
  });
  const { terms, scope, scopes, slotRequest, slotRequests, pool } = request;
  const shadows = terms.shadows && withResets(terms.shadows, nowUs);
  return {
    ...request,
    terms: { ...reckon(terms), ...(shadows && { shadows }) },
    ...(scope && { scope: reckon(scope) }),
    ...(scopes && reckonAll({ scopes })),
    ...(slotRequest && { slotRequest: reckonAll(slotRequest) }),
    ...(slotRequests && { slotRequests: slotRequests.map(reckonAll) }),
    ...(pool && { pool: { ...pool, members: pool.members.map(reckon) } }),
  };
}

function areDays(limits: readonly Limit[]): boolean {
  return limits.some(isOnCalendar);
}

function isOnCalendar({ align, budget }: Limit): boolean {
  return align !== undefined || budget !== undefined;
}

function withResets(limits: readonly Limit[], nowUs: number): readonly Limit[] {
  if (!areDays(limits)) return limits;
  return limits.map((limit) => {
    const found = reckoned.get(limit);
    if (!isOnCalendar(limit)) return limit;
    if (found !== undefined && !areResetsOff([found], nowUs)) return found;
    const current = { ...limit, ...reckonAt(limit, nowUs) };
    reckoned.set(limit, current);
    return current;
  });
}

const RESETS = 4;

/** Computes the times of a calendar limit around `nowUs`. */
function reckonAt({ align, budget }: Limit, nowUs: number): Pick<Limit, "resets" | "days"> {
  if (align !== undefined) return { resets: resetsAround(nowUs, align, RESETS) };
  const { per, timeZone, weekStart } = budget!;
  if (typeof per === "string") {
    return { resets: periodStarts(nowUs, { per, timeZone, weekStart }, RESETS) };
  }
  return {
    resets: periodStarts(nowUs, { per: "day", timeZone, weekStart }, RESETS),
    days: daysAround(nowUs, timeZone, rollingDaysOf(budget!)),
  };
}

/**
 * True if the resets were computed for another time than the bucket's current time. `are_resets_off` in Lua rejects
 * such resets.
 */
function areResetsOff(limits: readonly Limit[], nowUs: number): boolean {
  return limits.some(
    ({ resets }) => resets !== undefined && (nowUs < resets[0]! || nowUs >= resets[1]!),
  );
}
