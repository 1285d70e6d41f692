import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Drawer } from "../limits/rule.ts";
import {
  boundBy,
  COOLING,
  NO_POSITION,
  PAUSED,
  SLOWED,
  type DrawRequest,
  type WaitPosition,
  type SlotRequest,
} from "../store.ts";
import type { BucketState } from "./bucket-state.ts";
import {
  callsIn,
  earliestForAllUs,
  bindingOf,
  keepsGap,
  opensAtUs,
  stepOf,
  type Need,
  type Scope,
  type Turn,
} from "./scope.ts";
import type { Shadow } from "./shadows.ts";
import {
  aheadOf,
  isInTime,
  keepTurn,
  LONGEST_ASK_GAP_US,
  MOST_NEEDS,
  orderOf,
  readTurns,
  roomAtUs,
  shareOf,
  type Ahead,
} from "./turns.ts";

/**
 * Whether a slot request fits into a scope, and the position that its asker keeps there if it does not.
 * Twin of `lua/lib/draw/fit.lua`.
 */

/** One draw under way. */
export interface Serving {
  readonly state: BucketState;
  readonly request: DrawRequest;
  readonly alive: number;
  /** Turns before it have been missed. */
  readonly missedUs: number;
  /** The number of the next lease. */
  lease: number;
  hasGranted: boolean;
  /** The number of the slot request that is being served. */
  index: number;
  /** The limits that only count. */
  readonly shadows: readonly Shadow[];
  readonly lines: Map<Scope, Line>;
}

/** Who waits in a scope. */
export interface Line {
  readonly scope: Scope;
  /** The asker's position, as it knows it. */
  readonly own: WaitPosition;
  readonly others: readonly Turn[];
  /** What the asker's slot requests of this draw wait for, in their order. */
  readonly waiting: Waiting[];
  /** Whether the asker got slots of this scope in this draw. */
  isServed: boolean;
  /** How much of the asker's share of the horizon is used: 1 is all of it. */
  used: number;
  /** What the asker came for in this draw, by rank. */
  readonly slices: Map<number, Slice>;
  /** The first slot request that these limits refused. */
  refused: Refusal | undefined;
}

/**
 * The calls of one rank that an asker may have in one turn: its share of a horizon, in its own order. Calls of other
 * askers come before all of them or after all of them, so calls go in order within one horizon.
 */
interface Slice {
  /** The number of its first slot request. */
  readonly first: number;
  /** What comes before its first call. */
  readonly ahead: readonly Ahead[];
}

/** What a slot request waits for. */
export interface Waiting extends Need {
  /** When its asker asks again; Infinity if that is unknown. */
  readonly turnUs: number;
  /** As in `Turn`; 0 if others need not wait for it. */
  readonly dueUs: number;
  readonly startUs: number;
}

/** A scope into which a slot request has to fit, with what the slot request needs of it. */
export interface Fitting {
  readonly scope: Scope;
  readonly line: Line;
  readonly costs: readonly number[];
  /** 0: it is what all keys share; else which of the slot request's scopes it is. */
  readonly number: number;
  /** How many limits come before these, as `Granted.bindsAt` numbers them. */
  readonly after: number;
  /** How long one call occupies the scope, in µs. */
  readonly stepUs: number;
  /** How many calls of a horizon each asker may have. */
  readonly share: number;
  /** How many of them come of what the limits give in a horizon, without their bursts. */
  readonly flow: number;
  readonly drawer: Drawer;
  /** How far what comes before these calls may be delayed. */
  readonly untilUs: number;
  readonly ahead: readonly Ahead[];
}

/** Until when a cooldown or a pause lets nothing start. */
export function closedUntilUs({ coolUntilUs, pausedUntilUs }: Scope): number {
  return Math.max(coolUntilUs, pausedUntilUs);
}

/** A scope, with its number as `boundBy` takes it. */
export type Numbered = Pick<Fitting, "scope" | "number">;

/** What a cooldown or a pause of one of these scopes, the one that lasts longest, says as `bindsAt` if it lasts beyond this time; else 0. */
export function closedBy(scopes: readonly Numbered[], untilUs: number): number {
  let [latestUs, bindsAt] = [untilUs, 0];
  for (const { scope, number } of scopes) {
    const { coolUntilUs, pausedUntilUs } = scope;
    const closedUs = closedUntilUs(scope);
    if (closedUs <= latestUs) continue;
    latestUs = closedUs;
    bindsAt = boundBy(pausedUntilUs >= coolUntilUs ? PAUSED : COOLING, number);
  }
  return bindsAt;
}

/** The same of the first of these scopes whose rate answers have slowed. */
export function slowedBy(scopes: readonly Numbered[], nowUs: number): number {
  const slowed = scopes.find(({ scope }) => keepsGap(scope, nowUs));
  return slowed === undefined ? 0 : boundBy(SLOWED, slowed.number);
}

/** How far ahead a slot request of this rank may be booked, in µs. */
export function horizonOf({ horizonUs, terms }: DrawRequest, rank: number): number {
  return Math.floor((horizonUs * terms.shares[rank]!) / 1_000);
}

/** The line of a scope, opened at first use. */
export function lineOf(serving: Serving, scope: Scope, own: WaitPosition): Line {
  const found = serving.lines.get(scope);
  if (found !== undefined) return found;
  const { request, missedUs } = serving;
  const others = readTurns(scope, request.asker, missedUs);
  const waits = { waiting: [], isServed: false, used: 0, refused: undefined, slices: new Map() };
  const line: Line = { scope, own, others, ...waits };
  serving.lines.set(scope, line);
  return line;
}

/** What a slot request needs of a scope. A gate gives nothing ahead, so what comes before a call is not delayed there. */
export function fit(
  serving: Serving,
  { rank, sinceUs, costs: all }: SlotRequest,
  line: Line,
  {
    number,
    after,
    isGate,
  }: { readonly number: number; readonly after: number; readonly isGate: boolean },
): Fitting {
  const { scope } = line;
  const { request, state, lease } = serving;
  const limits = scope.records.map(({ limit }) => limit);
  const costs = all.slice(after, after + limits.length);
  const { asker } = request;
  const { clockUs: nowUs } = state;
  const stepUs = stepOf(limits, costs);
  const { share, flow } = sharesOf(serving, scope, costs);
  const order = orderOf(rank, sinceOf(sinceUs, nowUs));
  const drawer = { asker, nowUs, order, lease };
  const untilUs = isGate ? nowUs : nowUs + horizonOf(request, rank);
  const known = isGate ? undefined : sliceOf(serving, line, rank);
  const ahead = known?.ahead ?? aheadIn(line, asker, { order, sinceUs: turnSinceOf(line.own) });
  const begins = !isGate && !line.slices.has(rank);
  if (begins) line.slices.set(rank, { first: serving.index, ahead });
  return { scope, number, line, costs, after, stepUs, share, flow, drawer, untilUs, ahead };
}

/** How many such calls of a horizon each asker may have, and how many of them come without bursts. */
function sharesOf(
  { request: { horizonUs }, alive }: Serving,
  { records }: Scope,
  costs: readonly number[],
): Pick<Fitting, "share" | "flow"> {
  const limits = records.map(({ limit }) => limit);
  const share = shareOf(callsIn(limits, costs, { horizonUs, hasBursts: true }), alive);
  const withoutBursts = callsIn(limits, costs, { horizonUs, hasBursts: false });
  return { share, flow: Math.min(share, shareOf(withoutBursts, alive)) };
}

/** The slice that is being served; undefined if a slot request is judged by its own order: after a refusal, and for tries. */
function sliceOf({ request }: Serving, line: Line, rank: number): Slice | undefined {
  return request.isTry || line.refused !== undefined ? undefined : line.slices.get(rank);
}

/** What comes before calls of this order: of other askers, and of slot requests before this one. */
export function aheadIn(
  { others, waiting }: Line,
  asker: string,
  call: { readonly order: number; readonly sinceUs: number },
): readonly Ahead[] {
  const own = waiting.map((each) => ({ ...each, asker, sinceUs: 0, needs: [each] }));
  return aheadOf(own.length === 0 ? others : [...others, ...own], call);
}

/** Since when an asker waits for its turn; Infinity if it has none: it comes last of those that came together. */
function turnSinceOf({ sinceUs }: WaitPosition): number {
  return sinceUs === 0 ? Infinity : sinceUs;
}

/** The number, from 1 on, of the limit that holds the next call back; 0: none does. */
export function bindingAt({ scope, stepUs, costs, drawer }: Fitting): number {
  return bindingOf(scope, opensAtUs(scope, drawer.nowUs, stepUs), costs, drawer);
}

/** Whether all that comes before these calls keeps its time if so many of them are booked at once. */
export function delaysNone(
  { scope, costs, stepUs, drawer, untilUs, ahead }: Fitting,
  count = 1,
): boolean {
  if (ahead.length === 0) return true;
  const opensUs = opensAtUs(scope, drawer.nowUs, stepUs);
  const all = times(costs, count);
  return ahead.every((each) => isInTime(scope, each, all, { opensUs, untilUs }));
}

/** When this much could start after all that comes before it, and the limit, from 1 on, that decides it. */
export function turnOf(
  { scope, untilUs, ahead }: Pick<Fitting, "scope" | "untilUs" | "ahead">,
  opensUs: number,
  all: readonly number[],
): { readonly startUs: number; readonly binding: number } {
  const last = ahead.findLast((each) => !isInTime(scope, each, all, { opensUs, untilUs }));
  let startUs = opensUs;
  let binding = 0;
  for (const [index, { limit, state }] of scope.records.entries()) {
    if (all[index] === 0 || !ruleOf(limit.kind).isRate) continue;
    const needed = (last?.sums[index] ?? 0) + all[index]!;
    const roomUs = roomAtUs(limit, state, opensUs, needed);
    if (roomUs > startUs) [startUs, binding] = [roomUs, index + 1];
  }
  return { startUs, binding };
}

/** Keeps the asker's position in a line for all that it waits for there; if that is nothing, it leaves. */
export function settleLine(serving: Serving, line: Line): WaitPosition {
  const { scope, own, waiting, isServed } = line;
  const { request, missedUs, state } = serving;
  if (request.isTry) return NO_POSITION;
  const { asker } = request;
  const leaseOrder = waiting.find(({ turnUs }) => turnUs === Infinity)?.order ?? 0;
  const drawer = { ...noDrawer(state.clockUs), asker };
  for (const { limit, state: limitState } of scope.records) {
    const rule = ruleOf(limit.kind);
    if (own.leaseOrder > 0 && own.leaseOrder !== leaseOrder) {
      rule.leavePosition?.(limitState, { ...drawer, order: own.leaseOrder });
    }
    if (leaseOrder > 0) rule.keepPosition?.(limitState, { ...drawer, order: leaseOrder });
  }
  const needs = waiting.filter(({ turnUs, dueUs }) => turnUs < Infinity && dueUs > 0);
  const { clockUs: nowUs } = state;
  // One that was served comes after those that asked at the same moment.
  const sinceUs = isServed ? nowUs + 1 : Math.min(nowUs, turnSinceOf(own));
  const turn = needs.length === 0 ? undefined : turnFor(asker, sinceUs, needs);
  const { sinceUs: ownSinceUs } = own;
  const keptUs = keepTurn(scope, { asker, sinceUs: ownSinceUs }, turn, missedUs);
  const turnUs = turn === undefined ? 0 : Math.min(...needs.map((each) => each.turnUs));
  return { turnUs, sinceUs: keptUs, leaseOrder };
}

function turnFor(asker: string, sinceUs: number, needs: readonly Waiting[]): Turn {
  const dueUs = Math.min(...needs.map((each) => each.dueUs));
  return { asker, sinceUs, dueUs, startUs: needs[0]!.startUs, needs };
}

/** The order of what is left of a slot request: its calls came evenly, as far as the store knows. */
export function orderOfRest(slotRequest: SlotRequest, served: number, nowUs: number): number {
  const { rank } = slotRequest;
  const firstUs = sinceOf(slotRequest.sinceUs, nowUs);
  if (served === 0) return orderOf(rank, firstUs);
  const nextUs = Math.max(firstUs, sinceOf(slotRequest.nextSinceUs, nowUs));
  const lastUs = Math.max(nextUs, sinceOf(slotRequest.lastSinceUs, nowUs));
  return orderOf(
    rank,
    nextUs + Math.floor(((lastUs - nextUs) * (served - 1)) / slotRequest.wanted),
  );
}

/** Calls that came together are behind each other, but not by more than this. */
const MOST_AHEAD_US = 1_000_000;

/** Since when a call is in line. */
function sinceOf(sinceUs: number, nowUs: number): number {
  return sinceUs === 0 ? nowUs : Math.min(sinceUs, nowUs + MOST_AHEAD_US);
}

/** Calls of a slot request that came within this time are served one after the other. */
const RUN_US = 50_000;

/**
 * Adds to a gate what the calls of a slot request need that are left: one of them, and of limits that do not give evenly the
 * others that came with it.
 */
export function addToGate(
  { scope, line, costs }: Fitting,
  slotRequest: SlotRequest,
  turn: Omit<Waiting, "amounts">,
  left: number,
): void {
  line.waiting.push({ ...turn, amounts: costs });
  if (givesEvenly(scope, costs)) return;
  addRest(line, slotRequest, turn, { costs, amounts: costs, count: left });
}

/** Whether all limits that such a call needs give evenly what they count. */
function givesEvenly({ records }: Scope, costs: readonly number[]): boolean {
  return records.every(
    ({ limit: { kind } }, index) =>
      costs[index] === 0 || !ruleOf(kind).isRate || ruleOf(kind).doesDrain === true,
  );
}

/** The slot requests from a number on that are served with a slot request, from the same line and in the same slice. */
function* followers(
  serving: Serving,
  from: number,
  slotRequest: SlotRequest,
): Iterable<SlotRequest> {
  const { slotRequests } = serving.request;
  const name = mainNameOf(serving, slotRequest);
  for (let index = from; slotRequests[index]?.rank === slotRequest.rank; index++) {
    const each = slotRequests[index]!;
    if (each.wanted > 0 && mainNameOf(serving, each) === name) yield each;
  }
}

/** The key in whose line a slot request waits for its slots; undefined: in that of what all keys share. */
function mainNameOf({ state }: Serving, { scopes }: SlotRequest): string | undefined {
  return state.shared.records.length > 0 ? undefined : scopes[0]?.key;
}

/**
 * What an asker comes for when its turn comes: `left` calls of this slot request and what follows it, as far as a horizon has
 * room for them. More calls come until then, so those that it was served in this draw count again; but were it for all
 * that wait, those behind it would ask too early.
 */
function amountsOfSlice(
  serving: Serving,
  main: Fitting,
  slotRequest: SlotRequest,
  left: number,
): { readonly amounts: readonly number[]; readonly isWhole: boolean } {
  const { scope, line, costs: own } = main;
  const amounts = own.map(() => 0);
  const isAlone = !givesEvenly(scope, own);
  let used = 0;
  const add = (costs: readonly number[], count: number): void => {
    if (used >= 1 || count === 0) return;
    const { flow } = sharesOf(serving, scope, costs);
    const taken = Math.min(count, Math.max(used === 0 ? 1 : 0, Math.floor((1 - used) * flow)));
    for (const index of amounts.keys()) amounts[index]! += taken * costs[index]!;
    used += taken < count ? 1 : taken / flow;
  };
  add(own, left);
  if (isAlone) {
    add(own, slotRequest.wanted - left);
    return { amounts, isWhole: used >= 1 };
  }
  const first = line.slices.get(slotRequest.rank)?.first ?? serving.index;
  for (const each of followers(serving, serving.index + 1, slotRequest))
    add(each.costs, each.wanted);
  for (const each of followers(serving, first, slotRequest)) {
    if (each === slotRequest) break;
    add(each.costs, each.wanted);
  }
  add(own, slotRequest.wanted - left);
  return { amounts, isWhole: used >= 1 };
}

/** A slot request that did not get all it wanted. */
export interface UnmetRequest {
  /** How many slots it got, and how many it lacks. */
  readonly count: number;
  readonly left: number;
  /** The earliest time at which anything may start. */
  readonly opensUs: number;
  readonly horizonUs: number;
}

export interface Refusal {
  /** When to ask again; Infinity if that is unknown. */
  readonly turnUs: number;
  /** As in `Granted`. */
  readonly bindsAt: number;
  /** The limit, from 1 on, that the rest of the slot request waits for; 0 if none. */
  readonly waitsFor: number;
  /** Whether these are limits of a key, so that only slot requests of that key wait with it. */
  readonly isOwn: boolean;
}

/** An asker that got nothing does not ask again before this time has passed. */
export const LEAST_ASK_GAP_US = 1_000;

/**
 * How long before its start a call is asked for again that others come before. If a horizon has many calls, a part of it
 * is left to those others, which may want more by then: otherwise many would ask a little too early and get nothing. An asker
 * that comes for a whole slice leaves a third of the horizon, since that much has to be free at once. Others leave an eighth.
 */
function askAheadUs(
  horizonUs: number,
  { stepUs, isWhole }: { readonly stepUs: number; readonly isWhole: boolean },
): number {
  const leftUs = Math.floor(horizonUs / (isWhole ? 3 : 8));
  return stepUs <= leftUs / 8 ? horizonUs - leftUs : horizonUs;
}

/** Gives the asker a turn for the rest of a slot request. */
export function refuse(
  serving: Serving,
  slotRequest: SlotRequest,
  main: Fitting,
  { count, left, opensUs, horizonUs }: UnmetRequest,
): Omit<Refusal, "isOwn"> {
  const { request, state } = serving;
  const { clockUs: nowUs, shared } = state;
  const { scope, line, costs, drawer } = main;
  const { isTry } = request;
  const nextUs = earliestForAllUs(scope, opensUs, costs, drawer);
  // A try asks again for one call.
  const comesFor = isTry ? undefined : amountsOfSlice(serving, main, slotRequest, left);
  const amounts = comesFor?.amounts ?? costs;
  // The rest came later than those that were served.
  const order = orderOfRest(slotRequest, count, nowUs);
  const hasSome = count > 0 || line.isServed;
  const sinceUs = count > 0 ? Infinity : turnSinceOf(line.own);
  const ahead = hasSome ? aheadIn(line, request.asker, { order, sinceUs }) : main.ahead;
  const { startUs, binding } = turnOf({ ...main, ahead }, opensUs, amounts);
  const soonestUs = hasSome || isTry ? nowUs : nowUs + LEAST_ASK_GAP_US;
  const isBlocked = nextUs === Infinity;
  const isLater = !isTry && scope === shared && ahead.length > 0;
  const { stepUs } = main;
  const aheadUs = isLater
    ? askAheadUs(horizonUs, { stepUs, isWhole: comesFor?.isWhole === true })
    : horizonUs;
  const turnUs = isBlocked ? Infinity : Math.max(soonestUs, startUs - aheadUs);
  // In a bucket with limits per key only, a pause may end any time: a turn after it would keep the key waiting.
  const isBucketClosed = scope !== shared && closedUntilUs(shared) > nowUs + horizonUs;
  const rechecked = scope === shared ? Math.min(turnUs, nowUs + LONGEST_ASK_GAP_US) : turnUs;
  const dueUs = isBucketClosed ? 0 : rechecked;
  // A try waits for nothing, so others of its request are not behind it.
  if (!isTry)
    waitFor(serving, main, { slotRequest, left, amounts }, { order, turnUs, dueUs, startUs });
  const isLate = nextUs > nowUs + horizonUs;
  const both = [{ scope: shared, number: 0 }, main];
  const slows = (): number => bindingAt(main) || slowedBy(both, nowUs);
  const bindsAt = closedBy(both, nowUs + horizonUs) || (isLate ? slows() : 0);
  const waitsFor = isBlocked ? bindingAt(main) : binding;
  return { turnUs, bindsAt, waitsFor };
}

/**
 * Keeps a position for what an asker waits for in a line: a slice. Where limits do not give evenly, what comes back at one
 * moment is for all that wait, so each of the slot requests has its own position there.
 */
function waitFor(
  serving: Serving,
  { scope, line, costs }: Fitting,
  {
    slotRequest,
    left,
    amounts,
  }: { slotRequest: SlotRequest; left: number; amounts: readonly number[] },
  turn: Omit<Waiting, "amounts">,
): void {
  line.waiting.push({ ...turn, amounts });
  if (givesEvenly(scope, costs)) return;
  addRest(line, slotRequest, turn, { costs, amounts, count: left });
  for (const each of followers(serving, serving.index + 1, slotRequest)) {
    if (line.waiting.length >= MOST_NEEDS) return;
    const order = orderOfRest(each, 0, serving.state.clockUs);
    const own = each.costs.slice(0, costs.length);
    const { flow } = sharesOf(serving, scope, own);
    const first = times(own, Math.min(each.wanted, flow));
    line.waiting.push({ ...turn, order, amounts: first });
    addRest(line, each, { ...turn, order }, { costs: own, amounts: first, count: each.wanted });
  }
}

/** Adds what calls need that came with the first ones of a slot request. */
function addRest(
  line: Line,
  { sinceUs, lastSinceUs }: SlotRequest,
  turn: Omit<Waiting, "amounts">,
  {
    costs,
    amounts,
    count,
  }: { costs: readonly number[]; amounts: readonly number[]; count: number },
): void {
  if (lastSinceUs - sinceUs >= RUN_US) return;
  const rest = costs.map((cost, index) => Math.max(0, cost * count - amounts[index]!));
  if (rest.some((amount) => amount > 0)) line.waiting.push({ ...turn, amounts: rest });
}

/** Keeps a position for a slot request that waits behind another one of its line, unless one of its rank has a position already. */
export function waitBehind(serving: Serving, slotRequest: SlotRequest, line: Line): void {
  if (line.slices.has(slotRequest.rank)) return;
  const number = line.scope === serving.state.shared ? 0 : 1;
  const main = fit(serving, slotRequest, line, { number, after: 0, isGate: false });
  const order = orderOfRest(slotRequest, 0, serving.state.clockUs);
  const { turnUs, dueUs, startUs } = line.waiting.at(-1)!;
  const { amounts } = amountsOfSlice(serving, main, slotRequest, slotRequest.wanted);
  const turn = { order, turnUs, dueUs, startUs };
  waitFor(serving, main, { slotRequest, left: slotRequest.wanted, amounts }, turn);
}

/** Whether less is left beside what comes before a slice than it comes for: that is not worth a draw. */
export function isTooLittle(
  serving: Serving,
  slotRequest: SlotRequest,
  main: Fitting,
  { opensUs, untilUs, most }: { opensUs: number; untilUs: number; most: number },
): boolean {
  const { scope, line, ahead, costs, flow } = main;
  if (ahead.length === 0) return false;
  const isTry = serving.request.isTry;
  // A slice is judged once, at its first slot request.
  const { first } = line.slices.get(slotRequest.rank) ?? { first: -1 };
  const isWhole = !isTry && line.refused === undefined;
  if (isWhole && first !== serving.index) return false;
  const all = isWhole
    ? amountsOfSlice(serving, main, slotRequest, slotRequest.wanted).amounts
    : times(costs, Math.min(most, flow));
  const fits = ahead.every((each) => isInTime(scope, each, all, { opensUs, untilUs }));
  return !fits || turnOf({ scope, untilUs, ahead: [] }, opensUs, all).startUs > untilUs;
}

/** The most calls that may start at once, where no limit bounds them. */
const MOST_TOGETHER = 1_000_000;

/** How many such calls the capacities allow at once. */
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
