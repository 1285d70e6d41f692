import { ruleOf } from "../limits/registry.ts";
import { AT_ONCE, slotOfRun, spacingOf, type Run, type SlotRequest } from "../store.ts";
import {
  aheadIn,
  delaysNone,
  isTooLittle,
  LEAST_ASK_GAP_US,
  mostOf,
  orderOfRest,
  times,
  turnOf,
  type Fitting,
  type Serving,
} from "./fit.ts";
import { earliestForAllUs, commitAll, areAllRates, keepsGap, opensAtUs } from "./scope.ts";
import { afterUs } from "./turns.ts";

/**
 * Books slots for one slot request, in one of three ways: as a run, all at one moment, or one by one.
 * Twin of `lua/lib/draw/book.lua` and `lua/lib/draw/gates.lua`.
 */

/** What is to be booked for one slot request. */
export interface Booking {
  readonly serving: Serving;
  readonly slotRequest: SlotRequest;
  /** The limits that decide the slots: those that all keys share, or else those of the call's widest key. */
  readonly main: Fitting;
  /** The limits of the call's other keys, the widest first; they must allow the very same slot. */
  readonly gates: readonly Fitting[];
  /** The earliest time at which anything may start; it moves with each booking. */
  readonly opens: () => number;
  readonly untilUs: number;
  readonly most: number;
}

/** A call that the limits of a key hold back. */
export interface Deferred {
  readonly gate: Fitting;
  /** When to ask for it again; Infinity if that is unknown. */
  readonly untilUs: number;
  /** When it may start. */
  readonly startUs: number;
  /** How long before its start it is asked for again. */
  readonly leadUs: number;
}

export interface Booked {
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** If the limits of a key held a call back. */
  readonly deferred: Deferred | undefined;
}

/** A Lua script cannot reply with thousands of values, and shadows count each call of a draw that no limit bounds. */
const MOST_LISTED = 1_000;

/** A lone limit that drains evenly is booked for many calls at once; slot by slot is too slow at 100,000/s. */
export function isRunnable({ main, gates, opens, serving }: Booking): boolean {
  const { scope, costs } = main;
  if (gates.length > 0 || scope.records.length !== 1 || costs[0] === 0) return false;
  const atUs = opens();
  const isSpaced = keepsGap(scope, atUs) || keepsGap(serving.state.shared, atUs);
  return !isSpaced && ruleOf(scope.records[0]!.limit.kind).excess !== undefined;
}

export function bookRun({ serving, slotRequest, main, opens, untilUs, most }: Booking): Booked {
  const { scope, costs, drawer, ahead } = main;
  const { limit, state } = scope.records[0]!;
  const rule = ruleOf(limit.kind);
  const atUs = opens();
  const excess = rule.excess!(limit, state, atUs, costs[0]!);
  const { step, drain } = spacingOf(limit, costs);
  const room = (untilUs - atUs) * limit.count - excess;
  let fit = untilUs < atUs || room < 0 ? 0 : Math.floor(room / step) + 1;
  for (const { sums, startUs, after } of ahead) {
    const deadlineUs = Math.max(untilUs, startUs + afterUs(limit, after[0] ?? 0));
    const left = (deadlineUs - atUs) * limit.count - rule.excess!(limit, state, atUs, sums[0]!);
    fit = Math.min(fit, Math.max(0, Math.floor(left / step)));
  }
  const isNone = isTooLittle(serving, slotRequest, main, { opensUs: atUs, untilUs, most });
  const count = isNone ? 0 : Math.min(most, fit);
  if (count <= 0) return { slotsUs: [], run: undefined, deferred: undefined };
  const run = { count, atUs, excess, step, drain };
  rule.commit(limit, state, slotOfRun(run, 0), count * costs[0]!, drawer);
  scope.lastUs = Math.max(scope.lastUs, slotOfRun(run, count - 1));
  return { slotsUs: [], run, deferred: undefined };
}

/**
 * A try takes what there is at one moment: many calls of one cost are one call of many times the cost. Where there is no
 * limit, each call may leave at the same moment, unless answers ask for a gap.
 */
export function isAtOnce(booking: Booking): boolean {
  const { serving, main, gates, opens } = booking;
  if (main.scope.records.length === 0) return gates.length === 0 && !keepsGap(main.scope, opens());
  return serving.request.isTry && hasNoLeases(booking);
}

/** Whether no call of this booking holds a lease. */
function hasNoLeases({ main, gates }: Booking): boolean {
  return [main, ...gates].every(({ scope }) => areAllRates(scope));
}

export function bookAtOnce(booking: Booking): Booked {
  const { serving, main, gates, opens, untilUs, most } = booking;
  const atUs = opens();
  const { deferred } = startThrough(booking, { firstUs: atUs, slotUs: atUs });
  const nothing = { slotsUs: [], run: undefined, deferred };
  if (atUs > untilUs || deferred !== undefined) return nothing;
  const fittings = [main, ...gates];
  let count = 0;
  const isFree = main.scope.records.length === 0 && !serving.request.isTry;
  const together = isFree ? Math.min(most, MOST_LISTED) : most;
  let tooMany = Math.min(together, ...fittings.map(mostOf)) + 1;
  while (tooMany - count > 1) {
    const middle = Math.floor((count + tooMany) / 2);
    const fits = fittings.every((fitting) => {
      const { scope, costs, drawer } = fitting;
      const hasRoom = earliestForAllUs(scope, atUs, times(costs, middle), drawer) === atUs;
      return hasRoom && delaysNone(fitting, middle);
    });
    if (fits) count = middle;
    else tooMany = middle;
  }
  if (count === 0) return nothing;
  for (const { scope, costs, drawer } of fittings) {
    commitAll(scope, atUs, times(costs, count), drawer);
  }
  const run = {
    count,
    atUs,
    excess: AT_ONCE,
    ...spacingOf(main.scope.records[0]?.limit, main.costs),
  };
  if (count === most) return { ...nothing, run };
  const next = startThrough(booking, { firstUs: atUs, slotUs: atUs });
  return { ...nothing, run, deferred: next.deferred };
}

export function bookList(booking: Booking): Booked {
  const { serving, slotRequest, main, gates, opens, untilUs, most } = booking;
  const { scope, costs, drawer } = main;
  const hasLeases = !hasNoLeases(booking);
  const slotsUs: number[] = [];
  let deferred: Deferred | undefined;
  const opensUs = opens();
  const firstUs = earliestForAllUs(scope, opensUs, costs, drawer);
  let atUs = firstUs;
  const isNone = isTooLittle(serving, slotRequest, main, { opensUs, untilUs, most });
  while (!isNone && slotsUs.length < Math.min(most, MOST_LISTED) && atUs <= untilUs) {
    if (!delaysNone(main)) break;
    const start = startThrough(booking, { firstUs, slotUs: atUs });
    if (start.deferred !== undefined) {
      ({ deferred } = start);
      break;
    }
    atUs = start.startUs;
    for (const fitting of [main, ...gates]) {
      fitting.drawer.lease = serving.lease;
      commitAll(fitting.scope, atUs, fitting.costs, fitting.drawer);
    }
    if (hasLeases) serving.lease += 1;
    slotsUs.push(atUs);
    atUs = earliestForAllUs(scope, opens(), costs, drawer);
  }
  return { slotsUs, run: undefined, deferred };
}

/** A slot that the limits which decide the slots give to a call. */
interface Offer {
  /** The first slot that they would have given in this draw. */
  readonly firstUs: number;
  readonly slotUs: number;
}

/** When a call may start, or what holds it back. */
type Start =
  | { readonly startUs: number; readonly deferred: undefined }
  | { readonly startUs: undefined; readonly deferred: Deferred };

/**
 * A slot may be pushed back to this far from now to suit a key. So calls of the key keep to its rate although
 * each is asked for a little late, and other keys wait no longer than this.
 */
const MOST_PUSHED_US = 2_000;
/** No slot is pushed for this long after a try: tries look only at now, and a pushed slot would refuse them. */
const UNTRIED_US = 3_600_000_000;

/**
 * An eighth of the time until a key lets a call start goes by before it is asked for again: if nobody takes the slot
 * just before that time, the shared limits give no later one, and it would be asked for each millisecond.
 */
const PARTS_ASKED = 8;

/** When all gates let a call start at an offered slot or soon after it; otherwise, which one holds it back. */
function startThrough(booking: Booking, { firstUs, slotUs }: Offer): Start {
  const { serving, main, gates, untilUs } = booking;
  const { nowUs } = main.drawer;
  const passes = gates.map(passOf);
  const startUs = Math.max(slotUs, ...passes.map(({ passesUs }) => passesUs));
  // A slot is not pushed past earlier turns: the key's times only go forward, so nothing would be left to them.
  const areFree = passes.every(({ isFree }) => isFree);
  if (areFree && startUs === slotUs) return { startUs, deferred: undefined };
  const isTried = serving.request.isTry || nowUs < serving.state.triedUs + UNTRIED_US;
  const pushUs = isTried ? 0 : Math.min(untilUs - nowUs, MOST_PUSHED_US);
  // What lets a call pass at its earliest time does so later too.
  if (areFree && startUs <= nowUs + pushUs) return { startUs, deferred: undefined };
  // The shared limits give slots this far ahead now, and will still do so later.
  const leadUs = Math.max(firstUs - nowUs, pushUs);
  return { startUs: undefined, deferred: deferredBy(passes, { slotUs, leadUs, serving }) };
}

/** When the limits of a key let a call pass, and whether that would delay nobody who waits for the key. */
interface Pass {
  readonly gate: Fitting;
  readonly opensUs: number;
  readonly passesUs: number;
  readonly isFree: boolean;
}

function passOf(gate: Fitting): Pass {
  const { scope, stepUs, costs, drawer } = gate;
  const opensUs = opensAtUs(scope, drawer.nowUs, stepUs);
  const passesUs = earliestForAllUs(scope, opensUs, costs, drawer);
  return { gate, opensUs, passesUs, isFree: passesUs < Infinity && delaysNone(gate) };
}

/**
 * The gate that holds a call back: the narrowest, unless a wider one does so for longer. Whom a narrow key holds back
 * for an unknown time, as until a lease comes free, must not hold up others at a wider one, nor wait for a lease there
 * before the narrow key lets it pass.
 */
function deferredBy(
  passes: readonly Pass[],
  { slotUs, leadUs, serving }: { slotUs: number; leadUs: number; serving: Serving },
): Deferred {
  let held: Deferred | undefined;
  for (const pass of passes.toReversed()) {
    if (pass.isFree && pass.passesUs <= slotUs) continue;
    const deferred = deferredAt(pass, leadUs, serving);
    const isLater = held === undefined || deferred.untilUs > held.untilUs;
    if (isLater && (held === undefined || deferred.untilUs < Infinity)) held = deferred;
  }
  return held!;
}

function deferredAt(
  { gate, opensUs, passesUs, isFree }: Pass,
  leadUs: number,
  { request }: Serving,
): Deferred {
  if (passesUs === Infinity) return { gate, leadUs, untilUs: Infinity, startUs: Infinity };
  const { startUs } = turnOf(gate, opensUs, gate.costs);
  const untilUs = request.isTry
    ? Math.max(gate.drawer.nowUs, startUs - leadUs)
    : askAtUs({ gate, startUs, leadUs }, { mayBeNow: isFree });
  return { gate, startUs, untilUs, leadUs };
}

/** When to ask again for a call that a key lets start at this time. */
function askAtUs(
  { gate, startUs, leadUs }: Omit<Deferred, "untilUs">,
  { mayBeNow }: { readonly mayBeNow: boolean },
): number {
  const { nowUs } = gate.drawer;
  const soonestUs = mayBeNow ? nowUs : nowUs + LEAST_ASK_GAP_US;
  const partUs = Math.floor((startUs - MOST_PUSHED_US - nowUs) / PARTS_ASKED);
  return Math.max(soonestUs, nowUs + partUs, startUs - leadUs);
}

/** Calls of others that wait for the key come before the rest of a slot request that was served in part. */
export function putBehind(
  serving: Serving,
  slotRequest: SlotRequest,
  { deferred, served }: { readonly deferred: Deferred; readonly served: number },
): Deferred {
  const { gate, leadUs, untilUs: keptUs } = deferred;
  const { nowUs } = gate.drawer;
  if (serving.request.isTry || served === 0 || keptUs === Infinity) return deferred;
  const order = orderOfRest(slotRequest, served, nowUs);
  const ahead = aheadIn(gate.line, serving.request.asker, { order, sinceUs: Infinity });
  if (ahead.length === 0) return deferred;
  const opensUs = opensAtUs(gate.scope, nowUs, gate.stepUs);
  const { startUs } = turnOf({ ...gate, ahead }, opensUs, gate.costs);
  const untilUs = askAtUs({ gate, startUs, leadUs }, { mayBeNow: false });
  return { gate, startUs, untilUs, leadUs };
}
