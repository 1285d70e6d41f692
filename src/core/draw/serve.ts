import type { Granted, Wish } from "../store.ts";
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
  addNeeds,
  bindingAt,
  fit,
  horizonOf,
  lineOf,
  orderOfRest,
  refuse,
  closedBy,
  closedUntilUs,
  slowedBy,
  type Fitting,
  type Serving,
} from "./place.ts";
import { opensAtUs, type Scope } from "./scope.ts";
import { soonestOf, soonestUnserved } from "./soonest.ts";

const NOTHING = { slotsUs: [], run: undefined, notBeforeUs: 0, statuses: [] };

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

/** The scope of a wish's key; undefined if the key has no limits of its own. */
export interface KeyScopes {
  readonly open: () => Scope | undefined;
  /** Leaves the state as it is. */
  readonly look: () => Scope | undefined;
}

/** What a wish got, but for the place of its key. */
export type Served = Omit<Granted, "place">;

/**
 * Books what it can of one wish. A key's limits apply together with those that all keys share; in a bucket
 * without shared limits, they decide alone. Twin of `lua/lib/draw/serve.lua`.
 */
export function serve(serving: Serving, wish: Wish, key: KeyScopes): Served {
  const horizonUs = horizonOf(serving.request, wish.rank);
  if (wish.wanted === 0 || waitsWithRefused(serving, wish)) {
    const keyScope = wish.isBounded ? key.look() : undefined;
    return { ...NOTHING, ...soonestUnserved(serving, wish, { keyScope, horizonUs }) };
  }
  const fittings = fitAll(serving, wish, key.open());
  const booked = book(serving, wish, { ...fittings, horizonUs });
  const { slotsUs, run } = booked;
  const settled = endWish(serving, wish, { ...fittings, horizonUs, booked });
  if (countOf(booked) === wish.wanted) {
    return { slotsUs, run, statuses: [], soonestUs: 0, ...settled };
  }
  const { soonestUs, bindsAt } = soonestOf(serving, { ...fittings, horizonUs });
  const ended = { ...settled, bindsAt: bindsAt === 0 ? settled.bindsAt : bindsAt };
  const told = serving.request.isTry ? untilOpen(serving, fittings, ended) : ended;
  return { slotsUs, run, statuses: [], soonestUs, ...told };
}

/** Whether a wish needs of the shared limits what a wish before it waits for; others may fill what is left. */
function waitsWithRefused(serving: Serving, wish: Wish): boolean {
  const { refused, request, state } = serving;
  if (refused === undefined || request.isTry) return false;
  const { waitsFor, key } = refused;
  if (waitsFor > 0 && wish.costs[waitsFor - 1]! === 0) return false;
  const { shared, clockUs: nowUs } = state;
  // Calls of another key may not be let pass by that key: others do not wait for them.
  if (wish.key !== key) return true;
  const line = lineOf(serving, shared, request.place);
  const costs = wish.costs.slice(0, shared.records.length);
  const main = fit(serving, wish, line, { costs, isGate: false });
  const order = orderOfRest(wish, 0, nowUs);
  const { turnUs, dueUs, startUs } = line.waiting.at(-1)!;
  const first = Math.min(wish.wanted, main.flow);
  addNeeds(main, wish, { order, turnUs, dueUs, startUs }, { first, left: wish.wanted });
  return true;
}

function fitAll(serving: Serving, wish: Wish, keyScope: Scope | undefined): Fittings {
  const { state, request } = serving;
  const { shared, clockUs: nowUs } = state;
  const sharedCount = shared.records.length;
  const keyLine = keyScope && lineOf(serving, keyScope, wish.place);
  if (keyScope !== undefined && sharedCount === 0) {
    const main = fit(serving, wish, keyLine!, { costs: wish.costs, isGate: false });
    const { stepUs } = main;
    const opens = (): number =>
      Math.max(opensAtUs(shared, nowUs, stepUs), opensAtUs(keyScope, nowUs, stepUs));
    return { main, keyFitting: undefined, isOwn: true, opens };
  }
  const costs = wish.costs.slice(0, sharedCount);
  const main = fit(serving, wish, lineOf(serving, shared, request.place), { costs, isGate: false });
  const ofKey = { costs: wish.costs.slice(sharedCount), isGate: true };
  const keyFitting = keyLine && fit(serving, wish, keyLine, ofKey);
  return { main, keyFitting, isOwn: false, opens: () => opensAtUs(shared, nowUs, main.stepUs) };
}

interface Horizon {
  /** How far ahead a wish of its priority may book. */
  readonly horizonUs: number;
}

/** Books holes first, and then new slots. */
function book(serving: Serving, wish: Wish, asked: Fittings & Horizon): Booked {
  const { state, request, used: usedSoFar } = serving;
  const { main, keyFitting, opens, isOwn, horizonUs } = asked;
  const { name, wanted } = wish;
  const used = isOwn ? 0 : usedSoFar;
  // A try waits for no turn, so the horizon is not shared out.
  const shareLeft = request.isTry ? wanted : Math.floor((1 - used) * main.share);
  const mostInAll = Math.min(wanted, Math.max(used === 0 ? 1 : 0, shareLeft));
  const holesUntilUs = state.clockUs + request.horizonUs;
  const recycledUs = request.isTry
    ? []
    : takeHoles(state, { name, most: mostInAll, untilUs: holesUntilUs });
  const untilUs = state.clockUs + horizonUs;
  const most = mostInAll - recycledUs.length;
  const booking: Booking = { serving, main, keyFitting, opens, untilUs, most };
  const booked = isRunnable(booking)
    ? bookRun(booking)
    : isAtOnce(booking)
      ? bookAtOnce(booking)
      : bookList(booking);
  const slotsUs = [...recycledUs, ...booked.slotsUs];
  const count = countOf({ ...booked, slotsUs });
  if (count > 0) {
    serving.hasGranted = true;
    main.line.isServed = true;
    if (keyFitting !== undefined) keyFitting.line.isServed = true;
  }
  if (!isOwn) serving.used += count / main.share;
  return { ...booked, slotsUs };
}

function countOf({ slotsUs, run }: Booked): number {
  return slotsUs.length + (run?.count ?? 0);
}

/** Why a wish got no more, and when to ask again. */
function endWish(
  serving: Serving,
  wish: Wish,
  {
    main,
    keyFitting,
    isOwn,
    opens,
    booked,
    horizonUs,
  }: Fittings & Horizon & { readonly booked: Booked },
): Pick<Granted, "notBeforeUs" | "bindsAt"> {
  const { state, request } = serving;
  const { clockUs: nowUs, shared } = state;
  const { deferred } = booked;
  const count = countOf(booked);
  const left = wish.wanted - count;
  if (keyFitting !== undefined && deferred !== undefined) {
    const { untilUs: turnUs, startUs } = deferred;
    const binding = bindingAt(keyFitting);
    const { scope } = keyFitting;
    // If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
    const held = closedBy(scope, scope, nowUs) || slowedBy(scope, scope, nowUs);
    const bindsAt = binding > 0 ? shared.records.length + binding : held;
    const order = orderOfRest(wish, count, nowUs);
    const turn = { order, turnUs, dueUs: turnUs, startUs };
    addNeeds(keyFitting, wish, turn, { first: 1, left });
    return { notBeforeUs: turnUs, bindsAt };
  }
  if (left === 0) return { notBeforeUs: 0, bindsAt: 0 };
  const refused = refuse(serving, wish, main, { count, left, opensUs: opens(), horizonUs });
  const { turnUs, bindsAt } = refused;
  if (!isOwn) serving.refused ??= refused;
  if (keyFitting !== undefined && turnUs < Infinity && isContended(keyFitting)) {
    // It came to its key's gate, and the shared limits are used: others of its key must not pass it there meanwhile.
    addNeeds(keyFitting, wish, main.line.waiting.at(-1)!, { first: 1, left });
  }
  // A try keeps no place, so the time to ask again goes here.
  return { notBeforeUs: isOwn || request.isTry ? turnUs : 0, bindsAt };
}

/** Whether somebody waits in this line, or its asker does since before this draw. */
function isContended({ line: { own, others } }: Fitting): boolean {
  return own.turnName !== "" || others.length > 0;
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
