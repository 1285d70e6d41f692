import { NO_PLACE, type Granted, type Place, type Wish } from "../store.ts";
import {
  bookAtOnce,
  bookList,
  bookRun,
  isAtOnce,
  isRunnable,
  type Booked,
  type Booking,
} from "./book.ts";
import { takeHoles } from "./bucket-state.ts";
import {
  bindingAt,
  fit,
  refuse,
  settlePlace,
  closedBy,
  closedUntilUs,
  slowedBy,
  type Fitting,
  type Serving,
} from "./place.ts";
import { opensAtUs, type Scope } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

const NOTHING = { slotsUs: [], run: undefined, notBeforeUs: 0, bindsAt: 0, statuses: [] };

/** The limits that a wish has to fit. */
interface Fittings {
  /** The limits that all keys share; in a bucket without such, those of the wish's key. */
  readonly main: Fitting;
  /** The limits of the wish's key beside shared ones. */
  readonly keyFitting: Fitting | undefined;
  /** Whether `main` holds the key's limits. */
  readonly isOwn: boolean;
  /** The earliest time at which anything may start; it moves with each booking. */
  readonly opens: () => number;
}

/** How much of a wish its asker may have now. */
interface Portion {
  readonly most: number;
  /** How many slots to leave to earlier turns. */
  readonly ahead: number;
  readonly ownTurnUs: number | undefined;
  /** How far ahead a wish of its priority may book. */
  readonly horizonUs: number;
}

/**
 * Books what it can of one wish. A key's limits apply together with those that all keys share; in a bucket
 * without shared limits, they decide alone. Twin of `lua/lib/draw/serve.lua`.
 */
export function serve(serving: Serving, wish: Wish, openKey: () => Scope | undefined): Granted {
  const { key } = wish;
  if (key === undefined) return serveOne(serving, wish, openKey);
  // A key keeps one place, so each of its wishes continues from the place that the one before left.
  const place = serving.places.get(key) ?? wish.place;
  const granted = serveOne(serving, { ...wish, place }, openKey);
  serving.places.set(key, granted.place);
  return granted;
}

function serveOne(serving: Serving, wish: Wish, openKey: () => Scope | undefined): Granted {
  if (serving.refusedPlace !== undefined && !serving.request.isTry) {
    return { ...NOTHING, place: wish.place };
  }
  const fittings = fitAll(serving, wish, openKey());
  const asked = { ...fittings, ...portionOf(serving, wish, fittings) };
  const booked = book(serving, wish, asked);
  const { slotsUs, run } = booked;
  const settled = endWish(serving, wish, { ...asked, booked });
  const isRefused = serving.request.isTry && countOf(booked) < wish.wanted;
  const ended = isRefused ? untilOpen(serving, fittings, settled) : settled;
  return { slotsUs, run, statuses: [], ...ended };
}

function fitAll(serving: Serving, wish: Wish, keyScope: Scope | undefined): Fittings {
  const { state, request } = serving;
  const { shared, clockUs: nowUs } = state;
  const sharedCount = shared.records.length;
  if (keyScope !== undefined && sharedCount === 0) {
    const main = fit(serving, wish, keyScope, { costs: wish.costs, own: wish.place });
    const { stepUs } = main;
    const opens = (): number =>
      Math.max(opensAtUs(shared, nowUs, stepUs), opensAtUs(keyScope, nowUs, stepUs));
    return { main, keyFitting: undefined, isOwn: true, opens };
  }
  const costs = wish.costs.slice(0, sharedCount);
  const main = fit(serving, wish, shared, { costs, own: request.place });
  const ofKey = { costs: wish.costs.slice(sharedCount), own: wish.place };
  const keyFitting = keyScope && fit(serving, wish, keyScope, ofKey);
  return { main, keyFitting, isOwn: false, opens: () => opensAtUs(shared, nowUs, main.stepUs) };
}

function portionOf(
  { request, used: usedSoFar, sinceUs }: Serving,
  { wanted, rank }: Wish,
  { main: { scope, claim, own }, isOwn }: Fittings,
): Portion {
  const used = isOwn ? 0 : usedSoFar;
  // A try waits for no turn, so the horizon is not shared out.
  const shareLeft = request.isTry ? wanted : Math.floor((1 - used) * claim.share);
  const most = Math.min(wanted, Math.max(used === 0 ? 1 : 0, shareLeft));
  const ownTurnUs = own.turnUs >= sinceUs ? own.turnUs : undefined;
  const ahead = slotsBefore(scope, claim, own, ownTurnUs ?? Infinity);
  const horizonUs = Math.floor((request.horizonUs * request.terms.shares[rank]!) / 1_000);
  return { most, ahead, ownTurnUs, horizonUs };
}

/** Books holes first, and then new slots. */
function book(serving: Serving, { name }: Wish, asked: Fittings & Portion): Booked {
  const { state, request } = serving;
  const { main, keyFitting, opens, isOwn, ahead, horizonUs } = asked;
  const holesUntilUs = state.clockUs + request.horizonUs;
  const recycledUs = request.isTry
    ? []
    : takeHoles(state, { name, most: asked.most, untilUs: holesUntilUs });
  const untilUs = state.clockUs + horizonUs - Math.floor(ahead * main.stepUs);
  const most = asked.most - recycledUs.length;
  const booking: Booking = { serving, main, keyFitting, opens, untilUs, most, ahead };
  const booked = isRunnable(booking)
    ? bookRun(booking)
    : isAtOnce(booking)
      ? bookAtOnce(booking)
      : bookList(booking);
  const slotsUs = [...recycledUs, ...booked.slotsUs];
  const count = countOf({ ...booked, slotsUs });
  if (count > 0) serving.hasGranted = true;
  if (!isOwn) serving.used += count / main.claim.share;
  return { ...booked, slotsUs };
}

function countOf({ slotsUs, run }: Booked): number {
  return slotsUs.length + (run?.count ?? 0);
}

/** Why a wish got no more, when to ask again, and the place that its asker keeps until then. */
function endWish(
  serving: Serving,
  { wanted }: Wish,
  {
    main,
    keyFitting,
    isOwn,
    opens,
    booked,
    ...portion
  }: Fittings & Portion & { readonly booked: Booked },
): Pick<Granted, "notBeforeUs" | "place" | "bindsAt"> {
  const { state, request } = serving;
  const { deferredUs } = booked;
  const count = countOf(booked);
  if (keyFitting !== undefined && deferredUs !== undefined) {
    const binding = bindingAt(keyFitting);
    const { scope } = keyFitting;
    const { clockUs: nowUs, shared } = state;
    // If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
    const held = closedBy(scope, scope, nowUs) || slowedBy(scope, scope, nowUs);
    const bindsAt = binding > 0 ? shared.records.length + binding : held;
    const place = settlePlace(serving, keyFitting, deferredUs, count > 0);
    return { notBeforeUs: deferredUs, place, bindsAt };
  }
  const keyPlace = keyFitting === undefined ? NO_PLACE : settlePlace(serving, keyFitting, 0, true);
  if (count === wanted) {
    const place = isOwn ? settlePlace(serving, main, 0, true) : keyPlace;
    return { notBeforeUs: 0, place, bindsAt: 0 };
  }
  const unserved = { ...portion, count, left: wanted - count, opensUs: opens() };
  const { place, turnUs, bindsAt } = refuse(serving, main, unserved);
  if (isOwn) return { notBeforeUs: turnUs, place, bindsAt };
  serving.refusedPlace = place;
  // A try keeps no place, so the time to ask again goes here.
  return { notBeforeUs: request.isTry ? turnUs : 0, place: keyPlace, bindsAt };
}

/** A refused try cannot pass before the last pause or cooldown ends, whatever else refused it. */
function untilOpen<Ended extends Pick<Granted, "notBeforeUs" | "bindsAt">>(
  { state: { shared, clockUs } }: Serving,
  { main, keyFitting }: Fittings,
  ended: Ended,
): Ended {
  const own = keyFitting?.scope ?? main.scope;
  const openUs = Math.max(closedUntilUs(shared), closedUntilUs(own));
  const isLast = ended.notBeforeUs === Infinity || ended.notBeforeUs < openUs;
  if (openUs <= clockUs || !isLast) return ended;
  return { ...ended, notBeforeUs: openUs, bindsAt: closedBy(shared, own, clockUs) };
}

/** The place of the wishes that did not fit into the bucket; none if all did. */
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
