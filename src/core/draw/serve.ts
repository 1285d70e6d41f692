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
  shutBy,
  shutUs,
  slowedBy,
  type Fitting,
  type Serving,
} from "./place.ts";
import { opensAtUs, type Scope } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

const NOTHING = { slotsUs: [], run: undefined, notBeforeUs: 0, bindsAt: 0, standings: [] };

/** The limits that a wish has to fit. */
interface Fittings {
  /** Those that all share; of a bucket that has none, its key's. */
  readonly main: Fitting;
  /** Those of its key beside them. */
  readonly gate: Fitting | undefined;
  /** Whether all of them are its key's. */
  readonly isOwn: boolean;
  /** The earliest time at which anything may start, as things stand. */
  readonly opens: () => number;
}

/** What an asker may have of a wish for now. */
interface Portion {
  readonly most: number;
  /** How many slots are left to those whose turn comes first. */
  readonly ahead: number;
  readonly ownTurnUs: number | undefined;
  /** How far ahead a wish of its priority may book. */
  readonly horizonUs: number;
}

/** Books what it can of one wish; twin of `lua/lib/draw/serve.lua`. A key's limits are a gate beside those that all share, or stand alone. */
export function serve(serving: Serving, wish: Wish, openKey: () => Scope | undefined): Granted {
  const { key } = wish;
  if (key === undefined) return serveOne(serving, wish, openKey);
  // A key keeps one place: the next of its wishes goes on from where the one before has left it.
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
  const settled = settle(serving, wish, { ...asked, booked });
  const isRefused = serving.request.isTry && countOf(booked) < wish.wanted;
  const told = isRefused ? untilOpen(serving, fittings, settled) : settled;
  return { slotsUs, run, standings: [], ...told };
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
    return { main, gate: undefined, isOwn: true, opens };
  }
  const costs = wish.costs.slice(0, sharedCount);
  const main = fit(serving, wish, shared, { costs, own: request.place });
  const ofKey = { costs: wish.costs.slice(sharedCount), own: wish.place };
  const gate = keyScope && fit(serving, wish, keyScope, ofKey);
  return { main, gate, isOwn: false, opens: () => opensAtUs(shared, nowUs, main.stepUs) };
}

function portionOf(
  { request, used: usedSoFar, sinceUs }: Serving,
  { wanted, rank }: Wish,
  { main: { scope, claim, own }, isOwn }: Fittings,
): Portion {
  const used = isOwn ? 0 : usedSoFar;
  // Whoever tries waits for no turn, so nothing is shared out to it.
  const shareLeft = request.isTry ? wanted : Math.floor((1 - used) * claim.share);
  const most = Math.min(wanted, Math.max(used === 0 ? 1 : 0, shareLeft));
  const ownTurnUs = own.turnUs >= sinceUs ? own.turnUs : undefined;
  const ahead = slotsBefore(scope, claim, own, ownTurnUs ?? Infinity);
  const horizonUs = Math.floor((request.horizonUs * request.terms.shares[rank]!) / 1_000);
  return { most, ahead, ownTurnUs, horizonUs };
}

/** Slots that others gave back, and then new ones. */
function book(serving: Serving, { name }: Wish, asked: Fittings & Portion): Booked {
  const { state, request } = serving;
  const { main, gate, opens, isOwn, ahead, horizonUs } = asked;
  const holesUntilUs = state.clockUs + request.horizonUs;
  const recycledUs = request.isTry
    ? []
    : takeHoles(state, { name, most: asked.most, untilUs: holesUntilUs });
  const untilUs = state.clockUs + horizonUs - Math.floor(ahead * main.stepUs);
  const most = asked.most - recycledUs.length;
  const booking: Booking = { serving, main, gate, opens, untilUs, most, ahead };
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

/** Why there was no more, when to come again, and the place that is kept until then. */
function settle(
  serving: Serving,
  { wanted }: Wish,
  {
    main,
    gate,
    isOwn,
    opens,
    booked,
    ...portion
  }: Fittings & Portion & { readonly booked: Booked },
): Pick<Granted, "notBeforeUs" | "place" | "bindsAt"> {
  const { state, request } = serving;
  const { deferredUs } = booked;
  const count = countOf(booked);
  if (gate !== undefined && deferredUs !== undefined) {
    const binding = bindingAt(gate);
    const { scope } = gate;
    const { clockUs: nowUs, shared } = state;
    // Where its limits would let it pass, it is what the key's answers, or its user, have asked for that does not.
    const held = shutBy(scope, scope, nowUs) || slowedBy(scope, scope, nowUs);
    const bindsAt = binding > 0 ? shared.records.length + binding : held;
    const place = settlePlace(serving, gate, deferredUs, count > 0);
    return { notBeforeUs: deferredUs, place, bindsAt };
  }
  const gatePlace = gate === undefined ? NO_PLACE : settlePlace(serving, gate, 0, true);
  if (count === wanted) {
    const place = isOwn ? settlePlace(serving, main, 0, true) : gatePlace;
    return { notBeforeUs: 0, place, bindsAt: 0 };
  }
  const unserved = { ...portion, count, left: wanted - count, opensUs: opens() };
  const { place, turnUs, bindsAt } = refuse(serving, main, unserved);
  if (isOwn) return { notBeforeUs: turnUs, place, bindsAt };
  serving.refusedPlace = place;
  // A try keeps no place, so it is told here when to come again.
  return { notBeforeUs: request.isTry ? turnUs : 0, place: gatePlace, bindsAt };
}

/** Whatever else refuses a try, nothing can pass before the last pause or cooldown is over. */
function untilOpen<Told extends Pick<Granted, "notBeforeUs" | "bindsAt">>(
  { state: { shared, clockUs } }: Serving,
  { main, gate }: Fittings,
  told: Told,
): Told {
  const own = gate?.scope ?? main.scope;
  const openUs = Math.max(shutUs(shared), shutUs(own));
  const isLast = told.notBeforeUs === Infinity || told.notBeforeUs < openUs;
  if (openUs <= clockUs || !isLast) return told;
  return { ...told, notBeforeUs: openUs, bindsAt: shutBy(shared, own, clockUs) };
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
