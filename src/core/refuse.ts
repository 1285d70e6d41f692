import { mostOf, times } from "./book.ts";
import type { Place } from "./draw-messages.ts";
import {
  bindingAt,
  settlePlace,
  shutBy,
  shutUs,
  slowedBy,
  type Fitting,
  type Serving,
} from "./place.ts";
import { agreeUs } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

/** What a draw came to so far for one wish that did not get all it wanted. */
export interface Unserved {
  /** How many slots it got, and how many it lacks. */
  readonly count: number;
  readonly left: number;
  /** From when on its scopes are open. */
  readonly opensUs: number;
  readonly horizonUs: number;
  /** How many slots others are to have before it. */
  readonly ahead: number;
  /** The turn that its asker was given, if it still counts. */
  readonly ownTurnUs: number | undefined;
}

export interface Refusal {
  readonly place: Place;
  /** When to ask again; Infinity if nobody can tell. */
  readonly turnUs: number;
  /** As in `Granted`, of this scope's limits. */
  readonly bindsAt: number;
}

/** What could not be granted of a wish waits for its turn. Twin of `refuse` in `lua/lib/place.lua`. */
export function refuse(serving: Serving, main: Fitting, unserved: Unserved): Refusal {
  const { request, state, hasGranted } = serving;
  const { clockUs: nowUs, shared } = state;
  const { scope, stepUs, claim, own, costs, drawer } = main;
  const { count, left, opensUs, horizonUs, ahead, ownTurnUs } = unserved;
  const nextUs = agreeUs(scope, opensUs, costs, drawer);
  const isServed = hasGranted && ownTurnUs !== undefined;
  const before = isServed ? slotsBefore(scope, claim, own, Infinity) : ahead;
  // A try is told when the first of those refused may come; others wait for as many as they may have.
  const needed = before + (request.isTry ? 1 : Math.min(left, claim.share));
  // So many may come at once, when there is room for them; the rest come one after the other.
  const together = Math.min(needed, mostOf(main));
  const roomUs = agreeUs(scope, opensUs, times(costs, together), drawer);
  // Of leases, nobody can tell when several come free.
  const fromUs = roomUs === Infinity ? nextUs : roomUs;
  const reckonedUs = Math.max(nowUs, fromUs + Math.floor((needed - together) * stepUs) - horizonUs);
  // Whoever only looks in keeps its turn: reckoned anew behind all who came since, it would never come.
  const keepsTurn = count === 0 && own.turnUs > nowUs && reckonedUs !== Infinity;
  const turnUs = keepsTurn ? Math.min(own.turnUs, reckonedUs) : reckonedUs;
  // A bucket whose limits are all per key can be opened any time: a turn behind that would keep the key shut.
  const isBucketShut = scope !== shared && shutUs(shared) > nowUs + horizonUs;
  const keptUs = isBucketShut && turnUs !== Infinity ? 0 : turnUs;
  const place = settlePlace(serving, main, keptUs, count > 0);
  const isLate = nextUs > nowUs + horizonUs;
  const slows = (): number => bindingAt(main) || slowedBy(shared, scope, nowUs);
  const bindsAt = shutBy(shared, scope, nowUs + horizonUs) || (isLate ? slows() : 0);
  return { place, turnUs, bindsAt };
}
