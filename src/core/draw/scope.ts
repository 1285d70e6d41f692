import { countSameKindBefore, ruleOf } from "../limits/registry.ts";
import { noDrawer, type Drawer, type Limit, type LimitStatus } from "../limits/rule.ts";

/** A limit, and what has been booked under it. */
interface LimitRecord {
  limit: Limit;
  readonly state: unknown;
}

/** What one asker needs of a scope: calls that came together. */
export interface Need {
  /** As `orderOf`: the lower one comes first. */
  readonly order: number;
  /** The amounts, under each limit of the scope. */
  readonly amounts: readonly number[];
}

/** What an asker waits for in a scope. */
export interface Turn {
  readonly asker: string;
  /** Since when it waits for this turn: since it first asked, or was served last. */
  readonly sinceUs: number;
  /** When its asker will ask again; if it does not, the turn is missed. */
  readonly dueUs: number;
  /** When the first of its calls may start, as its asker was told. */
  readonly startUs: number;
  /** In their order; one at least. */
  readonly needs: readonly Need[];
}

/**
 * A set of limits and what holds for them together: those that all keys share, or those of one key.
 * Twin of `lua/lib/state/scope.lua`, `lua/lib/state/status.lua` and `apply_limits` in `lua/lib/limits/read-limits.lua`.
 */
export interface Scope {
  /** The latest slot that was booked; no new one comes before it. */
  lastUs: number;
  coolUntilUs: number;
  pausedUntilUs: number;
  /** When the rate was cut last; answers to calls that left before do not cut it again. */
  cutUs: number;
  /** The rate was at `factor` per mille at `sinceUs`, and grows by 1,000 in each `recoverUs`. */
  factor: number;
  sinceUs: number;
  recoverUs: number;
  /** Until `gapUntilUs`, calls keep at least this distance. */
  gapUs: number;
  gapUntilUs: number;
  /** When the last turn is due. */
  turnsUntilUs: number;
  /** The turns of waiting askers, in their order. */
  turns: readonly Turn[];
  records: LimitRecord[];
  /** What limits keep even while they are not in force, by their kind and number. */
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
    turns: [],
    records: [],
    kept: new Map(),
  };
}

/** Puts limits in force. What was booked under a limit of the same kind stays booked. */
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

/** The name of what a limit keeps: its kind, and how many of that kind come before it, as in Redis. */
export function keptName(limits: readonly Limit[], index: number): string {
  return `${limits[index]!.kind} ${countSameKindBefore(limits, index)}`;
}

/** How long such a call occupies the downstream, in µs, by the limit that it uses most of. */
export function stepOf(limits: readonly Limit[], costs: readonly number[]): number {
  let stepUs = 0;
  for (const [index, { kind, count, periodUs }] of limits.entries()) {
    if (ruleOf(kind).isRate) stepUs = Math.max(stepUs, (costs[index]! * periodUs) / count);
  }
  return stepUs;
}

/** The most calls of one horizon, where no limit bounds them. */
const MOST_ROOM = 1_000_000;

/** How many such calls the limits give in a horizon, with bursts or with one call more. */
export function callsIn(
  limits: readonly Limit[],
  costs: readonly number[],
  { horizonUs, hasBursts }: { readonly horizonUs: number; readonly hasBursts: boolean },
): number {
  let calls = MOST_ROOM;
  for (const [index, { kind, count, periodUs, capacity }] of limits.entries()) {
    const cost = costs[index]!;
    if (!ruleOf(kind).isRate) calls = Math.min(calls, capacity);
    else if (cost > 0) {
      const atOnce = hasBursts ? capacity / cost : 1;
      calls = Math.min(calls, atOnce + (horizonUs * count) / (cost * periodUs));
    }
  }
  return Math.floor(calls);
}

/**
 * The earliest time, at or after `atUs`, on which all limits of a scope agree; Infinity if it is unknown.
 * A limit that allows one time allows every later one too.
 */
export function earliestForAllUs(
  scope: Scope,
  atUs: number,
  costs: readonly number[],
  drawer: Drawer,
): number {
  let slotUs = atUs;
  for (const [index, { limit, state }] of scope.records.entries()) {
    slotUs = ruleOf(limit.kind).earliest(limit, state, slotUs, costs[index]!, drawer);
    if (slotUs === Infinity) return Infinity;
  }
  return slotUs;
}

/** The number, from 1 on, of the limit that delays such a call most; 0 if none does. */
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

/** From when on a scope holds nothing back: all has drained, and cooldown, pause and gap are over. */
export function drainedAtUs(scope: Scope, nowUs: number): number {
  const { coolUntilUs, pausedUntilUs, gapUntilUs, sinceUs, recoverUs } = scope;
  const drawer = noDrawer(nowUs);
  const drained = scope.records.map(({ limit, state }) => {
    const rule = ruleOf(limit.kind);
    return rule.isRate ? rule.earliest(limit, state, nowUs, limit.capacity, drawer) : nowUs;
  });
  return Math.max(coolUntilUs, pausedUntilUs, gapUntilUs, sinceUs + recoverUs, ...drained);
}

/** Whether any of the limits counts units per time. */
export function hasRates({ records }: Scope): boolean {
  return records.some(({ limit }) => ruleOf(limit.kind).isRate);
}

/** Whether no call under these limits holds a lease. */
export function areAllRates({ records }: Scope): boolean {
  return records.every(({ limit }) => ruleOf(limit.kind).isRate);
}

function isSameLimit(a: Limit, b: Limit): boolean {
  return a.count === b.count && a.periodUs === b.periodUs && a.capacity === b.capacity;
}

/** The earliest time at which a scope lets anything start. */
export function opensAtUs(scope: Scope, nowUs: number, stepUs: number): number {
  const { lastUs, coolUntilUs, pausedUntilUs, gapUs, gapUntilUs } = scope;
  const atUs = Math.max(nowUs, coolUntilUs);
  // A gap ends with its cause; after that, the limits alone space calls.
  const afterGapUs = atUs < gapUntilUs ? Math.min(lastUs + gapUs, gapUntilUs) : 0;
  return Math.max(atUs, pausedUntilUs, lastUs, afterCutUs(scope, atUs, stepUs), afterGapUs);
}

/** When a cut rate lets the next call start, if it is as it will be at `atUs`. */
function afterCutUs(scope: Scope, atUs: number, stepUs: number): number {
  const { lastUs, sinceUs, recoverUs } = scope;
  const factor = factorAt(scope, atUs);
  const gapUs = factor < 1_000 ? Math.ceil((stepUs * 1_000) / factor) : 0;
  return Math.min(lastUs + gapUs, sinceUs + recoverUs);
}

/**
 * Before when a scope surely lets nothing start. A cut rate grows back while a call waits: it is taken for what it will
 * have grown to by the time that the call would have to wait for if it did not grow. The next answer may end a gap.
 */
export function leastOpensAtUs(scope: Scope, nowUs: number, stepUs: number): number {
  const latestUs = opensAtUs(scope, nowUs, stepUs);
  return Math.max(nowUs, scope.lastUs, afterCutUs(scope, latestUs, stepUs));
}

/** Whether calls keep more distance than their limits ask for: the rate is cut, or headers ask for it. */
export function keepsGap(scope: Scope, atUs: number): boolean {
  return atUs < scope.gapUntilUs || factorAt(scope, atUs) < 1_000;
}

/** How much of the rate is in force, per mille. */
export function factorAt({ factor, sinceUs, recoverUs }: Scope, atUs: number): number {
  if (factor >= 1_000 || atUs >= sinceUs + recoverUs) return 1_000;
  const grown = Math.floor((Math.max(0, atUs - sinceUs) * 1_000) / recoverUs);
  return Math.min(1_000, factor + grown);
}

/** When the whole rate is in force again; 0 if it has not been cut. */
export function wholeAtUs({ factor, sinceUs, recoverUs }: Scope): number {
  return factor >= 1_000 ? 0 : sinceUs + Math.ceil(((1_000 - factor) * recoverUs) / 1_000);
}

/** Adds each limit of a scope as it is now: what is left, and when there is more. Twin of `lua/lib/state/status.lua`. */
export function addStatuses(
  into: LimitStatus[],
  scope: Scope,
  costs: readonly number[],
  nowUs: number,
): void {
  const drawer = noDrawer(nowUs);
  for (const [index, { limit, state }] of scope.records.entries()) {
    const rule = ruleOf(limit.kind);
    into.push({
      remaining: remainingOf(limit, state, nowUs),
      resetUs: rule.earliest(limit, state, nowUs, limit.capacity, drawer),
      nextUs: rule.earliest(limit, state, nowUs, costs[index]!, drawer),
    });
  }
}

/** How much a limit would let pass at once, found by halving. */
export function remainingOf(limit: Limit, state: unknown, nowUs: number): number {
  const rule = ruleOf(limit.kind);
  const drawer = noDrawer(nowUs);
  let remaining = 0;
  let tooMany = limit.capacity + 1;
  while (tooMany - remaining > 1) {
    const middle = Math.floor((remaining + tooMany) / 2);
    if (rule.earliest(limit, state, nowUs, middle, drawer) <= nowUs) remaining = middle;
    else tooMany = middle;
  }
  return remaining;
}
