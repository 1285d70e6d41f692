import { ruleOf } from "../limits/registry.ts";
import { slotOfRun, type Run } from "../store.ts";
import {
  delaysNone,
  LEAST_ASK_GAP_US,
  mostOf,
  times,
  turnOf,
  type Fitting,
  type Serving,
} from "./place.ts";
import { earliestForAllUs, commitAll, areAllRates, keepsGap, opensAtUs } from "./scope.ts";
import { afterUs } from "./turns.ts";

/**
 * Books slots for one wish, in one of three ways: as a run, all at one moment, or one by one.
 * Twin of `lua/lib/draw/book.lua` and `lua/lib/draw/start-for-key.lua`.
 */

/** What is to be booked for one wish. */
export interface Booking {
  readonly serving: Serving;
  /** The limits that decide the slots: those that all keys share, or else the key's. */
  readonly main: Fitting;
  /** The limits of the call's key beside shared ones; they must allow the very same slot. */
  readonly keyFitting: Fitting | undefined;
  /** The earliest time at which anything may start; it moves with each booking. */
  readonly opens: () => number;
  readonly untilUs: number;
  readonly most: number;
}

/** A call that its key's limits hold back. */
interface Deferred {
  /** When to ask for it again; Infinity if that is unknown. */
  readonly untilUs: number;
  /** When it may start. */
  readonly startUs: number;
}

export interface Booked {
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** If the key's limits held a call back. */
  readonly deferred: Deferred | undefined;
}

/** A Lua script cannot reply with thousands of values. */
const MOST_LISTED = 1_000;

/** A lone limit that drains evenly is booked for many calls at once; slot by slot is too slow at 100,000/s. */
export function isRunnable({ main, keyFitting, opens, serving }: Booking): boolean {
  const { scope, costs } = main;
  if (keyFitting !== undefined || scope.records.length !== 1 || costs[0] === 0) return false;
  const atUs = opens();
  const isSpaced = keepsGap(scope, atUs) || keepsGap(serving.state.shared, atUs);
  return !isSpaced && ruleOf(scope.records[0]!.limit.kind).excess !== undefined;
}

export function bookRun({ main, opens, untilUs, most }: Booking): Booked {
  const { scope, costs, drawer, ahead, flow } = main;
  const { limit, state } = scope.records[0]!;
  const rule = ruleOf(limit.kind);
  const atUs = opens();
  const excess = rule.excess!(limit, state, atUs, costs[0]!);
  const step = costs[0]! * limit.periodUs;
  const room = (untilUs - atUs) * limit.count - excess;
  let fit = untilUs < atUs || room < 0 ? 0 : Math.floor(room / step) + 1;
  for (const { sums, startUs, after } of ahead) {
    const deadlineUs = Math.max(untilUs, startUs + afterUs(limit, after[0] ?? 0));
    const left = (deadlineUs - atUs) * limit.count - rule.excess!(limit, state, atUs, sums[0]!);
    fit = Math.min(fit, Math.max(0, Math.floor(left / step)));
  }
  // Less than a whole share is left beside what comes before: it is not worth a draw.
  const isTooLittle = ahead.length > 0 && fit < Math.min(most, flow);
  const count = isTooLittle ? 0 : Math.min(most, fit);
  if (count <= 0) return { slotsUs: [], run: undefined, deferred: undefined };
  const run = { count, atUs, excess, step, drain: limit.count };
  rule.commit(limit, state, slotOfRun(run, 0), count * costs[0]!, drawer);
  scope.lastUs = Math.max(scope.lastUs, slotOfRun(run, count - 1));
  return { slotsUs: [], run, deferred: undefined };
}

/** A try takes what there is at one moment: many calls of one cost are one call of many times the cost. */
export function isAtOnce(booking: Booking): boolean {
  const { serving, main } = booking;
  return serving.request.isTry && hasNoLeases(booking) && main.scope.records.length > 0;
}

/** Whether no call of this booking holds a lease. */
function hasNoLeases({ main, keyFitting }: Booking): boolean {
  return areAllRates(main.scope) && (keyFitting === undefined || areAllRates(keyFitting.scope));
}

export function bookAtOnce(booking: Booking): Booked {
  const { main, keyFitting, opens, untilUs, most } = booking;
  const atUs = opens();
  const first = { firstUs: atUs, slotUs: atUs };
  const deferred = keyFitting && deferredOf(startForKey(booking, keyFitting, first));
  const nothing = { slotsUs: [], run: undefined, deferred };
  if (atUs > untilUs || deferred !== undefined) return nothing;
  const fittings = keyFitting === undefined ? [main] : [main, keyFitting];
  let count = 0;
  let tooMany = Math.min(most, ...fittings.map(mostOf)) + 1;
  while (tooMany - count > 1) {
    const middle = Math.floor((count + tooMany) / 2);
    const fits = fittings.every((fitting) => {
      const { scope, costs, drawer } = fitting;
      const isFree = earliestForAllUs(scope, atUs, times(costs, middle), drawer) === atUs;
      return isFree && delaysNone(fitting, middle);
    });
    if (fits) count = middle;
    else tooMany = middle;
  }
  if (count === 0) return nothing;
  for (const { scope, costs, drawer } of fittings) {
    commitAll(scope, atUs, times(costs, count), drawer);
  }
  const { limit } = main.scope.records[0]!;
  const step = main.costs[0]! * limit.periodUs;
  const run = { count, atUs, excess: AT_ONCE, step, drain: limit.count };
  const nextUs = earliestForAllUs(main.scope, opens(), main.costs, main.drawer);
  if (keyFitting === undefined || count === most || nextUs > untilUs) return { ...nothing, run };
  const next = { firstUs: atUs, slotUs: nextUs };
  return { ...nothing, run, deferred: deferredOf(startForKey(booking, keyFitting, next)) };
}

/** An excess so low that all calls of a run start at its first moment. */
const AT_ONCE = -(2 ** 52);

export function bookList(booking: Booking): Booked {
  const { serving, main, keyFitting, opens, untilUs, most } = booking;
  const { scope, costs, stepUs, drawer, ahead, flow } = main;
  const hasLeases = !hasNoLeases(booking);
  const slotsUs: number[] = [];
  let deferred: Deferred | undefined;
  const firstUs = earliestForAllUs(scope, opens(), costs, drawer);
  let atUs = firstUs;
  // As in a run: less than a whole share is left to earlier turns.
  const least = Math.min(most, flow);
  const isTooLittle =
    ahead.length > 0 &&
    least > 1 &&
    (atUs + Math.floor((least - 1) * stepUs) > untilUs || !delaysNone(main, least));
  while (!isTooLittle && slotsUs.length < Math.min(most, MOST_LISTED) && atUs <= untilUs) {
    if (!delaysNone(main)) break;
    if (keyFitting !== undefined) {
      const offer = { firstUs, slotUs: atUs };
      const start = startForKey(booking, keyFitting, offer);
      deferred = deferredOf(start);
      if (deferred !== undefined) break;
      atUs = start.startUs;
    }
    drawer.lease = serving.lease;
    commitAll(scope, atUs, costs, drawer);
    if (keyFitting !== undefined) {
      keyFitting.drawer.lease = serving.lease;
      commitAll(keyFitting.scope, atUs, keyFitting.costs, keyFitting.drawer);
    }
    if (hasLeases) serving.lease += 1;
    slotsUs.push(atUs);
    atUs = earliestForAllUs(scope, opens(), costs, drawer);
  }
  return { slotsUs, run: undefined, deferred };
}

/** A slot that the shared limits give to a call of a key. */
interface Offer {
  /** The first slot that they would have given in this draw. */
  readonly firstUs: number;
  readonly slotUs: number;
}

/** When a call of a key may start; and when to ask again, if that is not now. */
interface KeyStart {
  readonly startUs: number;
  readonly untilUs?: number;
}

function deferredOf({ startUs, untilUs }: KeyStart): Deferred | undefined {
  return untilUs === undefined ? undefined : { startUs, untilUs };
}

/**
 * A slot may be pushed back to this far from now to suit a key. So calls of the key keep to its rate although
 * each is asked for a little late, and other keys wait no longer than this.
 */
const MOST_PUSHED_US = 2_000;
/** No slot is pushed for this long after a try: tries look only at now, and a pushed slot would refuse them. */
const UNTRIED_US = 3_600_000_000;

/** When a key's limits let a call start at an offered slot or soon after it; otherwise, when to ask again. */
function startForKey(
  { serving, main, untilUs }: Booking,
  keyFitting: Fitting,
  { firstUs, slotUs }: Offer,
): KeyStart {
  const { scope, stepUs, costs, drawer } = keyFitting;
  const { nowUs } = drawer;
  const opensUs = opensAtUs(scope, nowUs, stepUs);
  const passesUs = earliestForAllUs(scope, opensUs, costs, drawer);
  if (passesUs === Infinity) return { startUs: Infinity, untilUs: Infinity };
  const startUs = Math.max(slotUs, passesUs);
  // A slot is not pushed past earlier turns: the key's times only go forward, so nothing would be left to them.
  const isFree = delaysNone(keyFitting);
  if (isFree && startUs === slotUs && letsPass(keyFitting, startUs)) return { startUs };

  const isTried = serving.request.isTry || nowUs < serving.state.triedUs + UNTRIED_US;
  const pushUs = isTried ? 0 : Math.min(untilUs - nowUs, MOST_PUSHED_US);
  const isInReach = isFree && startUs <= nowUs + pushUs;
  if (isInReach && letsPass(keyFitting, startUs) && letsPass(main, startUs)) return { startUs };
  // The shared limits give slots this far ahead now, and will still do so later.
  const turnUs = turnOf(keyFitting, opensUs, 1).startUs;
  const soonestUs = serving.request.isTry ? nowUs : nowUs + (isFree ? 0 : LEAST_ASK_GAP_US);
  const leadUs = Math.max(firstUs - nowUs, pushUs);
  return { startUs: turnUs, untilUs: Math.max(soonestUs, turnUs - leadUs) };
}

function letsPass({ scope, costs, drawer }: Fitting, atUs: number): boolean {
  return earliestForAllUs(scope, atUs, costs, drawer) === atUs;
}
