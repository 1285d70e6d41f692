import type { Granted, SlotRequest } from "../store.ts";
import {
  bookAtOnce,
  bookList,
  bookRun,
  isAtOnce,
  isRunnable,
  putBehind,
  type Booked,
  type Booking,
  type Deferred,
} from "./book.ts";
import { takeHoles } from "./bucket-state.ts";
import {
  addToGate,
  bindingAt,
  fit,
  horizonOf,
  lineOf,
  orderOfRest,
  refuse,
  closedBy,
  closedUntilUs,
  slowedBy,
  waitBehind,
  type Fitting,
  type Line,
  type Refusal,
  type Serving,
  type Waiting,
} from "./fit.ts";
import { earliestForAllUs, hasRates, opensAtUs, type Scope } from "./scope.ts";
import { countCalls } from "./shadows.ts";
import { soonestOf, soonestUnserved } from "./soonest.ts";

const NOTHING = { slotsUs: [], run: undefined, notBeforeUs: 0, statuses: [] };

/** The limits that a slot request has to fit. */
interface Fittings {
  /** The limits that all keys share; in a bucket without such, those of the slot request's widest key. */
  readonly main: Fitting;
  /** The limits of the slot request's other keys: they must allow the very same slots. */
  readonly gates: readonly Fitting[];
  /** Whether `main` holds the limits of a key. */
  readonly isOwn: boolean;
  /** The earliest time at which anything may start; it moves with each booking. */
  readonly opens: () => number;
}

/** The scopes of a slot request's keys, the widest first. */
export interface KeyScopes {
  readonly open: () => readonly Scope[];
  /** Leaves the state as it is. */
  readonly look: () => readonly Scope[];
}

/** What a slot request got, but for the places of its keys. */
export type Served = Omit<Granted, "positions">;

/**
 * Books what it can of one slot request. The limits of its keys apply together with those that all keys share; in a bucket
 * without shared limits, they decide alone. Twin of `lua/lib/draw/serve.lua`.
 */
export function serve(serving: Serving, slotRequest: SlotRequest, keys: KeyScopes): Served {
  const horizonUs = horizonOf(serving.request, slotRequest.rank);
  const refused = slotRequest.wanted === 0 ? undefined : refusedBefore(serving, slotRequest);
  if (slotRequest.wanted === 0 || refused !== undefined) {
    const notBeforeUs = refused?.isOwn === true ? refused.turnUs : 0;
    if (refused !== undefined && !slotRequest.isBounded) {
      return { ...NOTHING, notBeforeUs, soonestUs: 0, bindsAt: refused.bindsAt };
    }
    const keyScopes = slotRequest.isBounded ? keys.look() : [];
    const soonest = soonestUnserved(serving, slotRequest, { keyScopes, horizonUs });
    return { ...NOTHING, notBeforeUs, ...soonest };
  }
  const fittings = fitAll(serving, slotRequest, keys.open());
  const booked = book(serving, slotRequest, { ...fittings, horizonUs });
  const { slotsUs, run } = booked;
  const settled = endSlotRequest(serving, slotRequest, { ...fittings, horizonUs, booked });
  if (countOf(booked) === slotRequest.wanted) {
    return { slotsUs, run, statuses: [], soonestUs: 0, ...settled };
  }
  const { soonestUs, bindsAt } = soonestOf(serving, { ...fittings, horizonUs });
  const ended = { ...settled, bindsAt: bindsAt === 0 ? settled.bindsAt : bindsAt };
  const told = serving.request.isTry ? untilOpen(serving, fittings, ended) : ended;
  return { slotsUs, run, statuses: [], soonestUs, ...told };
}

/** The line in which a slot request waits for its slots, if it has been opened. */
function mainLineOf({ state, lines }: Serving, { scopes }: SlotRequest): Line | undefined {
  const { shared, keys } = state;
  if (shared.records.length > 0 || scopes.length === 0) return lines.get(shared);
  const widest = keys.get(scopes[0]!.key);
  return widest && lines.get(widest);
}

/** A slot request before this one that waits for what this one needs too; others may fill what is left. */
function refusedBefore(serving: Serving, slotRequest: SlotRequest): Refusal | undefined {
  const line = mainLineOf(serving, slotRequest);
  if (line?.refused === undefined || serving.request.isTry) return undefined;
  const { waitsFor } = line.refused;
  if (waitsFor > 0 && slotRequest.costs[waitsFor - 1]! === 0) return undefined;
  waitBehind(serving, slotRequest, line);
  return line.refused;
}

function fitAll(serving: Serving, slotRequest: SlotRequest, keyScopes: readonly Scope[]): Fittings {
  const { state, request } = serving;
  const { shared, clockUs: nowUs } = state;
  const isOwn = shared.records.length === 0 && keyScopes.length > 0;
  let after = shared.records.length;
  const ofKeys = keyScopes.map((scope, index) => {
    const line = lineOf(serving, scope, slotRequest.scopes[index]!.position);
    const isGate = !isOwn || index > 0;
    const fitting = fit(serving, slotRequest, line, { number: index + 1, after, isGate });
    after += scope.records.length;
    return fitting;
  });
  if (isOwn) {
    const [main, ...gates] = ofKeys as [Fitting, ...Fitting[]];
    const { scope, stepUs } = main;
    const opens = (): number =>
      Math.max(opensAtUs(shared, nowUs, stepUs), opensAtUs(scope, nowUs, stepUs));
    return { main, gates, isOwn, opens };
  }
  const line = lineOf(serving, shared, request.position);
  const main = fit(serving, slotRequest, line, { number: 0, after: 0, isGate: false });
  return { main, gates: ofKeys, isOwn, opens: () => opensAtUs(shared, nowUs, main.stepUs) };
}

interface Horizon {
  /** How far ahead a slot request of its priority may book. */
  readonly horizonUs: number;
}

/** Books holes first, and then new slots. */
function book(serving: Serving, slotRequest: SlotRequest, asked: Fittings & Horizon): Booked {
  const { state, request } = serving;
  const { main, gates, opens, isOwn, horizonUs } = asked;
  const { line } = main;
  const { name, wanted } = slotRequest;
  const { used } = line;
  // A try waits for no turn, so the horizon is not shared out.
  const shareLeft = request.isTry ? wanted : Math.floor((1 - used) * main.share);
  const mostInAll = Math.min(wanted, Math.max(used === 0 ? 1 : 0, shareLeft));
  const holesUntilUs = state.clockUs + request.horizonUs;
  const recycledUs = request.isTry
    ? []
    : takeHoles(state, { name, most: mostInAll, untilUs: holesUntilUs });
  const untilUs = state.clockUs + horizonUs;
  const most = mostInAll - recycledUs.length;
  const booking: Booking = { serving, slotRequest, main, gates, opens, untilUs, most };
  const booked = isRunnable(booking)
    ? bookRun(booking)
    : isAtOnce(booking)
      ? bookAtOnce(booking)
      : bookList(booking);
  // What was recycled was counted when it was booked.
  if (slotRequest.shadowCosts)
    countCalls(serving.shadows, booked, slotRequest.shadowCosts, state.clockUs);
  const slotsUs = [...recycledUs, ...booked.slotsUs];
  const count = countOf({ ...booked, slotsUs });
  if (count > 0) {
    serving.hasGranted = true;
    for (const fitting of [main, ...gates]) fitting.line.isServed = true;
  }
  if (isSlice({ main, gates, isOwn })) line.used += count / main.share;
  return { ...booked, slotsUs };
}

function countOf({ slotsUs, run }: Booked): number {
  return slotsUs.length + (run?.count ?? 0);
}

/** Whether the slot requests of a line share one slice of a horizon. Leases of a key are no part of one: each slot request takes its own. */
function isSlice({ main, gates, isOwn }: Pick<Fittings, "main" | "gates" | "isOwn">): boolean {
  return !isOwn || gates.length > 0 || hasRates(main.scope);
}

type Ended = Pick<Granted, "notBeforeUs" | "bindsAt">;

/** Why a slot request got no more, and when to ask again. */
function endSlotRequest(
  serving: Serving,
  slotRequest: SlotRequest,
  asked: Fittings & Horizon & { readonly booked: Booked },
): Ended {
  const { request } = serving;
  const { main, gates, isOwn, opens, booked, horizonUs } = asked;
  const count = countOf(booked);
  const left = slotRequest.wanted - count;
  if (booked.deferred !== undefined) {
    const ended = endAtGate(serving, slotRequest, gates, { deferred: booked.deferred, count });
    return request.isTry ? laterOfMain(asked, ended) : ended;
  }
  if (left === 0) return { notBeforeUs: 0, bindsAt: 0 };
  const refusal = refuse(serving, slotRequest, main, { count, left, opensUs: opens(), horizonUs });
  const { turnUs, bindsAt } = refusal;
  if (isSlice(asked)) main.line.refused ??= { ...refusal, isOwn };
  if (!request.isTry) keepBehind(gates, slotRequest, main.line.waiting.at(-1)!, left);
  // A try keeps no position, so the time to ask again goes here.
  return { notBeforeUs: isOwn || request.isTry ? turnUs : 0, bindsAt };
}

/** Gives the asker a turn in the line of the key that holds its call back. */
function endAtGate(
  serving: Serving,
  slotRequest: SlotRequest,
  gates: readonly Fitting[],
  { deferred, count }: { readonly deferred: Deferred; readonly count: number },
): Ended {
  const { request, state } = serving;
  const { clockUs: nowUs } = state;
  const {
    gate,
    untilUs: turnUs,
    startUs,
  } = putBehind(serving, slotRequest, { deferred, served: count });
  const left = slotRequest.wanted - count;
  const binding = bindingAt(gate);
  // If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
  const held = closedBy([gate], nowUs) || slowedBy([gate], nowUs);
  const turn = { order: orderOfRest(slotRequest, count, nowUs), turnUs, dueUs: turnUs, startUs };
  if (!request.isTry) {
    addToGate(gate, slotRequest, turn, left);
    keepBehind(gates.slice(gates.indexOf(gate) + 1), slotRequest, turn, left);
  }
  return { notBeforeUs: turnUs, bindsAt: binding > 0 ? gate.after + binding : held };
}

/**
 * A call that wider limits hold back came to the gates of its narrower keys: others of those keys must not pass it there
 * meanwhile. Narrower keys that hold it back keep no position in wider ones: there, calls of other keys go on.
 */
function keepBehind(
  gates: readonly Fitting[],
  slotRequest: SlotRequest,
  turn: Omit<Waiting, "amounts">,
  left: number,
): void {
  if (turn.turnUs === Infinity) return;
  const { order, turnUs, dueUs, startUs } = turn;
  for (const gate of gates) {
    const { own, others } = gate.line;
    // Nobody waits in this line, nor has its asker since before this draw.
    if (own.sinceUs === 0 && others.length === 0) continue;
    addToGate(gate, slotRequest, { order, turnUs, dueUs, startUs }, left);
  }
}

/** A try that a key refuses is told of the limits that decide the slots instead if those refuse it for longer. */
function laterOfMain({ main, opens }: Fittings, ended: Ended): Ended {
  const { scope, costs, drawer } = main;
  const nextUs = earliestForAllUs(scope, opens(), costs, drawer);
  if (nextUs === Infinity || nextUs <= ended.notBeforeUs) return ended;
  const binding = bindingAt(main);
  return binding > 0 ? { notBeforeUs: nextUs, bindsAt: binding } : ended;
}

/** A refused try cannot pass before the last pause or cooldown ends, whatever else refused it. */
function untilOpen(
  { state: { shared, clockUs } }: Serving,
  { main, gates }: Fittings,
  ended: Ended,
): Ended {
  const scopes = [{ scope: shared, number: 0 }, main, ...gates];
  const openUs = Math.max(...scopes.map(({ scope }) => closedUntilUs(scope)));
  const isLast = ended.notBeforeUs === Infinity || ended.notBeforeUs < openUs;
  if (openUs <= clockUs || !isLast) return ended;
  return { notBeforeUs: openUs, bindsAt: closedBy(scopes, clockUs) };
}
