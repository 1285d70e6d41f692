import { ruleOf } from "../limits/registry.ts";
import { slotOfRun, type Run } from "../store.ts";
import { mostOf, times, type Fitting, type Serving } from "./place.ts";
import { agreeUs, commitAll, isAllRate, keepsGap, opensAtUs } from "./scope.ts";
import { slotsBefore } from "./turns.ts";

/** What is to be booked for one wish. Twin of `lua/lib/draw/book.lua`. */
export interface Booking {
  readonly serving: Serving;
  readonly main: Fitting;
  /** The limits of the call's key, which must let it pass at the very time that the others do. */
  readonly gate: Fitting | undefined;
  /** The earliest time at which anything may start, as things stand. */
  readonly opens: () => number;
  readonly untilUs: number;
  readonly most: number;
  /** How many slots are left to those whose turn comes first. */
  readonly ahead: number;
}

export interface Booked {
  readonly slotsUs: readonly number[];
  readonly run: Run | undefined;
  /** When to ask again, if it was the key that held a call back. */
  readonly deferredUs: number | undefined;
}

/** Lua cannot reply with some thousands of values at once. */
const MOST_LISTED = 1_000;

/** A lone limit that drains evenly is booked for many calls at once: at 100,000/s, slot by slot would be too slow. */
export function isRunnable({ main, gate, opens, serving }: Booking): boolean {
  const { scope, costs } = main;
  if (gate !== undefined || scope.records.length !== 1 || costs[0] === 0) return false;
  const atUs = opens();
  const isSpaced = keepsGap(scope, atUs) || keepsGap(serving.state.shared, atUs);
  return !isSpaced && ruleOf(scope.records[0]!.limit.kind).excess !== undefined;
}

export function bookRun({ main, opens, untilUs, most, ahead }: Booking): Booked {
  const { scope, costs, drawer } = main;
  const { limit, state } = scope.records[0]!;
  const rule = ruleOf(limit.kind);
  const atUs = opens();
  const excess = rule.excess!(limit, state, atUs, costs[0]!);
  const step = costs[0]! * limit.periodUs;
  const room = (untilUs - atUs) * limit.count - excess;
  const fit = untilUs < atUs || room < 0 ? 0 : Math.floor(room / step) + 1;
  // A crumb is left to those whose turn comes first: it would cost a draw, and their share its fullness.
  const count = ahead > 0 && fit < most ? 0 : Math.min(most, fit);
  if (count <= 0) return { slotsUs: [], run: undefined, deferredUs: undefined };
  const run = { count, atUs, excess, step, drain: limit.count };
  rule.commit(limit, state, slotOfRun(run, 0), count * costs[0]!, drawer);
  scope.lastUs = Math.max(scope.lastUs, slotOfRun(run, count - 1));
  return { slotsUs: [], run, deferredUs: undefined };
}

/** Whoever tries takes what there is at one moment: many calls of one cost are one of many times the cost. */
export function isAtOnce(booking: Booking): boolean {
  const { serving, main } = booking;
  return serving.request.isTry && hasNoLeases(booking) && main.scope.records.length > 0;
}

/** Whether no call of these holds a lease. */
function hasNoLeases({ main, gate }: Booking): boolean {
  return isAllRate(main.scope) && (gate === undefined || isAllRate(gate.scope));
}

export function bookAtOnce(booking: Booking): Booked {
  const { main, gate, opens, untilUs, most } = booking;
  const atUs = opens();
  const first = { firstUs: atUs, slotUs: atUs, isServed: false };
  const deferredUs = gate && passGate(booking, gate, first).deferredUs;
  const nothing = { slotsUs: [], run: undefined, deferredUs };
  if (atUs > untilUs || deferredUs !== undefined) return nothing;
  let count = 0;
  let tooMany = Math.min(most, mostOf(main), gate === undefined ? most : mostOf(gate)) + 1;
  while (tooMany - count > 1) {
    const middle = Math.floor((count + tooMany) / 2);
    const fits = [main, ...(gate === undefined ? [] : [gate])].every(
      ({ scope, costs, drawer }) => agreeUs(scope, atUs, times(costs, middle), drawer) === atUs,
    );
    if (fits) count = middle;
    else tooMany = middle;
  }
  if (count === 0) return nothing;
  commitAll(main.scope, atUs, times(main.costs, count), main.drawer);
  if (gate !== undefined) commitAll(gate.scope, atUs, times(gate.costs, count), gate.drawer);
  const { limit } = main.scope.records[0]!;
  const step = main.costs[0]! * limit.periodUs;
  const run = { count, atUs, excess: AT_ONCE, step, drain: limit.count };
  const nextUs = agreeUs(main.scope, opens(), main.costs, main.drawer);
  const isKeys = gate !== undefined && count < most && nextUs <= untilUs;
  const next = { firstUs: atUs, slotUs: nextUs, isServed: true };
  return {
    ...nothing,
    run,
    deferredUs: isKeys ? passGate(booking, gate, next).deferredUs : undefined,
  };
}

/** So little is booked ahead that all of a run start with the first. */
const AT_ONCE = -(2 ** 52);

export function bookList(booking: Booking): Booked {
  const { serving, main, gate, opens, untilUs, most, ahead } = booking;
  const { scope, costs, stepUs, drawer } = main;
  const hasLeases = !hasNoLeases(booking);
  const slotsUs: number[] = [];
  let deferredUs: number | undefined;
  const firstUs = agreeUs(scope, opens(), costs, drawer);
  let atUs = firstUs;
  const isCrumb = ahead > 0 && atUs + Math.floor((most - 1) * stepUs) > untilUs;
  while (!isCrumb && slotsUs.length < Math.min(most, MOST_LISTED) && atUs <= untilUs) {
    if (gate !== undefined) {
      const offer = { firstUs, slotUs: atUs, isServed: slotsUs.length > 0 };
      const passed = passGate(booking, gate, offer);
      deferredUs = passed.deferredUs;
      if (passed.deferredUs !== undefined) break;
      atUs = passed.startUs;
    }
    drawer.lease = serving.lease;
    commitAll(scope, atUs, costs, drawer);
    if (gate !== undefined)
      commitAll(gate.scope, atUs, gate.costs, { ...gate.drawer, lease: serving.lease });
    if (hasLeases) serving.lease += 1;
    slotsUs.push(atUs);
    atUs = agreeUs(scope, opens(), costs, drawer);
  }
  return { slotsUs, run: undefined, deferredUs };
}

/** What the others decide of a call of a key. */
interface Others {
  readonly serving: Serving;
  readonly main: Fitting;
  readonly untilUs: number;
}

/** A slot that the others would give to a call of a key. */
interface Offer {
  /** The first slot that they would have given in this draw. */
  readonly firstUs: number;
  readonly slotUs: number;
  /** Whether this draw has given the key's calls slots already. */
  readonly isServed: boolean;
}

type Passed =
  | { readonly startUs: number; readonly deferredUs?: undefined }
  | { readonly deferredUs: number };

/**
 * So far from now a slot may be pushed back to suit a key: its calls keep to its rate, although each is asked for a little
 * late, and the others wait for no more than that.
 */
const MOST_PUSHED_US = 2_000;
/** So long after a try at the earliest: who tries looks no further than now, and would be refused for what was pushed. */
const UNTRIED_US = 3_600_000_000;

/** When the key lets such a call start; if it does not, when to ask again. Twin of `lua/lib/draw/gate.lua`. */
function passGate(
  { serving, main, untilUs }: Others,
  gate: Fitting,
  { firstUs, slotUs, isServed }: Offer,
): Passed {
  const { scope, stepUs, costs, claim, own, drawer } = gate;
  const { nowUs } = drawer;
  // One that has been served stands behind all others.
  const isDue = !isServed && own.turnUs >= claim.sinceUs;
  const slotsLeft = (rank: number): number =>
    slotsBefore(scope, { ...claim, rank, share: 1 }, own, isDue ? own.turnUs : Infinity);
  // Who waits for a turn with the others comes at that, and what is left for it meanwhile is lost, but to more urgent calls.
  const isContended = main.scope.turnsUntilUs >= main.claim.sinceUs;
  const left = slotsLeft(isContended ? claim.rank - 1 : claim.rank);
  const passesUs = agreeUs(scope, opensAtUs(scope, nowUs, stepUs), costs, drawer);
  const startUs = Math.max(slotUs, passesUs + Math.floor(left * stepUs));
  if (startUs === slotUs && letsPass(gate, startUs)) return { startUs };

  const before = isContended ? slotsLeft(claim.rank) : left;
  const isTried = serving.request.isTry || nowUs < serving.state.triedUs + UNTRIED_US;
  const pushUs = isTried ? 0 : Math.min(untilUs - nowUs, MOST_PUSHED_US);
  // Pushed behind those whose turn comes first, it would leave them nothing: the key's times only go forward, too.
  const isInReach = before === 0 && startUs <= nowUs + pushUs;
  if (isInReach && letsPass(gate, startUs) && letsPass(main, startUs)) return { startUs };
  // What the others give now lies so far ahead; later they will give as far.
  const turnUs = passesUs + Math.floor(before * stepUs);
  return { deferredUs: Math.max(nowUs, turnUs - Math.max(firstUs - nowUs, pushUs)) };
}

function letsPass({ scope, costs, drawer }: Fitting, atUs: number): boolean {
  return agreeUs(scope, atUs, costs, drawer) === atUs;
}
