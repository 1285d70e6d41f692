import { formatRate } from "./rate.ts";
import type { Limit, LimitStatus, Rule } from "./rule.ts";

interface State {
  /** When the bucket will have drained, in whole µs … */
  emptyUs: number;
  /** … and the fraction of a µs beyond, in 1/count µs, so that no rounding adds up. */
  rest: number;
  /** Since when it has not been empty; what was booked before has drained and cannot be taken back. */
  busySinceUs: number;
}

/**
 * Leaky bucket by virtual scheduling (ITU-T I.371): the theoretical arrival
 * time, kept as a whole number and an exact fraction.
 * Twin of `lua/lib/limits/leaky-bucket.lua`.
 */
export const leakyBucket: Rule<State> = {
  kind: "leaky-bucket",
  code: 1,
  capacityName: "burst",
  isRate: true,
  doesDrain: true,
  doesSpace: true,
  format: (limit) =>
    limit.capacity === 1
      ? formatRate(limit)
      : `${formatRate(limit)} with a burst of ${limit.capacity}`,
  fresh: () => ({ emptyUs: 0, rest: 0, busySinceUs: 0 }),
  earliest(limit, state, atUs, cost) {
    const excess = excessAt(limit, state, atUs, cost);
    return excess > 0 ? atUs + Math.ceil(excess / limit.count) : atUs;
  },
  commit({ count, periodUs }, state, atUs, cost) {
    if (cost < 0 && atUs < state.busySinceUs) return;
    // With a fraction left, a slot was rounded up by less than 1 µs; only a longer idle time moves the schedule.
    if (cost > 0 && atUs - state.emptyUs > (state.rest > 0 ? 1 : 0)) {
      state.emptyUs = atUs;
      state.rest = 0;
      state.busySinceUs = atUs;
    }
    const rest = state.rest + cost * periodUs;
    const wholeUs = Math.floor(rest / count);
    state.emptyUs += wholeUs;
    state.rest = rest - wholeUs * count;
  },
  /** The next slot keeps its time; the new rate holds from there on. */
  adapt(from, to, state, nowUs) {
    const level = levelAt(from, state, nowUs);
    const burstLevel = from.capacity * from.periodUs;
    const backlogUs = Math.ceil(Math.max(0, level - burstLevel) / from.count);
    const usedBurst = Math.min(Math.min(level, burstLevel) / from.periodUs, to.capacity);
    const newLevel = Math.ceil(usedBurst * to.periodUs);
    const wholeUs = Math.floor(newLevel / to.count);
    state.emptyUs = nowUs + backlogUs + wholeUs;
    state.rest = newLevel - wholeUs * to.count;
  },
  excess: excessAt,
  plainStatus: statusAtLevel,
};

/** The status of a limit that drains, by its level in cost × period. */
export function statusAtLevel(
  { count, periodUs, capacity }: Limit,
  level: number,
  cost: number,
  nowUs: number,
): LimitStatus {
  const excess = level + (cost - capacity) * periodUs;
  return {
    remaining: Math.max(0, capacity - Math.ceil(level / periodUs)),
    resetUs: nowUs + Math.ceil(level / count),
    nextUs: excess > 0 ? nowUs + Math.ceil(excess / count) : nowUs,
  };
}

function excessAt(limit: Limit, state: State, atUs: number, cost: number): number {
  return levelAt(limit, state, atUs) + (cost - limit.capacity) * limit.periodUs;
}

/** What is booked ahead of a time, in cost × period. */
function levelAt({ count }: Limit, { emptyUs, rest }: State, atUs: number): number {
  return emptyUs < atUs ? 0 : (emptyUs - atUs) * count + rest;
}
