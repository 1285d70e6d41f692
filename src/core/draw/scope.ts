import { ordinalOf, ruleOf } from "../limits/registry.ts";
import { nobodyAt, type Drawer, type Limit } from "../limits/rule.ts";
import type { Standing } from "../store.ts";

/** A limit and where it stands. */
export interface LimitRecord {
  limit: Limit;
  readonly state: unknown;
}

/** What one set of limits has let pass: those that all keys share, or those of one key. Twin of `lua/lib/state/scope.lua`. */
export interface Scope {
  /** The latest slot that was booked; later ones never come before it. */
  lastUs: number;
  coolUntilUs: number;
  pausedUntilUs: number;
  /** When the rate was cut last: answers to calls before it cut no more. */
  cutUs: number;
  /** The rate was at `factor` per mille at `sinceUs`, and grows by 1,000 in each `recoverUs`. */
  factor: number;
  sinceUs: number;
  recoverUs: number;
  /** Calls keep this distance until then. */
  gapUs: number;
  gapUntilUs: number;
  /** No turn is later, and no turn of another rank than normal, or of a costly call, is later than `unevenUntilUs`. */
  turnsUntilUs: number;
  unevenUntilUs: number;
  /** "rank step asker" to the µs of its next turn. */
  turns: Map<string, number>;
  records: LimitRecord[];
  /** What limits that are not in force any more have left, by their place and kind. */
  readonly kept: Map<string, unknown>;
}

export function freshScope(): Scope {
  return {
    lastUs: 0,
    coolUntilUs: 0,
    pausedUntilUs: 0,
    cutUs: 0,
    factor: 1_000,
    sinceUs: 0,
    recoverUs: 0,
    gapUs: 0,
    gapUntilUs: 0,
    turnsUntilUs: 0,
    unevenUntilUs: 0,
    turns: new Map(),
    records: [],
    kept: new Map(),
  };
}

/** Puts limits in force; what was booked under the same kind of limit before stays booked. */
export function applyLimits(scope: Scope, limits: readonly Limit[], nowUs: number): void {
  scope.records = limits.map((limit, index) => {
    const rule = ruleOf(limit.kind);
    const found = scope.records[index];
    const name = keptName(limits, index);
    if (rule.isKept === true) {
      const state = scope.kept.get(name) ?? rule.fresh();
      scope.kept.set(name, state);
      return { limit, state };
    }
    if (found?.limit.kind !== limit.kind) return { limit, state: rule.fresh() };
    if (!isSameLimit(found.limit, limit)) rule.adapt?.(found.limit, limit, found.state, nowUs);
    return { limit, state: found.state };
  });
}

/** Whether these limits are in force. */
export function hasLimits({ records }: Scope, limits: readonly Limit[]): boolean {
  const isSame = ({ limit }: LimitRecord, index: number): boolean =>
    limit.kind === limits[index]?.kind && isSameLimit(limit, limits[index]);
  return records.length === limits.length && records.every(isSame);
}

/** What a limit keeps is found by how many of its kind stand before it, as in Redis. */
export function keptName(limits: readonly Limit[], index: number): string {
  return `${limits[index]!.kind} ${ordinalOf(limits, index)}`;
}

/** What such a call takes of the downstream, in µs: by the limit that it takes the most of. */
export function stepOf(limits: readonly Limit[], costs: readonly number[]): number {
  let stepUs = 0;
  for (const [index, { kind, count, periodUs }] of limits.entries()) {
    if (ruleOf(kind).isRate) stepUs = Math.max(stepUs, (costs[index]! * periodUs) / count);
  }
  return stepUs;
}

/** With no limit of its own on how many, an asker still gets no more than that of a horizon. */
const MOST_ROOM = 1_000_000;

/** How many such calls a horizon and the bursts have room for. */
export function roomOf(
  limits: readonly Limit[],
  costs: readonly number[],
  horizonUs: number,
): number {
  let room = MOST_ROOM;
  for (const [index, { kind, count, periodUs, capacity }] of limits.entries()) {
    const cost = costs[index]!;
    const isRate = ruleOf(kind).isRate;
    if (!isRate) room = Math.min(room, capacity);
    else if (cost > 0)
      room = Math.min(room, capacity / cost + (horizonUs * count) / (cost * periodUs));
  }
  return Math.floor(room);
}

/** The earliest time, at or after `atUs`, on which all limits of a scope agree; Infinity if nobody can tell. */
export function agreeUs(
  scope: Scope,
  atUs: number,
  costs: readonly number[],
  drawer: Drawer,
): number {
  let slotUs = atUs;
  for (;;) {
    const beforeUs = slotUs;
    let canShift = false;
    for (const [index, { limit, state }] of scope.records.entries()) {
      const rule = ruleOf(limit.kind);
      slotUs = rule.earliest(limit, state, slotUs, costs[index]!, drawer);
      if (slotUs === Infinity) return Infinity;
      canShift ||= rule.doesShift === true;
    }
    // What let a time pass lets a later one pass, unless it is another window's by then.
    if (slotUs === beforeUs || !canShift) return slotUs;
  }
}

/** The number, from 1 on, of the limit that holds such a call back the longest. */
export function bindingOf(
  scope: Scope,
  atUs: number,
  costs: readonly number[],
  drawer: Drawer,
): number {
  let binding = 0;
  let latestUs = atUs;
  for (const [index, { limit, state }] of scope.records.entries()) {
    const slotUs = ruleOf(limit.kind).earliest(limit, state, atUs, costs[index]!, drawer);
    if (slotUs > latestUs) [binding, latestUs] = [index + 1, slotUs];
  }
  return binding;
}

export function commitAll(
  scope: Scope,
  slotUs: number,
  costs: readonly number[],
  drawer: Drawer,
): void {
  for (const [index, { limit, state }] of scope.records.entries()) {
    ruleOf(limit.kind).commit(limit, state, slotUs, costs[index]!, drawer);
  }
  scope.lastUs = Math.max(scope.lastUs, slotUs);
}

/** When nothing of a scope matters any more: all has drained, and every pause is over. */
export function drainedAtUs(scope: Scope, nowUs: number): number {
  const { coolUntilUs, pausedUntilUs, gapUntilUs, sinceUs, recoverUs } = scope;
  const drawer = nobodyAt(nowUs);
  const drained = scope.records.map(({ limit, state }) => {
    const rule = ruleOf(limit.kind);
    return rule.isRate ? rule.earliest(limit, state, nowUs, limit.capacity, drawer) : nowUs;
  });
  return Math.max(coolUntilUs, pausedUntilUs, gapUntilUs, sinceUs + recoverUs, ...drained);
}

/** Whether no call under these limits holds a lease. */
export function isAllRate({ records }: Scope): boolean {
  return records.every(({ limit }) => ruleOf(limit.kind).isRate);
}

function isSameLimit(a: Limit, b: Limit): boolean {
  return a.count === b.count && a.periodUs === b.periodUs && a.capacity === b.capacity;
}

/** The earliest time at which a scope lets anything start. Twin of `opens_at_us` in `lua/lib/state/scope.lua`, as are those below. */
export function opensAtUs(scope: Scope, nowUs: number, stepUs: number): number {
  const { lastUs, coolUntilUs, pausedUntilUs, sinceUs, recoverUs, gapUs, gapUntilUs } = scope;
  const atUs = Math.max(nowUs, coolUntilUs);
  const factor = factorAt(scope, atUs);
  const cutGapUs = factor < 1_000 ? Math.ceil((stepUs * 1_000) / factor) : 0;
  // No gap outlasts what it is kept for: the limits themselves space calls after that.
  const afterCutUs = Math.min(lastUs + cutGapUs, sinceUs + recoverUs);
  const afterGapUs = atUs < gapUntilUs ? Math.min(lastUs + gapUs, gapUntilUs) : 0;
  return Math.max(atUs, pausedUntilUs, lastUs, afterCutUs, afterGapUs);
}

/** Whether calls keep a distance beyond that of their limits: the rate is cut, or spaced out. */
export function keepsGap(scope: Scope, atUs: number): boolean {
  return atUs < scope.gapUntilUs || factorAt(scope, atUs) < 1_000;
}

/** Per mille of the rate that is in force. */
export function factorAt({ factor, sinceUs, recoverUs }: Scope, atUs: number): number {
  if (factor >= 1_000 || atUs >= sinceUs + recoverUs) return 1_000;
  const grown = Math.floor((Math.max(0, atUs - sinceUs) * 1_000) / recoverUs);
  return Math.min(1_000, factor + grown);
}

/** When the whole rate is in force again; 0 if it has not been cut. */
export function wholeAtUs({ factor, sinceUs, recoverUs }: Scope): number {
  return factor >= 1_000 ? 0 : sinceUs + Math.ceil(((1_000 - factor) * recoverUs) / 1_000);
}

/** How each limit of a scope stands. Twin of `lua/lib/state/standing.lua`. */
export function standingsOf(scope: Scope, costs: readonly number[], nowUs: number): Standing[] {
  const drawer = nobodyAt(nowUs);
  return scope.records.map(({ limit, state }, index) => {
    const rule = ruleOf(limit.kind);
    const earliest = (cost: number): number => rule.earliest(limit, state, nowUs, cost, drawer);
    const remaining = remainingOf(limit, state, nowUs);
    return { remaining, resetUs: earliest(limit.capacity), nextUs: earliest(costs[index]!) };
  });
}

/** How much a limit would let pass at once, found by asking. */
export function remainingOf(limit: Limit, state: unknown, nowUs: number): number {
  const rule = ruleOf(limit.kind);
  const drawer = nobodyAt(nowUs);
  let remaining = 0;
  let tooMany = limit.capacity + 1;
  while (tooMany - remaining > 1) {
    const middle = Math.floor((remaining + tooMany) / 2);
    if (rule.earliest(limit, state, nowUs, middle, drawer) <= nowUs) remaining = middle;
    else tooMany = middle;
  }
  return remaining;
}
