import { formatRate } from "./rate.ts";
import type { Limit, LimitStatus, Rule } from "./rule.ts";

interface LeakyBucketState {
  /** The time at which the bucket will be empty, in whole µs, rounded down. */
  emptyUs: number;
  /** The remaining fraction of a µs, in 1/count µs, so that rounding errors do not add up. */
  rest: number;
  /** The time since which the bucket is not empty. Earlier bookings have drained and cannot be taken back. */
  busySinceUs: number;
}

/**
 * Leaky bucket by virtual scheduling (ITU-T I.371): the theoretical arrival
 * time, kept as a whole number and an exact fraction.
 * Twin of `lua/lib/limits/leaky-bucket.lua`.
 */
export const leakyBucket: Rule<LeakyBucketState> = {
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
    // With a fraction left, a slot was rounded up by less than 1 µs. Only a longer idle time moves the schedule.
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
  /** The next slot keeps its time. The new rate applies after it. */
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

/** The status of a draining limit, from its level in cost × period. */
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

function excessAt(limit: Limit, state: LeakyBucketState, atUs: number, cost: number): number {
  return levelAt(limit, state, atUs) + (cost - limit.capacity) * limit.periodUs;
}

/** The booked work ahead of a time, in cost × period. */
function levelAt({ count }: Limit, { emptyUs, rest }: LeakyBucketState, atUs: number): number {
  return emptyUs < atUs ? 0 : (emptyUs - atUs) * count + rest;
}
