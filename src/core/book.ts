import { ruleOf } from "./limits/registry.ts";
import { keepsGap } from "./gaps.ts";
import { passGate } from "./gate.ts";
import { agreeUs, commitAll, isAllRate } from "./scope.ts";
import type { Fitting, Serving } from "./place.ts";
import { slotOfRun, type Run } from "./draw-messages.ts";

/** What is to be booked for one wish. Twin of `lua/lib/book.lua`. */
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
/** Where nothing bounds how many may start at once. */
const MOST_TOGETHER = 1_000_000;

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

/** How many such calls the capacities let pass at once. */
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
