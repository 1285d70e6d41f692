import { ruleOf } from "../limits/registry.ts";
import { noDrawer, type Drawer } from "../limits/rule.ts";
import {
  boundBy,
  COOLING,
  NO_PLACE,
  PAUSED,
  SLOWED,
  type DrawRequest,
  type Place,
  type Wish,
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
  orderOf,
  readTurns,
  roomAtUs,
  shareOf,
  type Ahead,
} from "./turns.ts";

/**
 * Whether a wish fits into a scope, and the place that its asker keeps there if it does not.
 * Twin of `lua/lib/draw/place.lua`.
 */

/** One draw under way. */
export interface Serving {
  readonly state: BucketState;
  readonly request: DrawRequest;
  readonly alive: number;
  readonly isNewWindow: boolean;
  /** Turns before it have been missed. */
  readonly missedUs: number;
  /** The number of the next lease. */
  lease: number;
  hasGranted: boolean;
  /** The limits that only count. */
  readonly shadows: readonly Shadow[];
  readonly lines: Map<Scope, Line>;
}

/** Who waits in a scope. */
export interface Line {
  readonly scope: Scope;
  /** The asker's place, as it knows it. */
  readonly own: Place;
  readonly others: readonly Turn[];
  /** What the asker's wishes of this draw wait for, in their order. */
  readonly waiting: Waiting[];
  /** Whether the asker got slots of this scope in this draw. */
  isServed: boolean;
  /** How much of the asker's share of the horizon is used: 1 is all of it. */
  used: number;
  /** The first wish that these limits refused. */
  refused: Refusal | undefined;
}

/** What a wish waits for. */
export interface Waiting extends Need {
  /** When its asker asks again; Infinity if that is unknown. */
  readonly turnUs: number;
  /** As in `Turn`; 0 if others need not wait for it. */
  readonly dueUs: number;
  readonly startUs: number;
}

/** A scope into which a wish has to fit, with what the wish needs of it. */
export interface Fitting {
  readonly scope: Scope;
  readonly line: Line;
  readonly costs: readonly number[];
  /** 0: it is what all keys share; else which of the wish's scopes it is. */
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

/** How far ahead a wish of this rank may be booked, in µs. */
export function horizonOf({ horizonUs, terms }: DrawRequest, rank: number): number {
  return Math.floor((horizonUs * terms.shares[rank]!) / 1_000);
}

/** The line of a scope, opened at first use. */
export function lineOf(serving: Serving, scope: Scope, own: Place): Line {
  const found = serving.lines.get(scope);
  if (found !== undefined) return found;
  const { request, missedUs } = serving;
  const others = readTurns(scope, request.asker, missedUs);
  const waits = { waiting: [], isServed: false, used: 0, refused: undefined };
  const line: Line = { scope, own, others, ...waits };
  serving.lines.set(scope, line);
  return line;
}

/** What a wish needs of a scope. A gate gives nothing ahead, so what comes before a call is not delayed there. */
export function fit(
  serving: Serving,
  { rank, sinceUs, costs: all }: Wish,
  line: Line,
  {
    number,
    after,
    isGate,
  }: { readonly number: number; readonly after: number; readonly isGate: boolean },
): Fitting {
  const { scope } = line;
  const { request, state, alive, lease } = serving;
  const limits = scope.records.map(({ limit }) => limit);
  const costs = all.slice(after, after + limits.length);
  const { asker, horizonUs } = request;
  const { clockUs: nowUs } = state;
  const stepUs = stepOf(limits, costs);
  const room = callsIn(limits, costs, { horizonUs, hasBursts: true });
  const share = shareOf(room, alive);
  const withoutBursts = callsIn(limits, costs, { horizonUs, hasBursts: false });
  const flow = Math.min(share, shareOf(withoutBursts, alive));
  const order = orderOf(rank, sinceOf(sinceUs, nowUs));
  const drawer = { asker, nowUs, order, lease };
  const untilUs = isGate ? nowUs : nowUs + horizonOf(request, rank);
  const ahead = aheadIn(line, asker, { order, sinceUs: turnSinceOf(line.own) });
  return { scope, number, line, costs, after, stepUs, share, flow, drawer, untilUs, ahead };
}

/** What comes before calls of this order: of other askers, and of wishes before this one. */
function aheadIn(
  { others, waiting }: Line,
  asker: string,
  call: { readonly order: number; readonly sinceUs: number },
): readonly Ahead[] {
  const own = waiting.map((each) => ({ ...each, asker, sinceUs: 0, needs: [each] }));
  return aheadOf(own.length === 0 ? others : [...others, ...own], call);
}

/** Since when an asker waits for its turn; Infinity if it has none: it comes last of those that came together. */
function turnSinceOf({ turnName }: Place): number {
  return turnName === "" ? Infinity : Number.parseInt(turnName, 10);
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

/** When so many calls could start after all that comes before them, and the limit, from 1 on, that decides it. */
export function turnOf(
  { scope, costs, untilUs, ahead }: Fitting,
  opensUs: number,
  count: number,
): { readonly startUs: number; readonly binding: number } {
  const all = times(costs, count);
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

/** Keeps the asker's place in a line for all that it waits for there; if that is nothing, it leaves. */
export function settleLine(serving: Serving, line: Line): Place {
  const { scope, own, waiting, isServed } = line;
  const { request, isNewWindow, missedUs, state } = serving;
  if (request.isTry) return NO_PLACE;
  const { asker } = request;
  const leaseOrder = waiting.find(({ turnUs }) => turnUs === Infinity)?.order ?? 0;
  const drawer = { ...noDrawer(state.clockUs), asker };
  for (const { limit, state: limitState } of scope.records) {
    const rule = ruleOf(limit.kind);
    if (own.leaseOrder > 0 && own.leaseOrder !== leaseOrder) {
      rule.leavePlace?.(limitState, { ...drawer, order: own.leaseOrder });
    }
    if (leaseOrder > 0) rule.keepPlace?.(limitState, { ...drawer, order: leaseOrder });
  }
  const needs = waiting.filter(({ turnUs, dueUs }) => turnUs < Infinity && dueUs > 0);
  const { clockUs: nowUs } = state;
  // One that was served comes after those that asked at the same moment.
  const sinceUs = isServed ? nowUs + 1 : Math.min(nowUs, turnSinceOf(own));
  const turn = needs.length === 0 ? undefined : turnFor(asker, sinceUs, needs);
  const turnName = keepTurn(scope, own.turnName, turn, isNewWindow ? missedUs : undefined);
  const turnUs = turn === undefined ? 0 : Math.min(...needs.map((each) => each.turnUs));
  return { turnUs, turnName, leaseOrder };
}

function turnFor(asker: string, sinceUs: number, needs: readonly Waiting[]): Turn {
  const dueUs = Math.min(...needs.map((each) => each.dueUs));
  return { asker, sinceUs, dueUs, startUs: needs[0]!.startUs, needs };
}

/** The order of what is left of a wish: its calls came evenly, as far as the store knows. */
export function orderOfRest(wish: Wish, served: number, nowUs: number): number {
  const { rank } = wish;
  const firstUs = sinceOf(wish.sinceUs, nowUs);
  if (served === 0) return orderOf(rank, firstUs);
  const nextUs = Math.max(firstUs, sinceOf(wish.nextSinceUs, nowUs));
  const lastUs = Math.max(nextUs, sinceOf(wish.lastSinceUs, nowUs));
  return orderOf(rank, nextUs + Math.floor(((lastUs - nextUs) * (served - 1)) / wish.wanted));
}

/** Calls that came together are behind each other, but not by more than this. */
const MOST_AHEAD_US = 1_000_000;

/** Since when a call is in line. */
function sinceOf(sinceUs: number, nowUs: number): number {
  return sinceUs === 0 ? nowUs : Math.min(sinceUs, nowUs + MOST_AHEAD_US);
}

/** Calls of a wish that came within this time are served one after the other. */
const RUN_US = 50_000;

/**
 * Adds to a line what the calls of a wish need that are left: as many as its asker comes for, and of limits that do
 * not give evenly the others that came with those.
 */
export function addNeeds(
  { scope, line, costs }: Fitting,
  { sinceUs, lastSinceUs }: Wish,
  turn: Omit<Waiting, "amounts">,
  { first, left }: { readonly first: number; readonly left: number },
): void {
  line.waiting.push({ ...turn, amounts: times(costs, first) });
  const isRun = lastSinceUs - sinceUs < RUN_US;
  const isEven = scope.records.every(
    ({ limit: { kind } }, index) =>
      costs[index] === 0 || !ruleOf(kind).isRate || ruleOf(kind).doesDrain === true,
  );
  const more = left - first;
  if (isRun && !isEven && more > 0) line.waiting.push({ ...turn, amounts: times(costs, more) });
}

/** A wish that did not get all it wanted. */
export interface UnmetWish {
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
  /** The limit, from 1 on, that the rest of the wish waits for; 0 if none. */
  readonly waitsFor: number;
  /** Whose key it is, as `keyOf`. */
  readonly key: string | undefined;
  /** Whether these are limits of a key, so that only wishes of that key wait with it. */
  readonly isOwn: boolean;
}

/** The narrowest key that has limits of its own; undefined if none has. */
export function keyOf({ scopes }: Wish): string | undefined {
  return scopes.at(-1)?.key;
}

/** An asker that got nothing does not ask again before this time has passed. */
export const LEAST_ASK_GAP_US = 1_000;

/**
 * How long before its start a call is asked for again that others come before. If a horizon has many calls, an eighth of
 * it is left for those others, who may want more by then; else many would come a little too early, for nothing.
 */
function askAheadUs(horizonUs: number, stepUs: number): number {
  const leftUs = Math.floor(horizonUs / 8);
  return stepUs <= leftUs / 8 ? horizonUs - leftUs : horizonUs;
}

/** Gives the asker a turn for the rest of a wish. */
export function refuse(
  serving: Serving,
  wish: Wish,
  main: Fitting,
  { count, left, opensUs, horizonUs }: UnmetWish,
): Omit<Refusal, "isOwn"> {
  const { request, state } = serving;
  const { clockUs: nowUs, shared } = state;
  const { scope, line, flow, costs, drawer } = main;
  const nextUs = earliestForAllUs(scope, opensUs, costs, drawer);
  // A try asks again for one call. An asker that waits comes for as many as now, since more calls come until then, but
  // for no more than a horizon has for it; were it for those that are left, all behind it would ask too early.
  const needed = request.isTry ? 1 : Math.min(wish.wanted, flow);
  // The rest came later than those that were served.
  const order = orderOfRest(wish, count, nowUs);
  const ahead =
    count === 0 ? main.ahead : aheadIn(line, request.asker, { order, sinceUs: Infinity });
  const { startUs, binding } = turnOf({ ...main, ahead }, opensUs, needed);
  const soonestUs = count === 0 && !request.isTry ? nowUs + LEAST_ASK_GAP_US : nowUs;
  const isBlocked = nextUs === Infinity;
  const isLater = !request.isTry && scope === shared && ahead.length > 0;
  const aheadUs = isLater ? askAheadUs(horizonUs, main.stepUs) : horizonUs;
  const turnUs = isBlocked ? Infinity : Math.max(soonestUs, startUs - aheadUs);
  // In a bucket with limits per key only, a pause may end any time: a turn after it would keep the key waiting.
  const isBucketClosed = scope !== shared && closedUntilUs(shared) > nowUs + horizonUs;
  const rechecked = scope === shared ? Math.min(turnUs, nowUs + LONGEST_ASK_GAP_US) : turnUs;
  const dueUs = isBucketClosed ? 0 : rechecked;
  // A try waits for nothing, so others of its request are not behind it.
  if (!request.isTry) {
    addNeeds(main, wish, { order, turnUs, dueUs, startUs }, { first: needed, left });
  }
  const isLate = nextUs > nowUs + horizonUs;
  const both = [{ scope: shared, number: 0 }, main];
  const slows = (): number => bindingAt(main) || slowedBy(both, nowUs);
  const bindsAt = closedBy(both, nowUs + horizonUs) || (isLate ? slows() : 0);
  const waitsFor = isBlocked ? bindingAt(main) : binding;
  return { turnUs, bindsAt, waitsFor, key: keyOf(wish) };
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
