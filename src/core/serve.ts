import { takeHoles } from "./holes.ts";
import { bookAtOnce, bookList, bookRun, isAtOnce, isRunnable, type Booking } from "./book.ts";
import { NO_PLACE, type Granted, type Place, type Wish } from "./draw-messages.ts";
import { bindingAt, fit, settlePlace, shutUs, type Serving } from "./place.ts";
import { refuse } from "./refuse.ts";
import { opensAtUs } from "./gaps.ts";
import type { Scope } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

const NOTHING = { slotsUs: [], run: undefined, notBeforeUs: 0, bindsAt: 0, standings: [] };

/** Books what it can of one wish; twin of `lua/lib/serve.lua`. A key's limits are a gate beside those that all share, or stand alone. */
export function serve(serving: Serving, wish: Wish, openKey: () => Scope | undefined): Granted {
  const { state, request } = serving;
  const { shared, clockUs: nowUs } = state;
  const sharedCount = shared.records.length;
  if (serving.refusedPlace !== undefined && !request.isTry) {
    return { ...NOTHING, place: wish.place };
  }
  const keyScope = openKey();
  const isOwn = keyScope !== undefined && sharedCount === 0;

  const main = fit(serving, wish, isOwn ? keyScope : shared, {
    costs: isOwn ? wish.costs : wish.costs.slice(0, sharedCount),
    own: isOwn ? wish.place : request.place,
  });
  const gate =
    keyScope === undefined || isOwn
      ? undefined
      : fit(serving, wish, keyScope, { costs: wish.costs.slice(sharedCount), own: wish.place });
  const { scope, stepUs, claim, own } = main;
  const used = isOwn ? 0 : serving.used;
  // Whoever tries waits for no turn, so nothing is shared out to it.
  const shareLeft = request.isTry ? wish.wanted : Math.floor((1 - used) * claim.share);
  const most = Math.min(wish.wanted, Math.max(used === 0 ? 1 : 0, shareLeft));
  const horizonUs = Math.floor((request.horizonUs * request.terms.shares[wish.rank]!) / 1_000);
  const ownTurnUs = own.turnUs >= serving.sinceUs ? own.turnUs : undefined;
  const ahead = slotsBefore(scope, claim, own, ownTurnUs ?? Infinity);
  const opens = (): number =>
    isOwn
      ? Math.max(opensAtUs(shared, nowUs, stepUs), opensAtUs(scope, nowUs, stepUs))
      : opensAtUs(scope, nowUs, stepUs);
  const untilUs = nowUs + horizonUs - Math.floor(ahead * stepUs);

  const holesUntilUs = nowUs + request.horizonUs;
  const recycledUs = request.isTry
    ? []
    : takeHoles(state, { name: wish.name, most, untilUs: holesUntilUs });
  const wished = most - recycledUs.length;
  const booking: Booking = { serving, main, gate, opens, untilUs, most: wished, ahead };
  const booked = isRunnable(booking)
    ? bookRun(booking)
    : isAtOnce(booking)
      ? bookAtOnce(booking)
      : bookList(booking);
  const count = recycledUs.length + booked.slotsUs.length + (booked.run?.count ?? 0);
  if (count > 0) serving.hasGranted = true;
  if (!isOwn) serving.used += count / claim.share;

  const slotsUs = [...recycledUs, ...booked.slotsUs];
  const granted = { slotsUs, run: booked.run, standings: [] };
  const left = wish.wanted - count;
  const { deferredUs } = booked;
  if (gate !== undefined && deferredUs !== undefined) {
    const binding = bindingAt(gate);
    // Its limits would let it pass: it is the key's cooldown that does not.
    const bindsAt = binding > 0 ? sharedCount + binding : shutUs(gate.scope) > nowUs ? -1 : 0;
    const place = settlePlace(serving, gate, deferredUs, count > 0);
    return { ...granted, notBeforeUs: deferredUs, place, bindsAt };
  }
  const gatePlace = gate === undefined ? NO_PLACE : settlePlace(serving, gate, 0, true);
  if (left === 0) {
    const place = isOwn ? settlePlace(serving, main, 0, true) : gatePlace;
    return { ...granted, notBeforeUs: 0, place, bindsAt: 0 };
  }

  const unserved = { count, left, opensUs: opens(), horizonUs, ahead, ownTurnUs };
  const { place, turnUs, bindsAt } = refuse(serving, main, unserved);
  if (isOwn) return { ...granted, notBeforeUs: turnUs, place, bindsAt };
  serving.refusedPlace = place;
  // A try keeps no place, so it is told here when to come again.
  return { ...granted, notBeforeUs: request.isTry ? turnUs : 0, place: gatePlace, bindsAt };
}

/** The place of what did not fit into the bucket; none if all did. */
export function endServing(serving: Serving): Place {
  const { request, state, refusedPlace } = serving;
  if (refusedPlace !== undefined) return refusedPlace;
  const wish = request.wishes.at(-1)!;
  const costs = wish.costs.slice(0, state.shared.records.length);
  return settlePlace(
    serving,
    fit(serving, wish, state.shared, { costs, own: request.place }),
    0,
    true,
  );
}
