import { ruleOf } from "../limits/registry.ts";
import type { Drawer } from "../limits/rule.ts";
import {
  COOLING,
  NO_PLACE,
  PAUSED,
  SLOWED,
  type DrawRequest,
  type Place,
  type Wish,
} from "../store.ts";
import type { BucketState } from "./bucket-state.ts";
import {
  earliestForAllUs,
  bindingOf,
  keepsGap,
  opensAtUs,
  roomOf,
  stepOf,
  type Scope,
} from "./scope.ts";
import { keepTurn, shareOf, slotsBefore, type Claim } from "./turns.ts";

/**
 * Whether a wish fits into a scope, and the place that its asker keeps there if it does not.
 * Twin of `lua/lib/draw/place.lua`.
 */

/** One draw under way. */
export interface Serving {
  readonly state: BucketState;
  readonly request: DrawRequest;
  readonly alive: number;
  readonly isNewWindow: boolean;
  readonly sinceUs: number;
  /** How much of this asker's share of the horizon is used: 1 is all of it. */
  used: number;
  /** The number of the next lease. */
  lease: number;
  hasGranted: boolean;
  /** The place of the first wish that did not fit; those behind it wait with it. */
  refusedPlace: Place | undefined;
  /** The places of keys, as the wishes so far left them. */
  readonly places: Map<string, Place>;
}

/** A scope into which a wish has to fit, with what the wish needs of it. */
export interface Fitting {
  readonly scope: Scope;
  readonly costs: readonly number[];
  /** How long one call occupies the scope, in µs. */
  readonly stepUs: number;
  readonly own: Place;
  readonly claim: Claim;
  readonly drawer: Drawer;
}

/** Until when a cooldown or a pause lets nothing start. */
export function closedUntilUs({ coolUntilUs, pausedUntilUs }: Scope): number {
  return Math.max(coolUntilUs, pausedUntilUs);
}

/** `COOLING` or `PAUSED`, if a cooldown or a pause of the bucket or key lasts beyond this time; else 0. */
export function closedBy(shared: Scope, own: Scope, untilUs: number): number {
  if (Math.max(closedUntilUs(shared), closedUntilUs(own)) <= untilUs) return 0;
  const pausedUs = Math.max(shared.pausedUntilUs, own.pausedUntilUs);
  return pausedUs >= Math.max(shared.coolUntilUs, own.coolUntilUs) ? PAUSED : COOLING;
}

/** Whether answers have slowed the rate of the bucket or its key: `SLOWED`, or 0. */
export function slowedBy(shared: Scope, own: Scope, nowUs: number): number {
  return keepsGap(shared, nowUs) || keepsGap(own, nowUs) ? SLOWED : 0;
}

/** What a wish needs of a scope. */
export function fit(
  { request, state, alive, sinceUs, lease }: Serving,
  { rank }: Wish,
  scope: Scope,
  { costs, own }: { costs: readonly number[]; own: Place },
): Fitting {
  const limits = scope.records.map(({ limit }) => limit);
  const { asker, horizonUs } = request;
  const stepUs = stepOf(limits, costs);
  const share = shareOf(roomOf(limits, costs, horizonUs), alive);
  const isCostly = costs.some((cost) => cost > 1);
  const claim = { asker, rank, stepUs: Math.max(1, Math.ceil(stepUs)), share, isCostly, sinceUs };
  const drawer = { asker, nowUs: state.clockUs, sinceUs: own.sinceUs, lease };
  return { scope, costs, stepUs, own, claim, drawer };
}

/** The number, from 1 on, of the limit that holds the next call back; 0: none does. */
export function bindingAt({ scope, stepUs, costs, drawer }: Fitting): number {
  return bindingOf(scope, opensAtUs(scope, drawer.nowUs, stepUs), costs, drawer);
}

/**
 * Keeps the asker's place in a scope until `turnUs`. That is 0 if it got all it wanted, and Infinity if
 * the time of its turn is unknown.
 */
export function settlePlace(
  { request, isNewWindow, state }: Serving,
  { scope, claim, own, drawer }: Fitting,
  turnUs: number,
  isServed: boolean,
): Place {
  if (request.isTry) return NO_PLACE;
  const isBlocked = turnUs === Infinity;
  const sinceUs = !isBlocked ? 0 : isServed || own.sinceUs === 0 ? state.clockUs : own.sinceUs;
  for (const { limit, state: limitState } of scope.records) {
    const rule = ruleOf(limit.kind);
    if (own.sinceUs > 0 && own.sinceUs !== sinceUs) rule.leavePlace?.(limitState, drawer);
    if (sinceUs > 0) rule.keepPlace?.(limitState, { ...drawer, sinceUs });
  }
  const turn = keepTurn(scope, claim, own, { turnUs: isBlocked ? 0 : turnUs, isNewWindow });
  return { ...turn, sinceUs };
}

/** A wish that did not get all it wanted. */
export interface UnmetWish {
  /** How many slots it got, and how many it lacks. */
  readonly count: number;
  readonly left: number;
  /** The earliest time at which anything may start. */
  readonly opensUs: number;
  readonly horizonUs: number;
  /** How many slots to leave to earlier turns. */
  readonly ahead: number;
  /** The turn that its asker has, unless it was missed. */
  readonly ownTurnUs: number | undefined;
}

export interface Refusal {
  readonly place: Place;
  /** When to ask again; Infinity if that is unknown. */
  readonly turnUs: number;
  /** As in `Granted`, of this scope's limits. */
  readonly bindsAt: number;
}

/** Gives the asker a turn for the rest of a wish. */
export function refuse(serving: Serving, main: Fitting, unserved: UnmetWish): Refusal {
  const { request, state, hasGranted } = serving;
  const { clockUs: nowUs, shared } = state;
  const { scope, stepUs, claim, own, costs, drawer } = main;
  const { count, left, opensUs, horizonUs, ahead, ownTurnUs } = unserved;
  const nextUs = earliestForAllUs(scope, opensUs, costs, drawer);
  const isServed = hasGranted && ownTurnUs !== undefined;
  const before = isServed ? slotsBefore(scope, claim, own, Infinity) : ahead;
  // A try asks again for one call; an asker that waits comes for as many calls as it may have.
  const needed = before + (request.isTry ? 1 : Math.min(left, claim.share));
  // These may come at once, when there is room for all of them; the rest come one after the other.
  const together = Math.min(needed, mostOf(main));
  const roomUs = earliestForAllUs(scope, opensUs, times(costs, together), drawer);
  // When several leases come free is unknown; when the next slot comes may still be known.
  const fromUs = roomUs === Infinity ? nextUs : roomUs;
  const newTurnUs = Math.max(nowUs, fromUs + Math.floor((needed - together) * stepUs) - horizonUs);
  // An asker that comes before its turn keeps it: a new turn, behind all that came since, would never arrive.
  const keepsTurn = count === 0 && own.turnUs > nowUs && newTurnUs !== Infinity;
  const turnUs = keepsTurn ? Math.min(own.turnUs, newTurnUs) : newTurnUs;
  // In a bucket with limits per key only, a pause may end any time: a turn after it would keep the key waiting.
  const isBucketClosed = scope !== shared && closedUntilUs(shared) > nowUs + horizonUs;
  const keptUs = isBucketClosed && turnUs !== Infinity ? 0 : turnUs;
  const place = settlePlace(serving, main, keptUs, count > 0);
  const isLate = nextUs > nowUs + horizonUs;
  const slows = (): number => bindingAt(main) || slowedBy(shared, scope, nowUs);
  const bindsAt = closedBy(shared, scope, nowUs + horizonUs) || (isLate ? slows() : 0);
  return { place, turnUs, bindsAt };
}

/** The most calls that may start at once, where no limit bounds them. */
const MOST_TOGETHER = 1_000_000;

/** How many such calls the capacities allow at once. */
export function mostOf({ scope, costs }: Fitting): number {
  const each = scope.records.map(({ limit }, index) =>
    costs[index] === 0 || !ruleOf(limit.kind).isRate
      ? Infinity
      : Math.floor(limit.capacity / costs[index]!),
  );
  return Math.min(MOST_TOGETHER, ...each);
}

export function times(costs: readonly number[], count: number): number[] {
  return costs.map((cost) => cost * count);
}
