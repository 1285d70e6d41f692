import { periodStarts, type Calendar } from "../../../src/core/limits/calendar-days.ts";
import { windowAt } from "../../../src/core/limits/calendar-windows.ts";
import type { BudgetTerms, Limit } from "../../../src/core/limits/rule.ts";

/**
 * The limits once more, in plain TypeScript, for tests: what one line for all replicas would give. It shares no arithmetic
 * with the scripts.
 */
interface Kind<State> {
  fresh(): State;
  /** The earliest time, at or after `atUs`, at which this cost may pass. */
  earliest(limit: Limit, state: State, atUs: number, cost: number): number;
  /** Books the cost at a time that `earliest` allowed. */
  commit(limit: Limit, state: State, atUs: number, cost: number): void;
}

/** A set of limits that share a last slot. */
export interface ReferenceScope {
  lastUs: number;
  readonly records: readonly { readonly limit: Limit; readonly state: unknown }[];
}

export function referenceScope(limits: readonly Limit[]): ReferenceScope {
  return {
    lastUs: 0,
    records: limits.map((limit) => ({ limit, state: KINDS[limit.kind]!.fresh() })),
  };
}

/** The earliest time, at or after `atUs`, on which all limits of a scope agree. */
export function earliestForAllUs(
  { records }: ReferenceScope,
  atUs: number,
  costs: readonly number[],
): number {
  let slotUs = atUs;
  for (const [index, { limit, state }] of records.entries()) {
    slotUs = KINDS[limit.kind]!.earliest(limit, state, slotUs, costs[index]!);
  }
  return slotUs;
}

export function commitAll(scope: ReferenceScope, slotUs: number, costs: readonly number[]): void {
  for (const [index, { limit, state }] of scope.records.entries()) {
    KINDS[limit.kind]!.commit(limit, state, slotUs, costs[index]!);
  }
  scope.lastUs = Math.max(scope.lastUs, slotUs);
}

/** Level in cost × period, with the µs at which it was so: the fluid form, where the scripts keep an arrival time. */
interface Level {
  level: number;
  atUs: number;
}

const fluid: Kind<Level> = {
  fresh: () => ({ level: 0, atUs: 0 }),
  earliest({ count, periodUs, capacity }, state, atUs, cost) {
    const excess = levelAt(state, count, atUs) + (cost - capacity) * periodUs;
    return excess > 0 ? atUs + Math.ceil(excess / count) : atUs;
  },
  commit({ count, periodUs }, state, atUs, cost) {
    state.level = levelAt(state, count, atUs) + cost * periodUs;
    state.atUs = Math.max(state.atUs, atUs);
  },
};

/** What has not drained by a time; below 0 it would be room that was not used. */
function levelAt({ level, atUs }: Level, count: number, whenUs: number): number {
  const elapsedUs = whenUs - atUs;
  return elapsedUs >= level / count ? 0 : level - elapsedUs * count;
}

/** All bookings, with no bound. */
const log: Kind<{ readonly atUs: number; readonly cost: number }[]> = {
  fresh: () => [],
  earliest({ capacity, periodUs }, entries, atUs, cost) {
    let used = cost;
    for (const entry of entries.toReversed()) {
      used += entry.cost;
      if (used > capacity) return Math.max(atUs, entry.atUs + periodUs);
    }
    return atUs;
  },
  commit: (_limit, entries, atUs, cost) => void entries.push({ atUs, cost }),
};

interface Windows {
  readonly used: Map<number, number>;
}

const slidingWindow: Kind<Windows> = {
  fresh: () => ({ used: new Map() }),
  earliest({ capacity, periodUs }, { used }, atUs, cost) {
    for (let window = Math.floor(atUs / periodUs); ; window++) {
      const room = capacity - cost - (used.get(window) ?? 0);
      const before = used.get(window - 1) ?? 0;
      const part = before <= room ? 0 : Math.ceil(periodUs - (room * periodUs) / before);
      if (room >= 0 && part < periodUs) return Math.max(atUs, window * periodUs + part);
    }
  },
  commit: ({ periodUs }, { used }, atUs, cost) => add(used, Math.floor(atUs / periodUs), cost),
};

const fixedWindow: Kind<Windows> = {
  fresh: () => ({ used: new Map() }),
  earliest(limit, { used }, atUs, cost) {
    for (
      let { startUs, endUs } = windowAt(limit, atUs);
      ;
      { startUs, endUs } = windowAt(limit, endUs)
    ) {
      if ((used.get(startUs) ?? 0) + cost <= limit.capacity) return Math.max(atUs, startUs);
    }
  },
  commit: (limit, { used }, atUs, cost) => add(used, windowAt(limit, atUs).startUs, cost),
};

const ofBudget: Kind<{ readonly spent: Map<number, number> }> = {
  fresh: () => ({ spent: new Map() }),
  earliest({ count, budget }, { spent }, atUs, cost) {
    const [startUs, ...later] = periodStarts(atUs, calendarOf(budget!), 3);
    const ends = [startUs!, ...later];
    const fits = ends.find((endUs) => (spent.get(endUs) ?? 0) + cost <= count);
    return Math.max(atUs, fits ?? Infinity);
  },
  commit({ budget }, { spent }, atUs, cost) {
    add(spent, periodStarts(atUs, calendarOf(budget!), 1)[0]!, cost);
  },
};

function calendarOf({ per, timeZone, weekStart }: BudgetTerms): Calendar {
  return { per: per as Calendar["per"], timeZone, weekStart };
}

function add(used: Map<number, number>, window: number, cost: number): void {
  used.set(window, (used.get(window) ?? 0) + cost);
}

const KINDS: Readonly<Record<string, Kind<unknown>>> = Object.fromEntries(
  Object.entries({
    "leaky-bucket": fluid,
    "token-bucket": fluid,
    "sliding-log": log,
    "sliding-window": slidingWindow,
    "fixed-window": fixedWindow,
    budget: ofBudget,
  }).map(([kind, rule]) => [kind, rule as Kind<unknown>]),
);
