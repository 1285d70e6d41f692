/**
 * Leaky bucket by virtual scheduling (ITU-T I.371): the level says how much
 * work is booked ahead, in cost × period, so that no rounding adds up.
 * Twin of `lua/lib/leaky-bucket.lua`; the conformance suite runs both.
 */
export interface LeakyBucket {
  /** Units of cost that leave per period. */
  readonly count: number;
  readonly periodUs: number;
  /** Units that may leave at once after an idle time; 1 spaces all calls evenly. */
  readonly burst: number;
}

/** The level after `elapsedUs` in which nothing was booked. */
export function leak(limit: LeakyBucket, level: number, elapsedUs: number): number {
  // The division comes first: count × elapsed could pass 2^53 after a long idle time.
  return elapsedUs >= level / limit.count ? 0 : level - limit.count * elapsedUs;
}

/** What has to leak before a call of this cost may start; at or below 0 it may start now. */
export function excessOf(limit: LeakyBucket, level: number, cost: number): number {
  return level + (cost - limit.burst) * limit.periodUs;
}

/** Whole µs until an excess has leaked, rounded up so that no call is early. */
export function drainUs(limit: LeakyBucket, excess: number): number {
  return excess > 0 ? Math.ceil(excess / limit.count) : 0;
}

/** How many calls of this cost, one behind the other, find a slot within the horizon. */
export function fitWithin(
  limit: LeakyBucket,
  { excess, cost, horizonUs }: { excess: number; cost: number; horizonUs: number },
): number {
  const room = horizonUs * limit.count - excess;
  return room < 0 ? 0 : Math.floor(room / (cost * limit.periodUs)) + 1;
}

/**
 * The level under a new limit that keeps what was booked: the next slot stays
 * where it was, and from there on the new rate holds.
 */
export function convertLevel(from: LeakyBucket, to: LeakyBucket, level: number): number {
  const burstLevel = from.burst * from.periodUs;
  const backlogUs = drainUs(from, level - burstLevel);
  const usedBurst = Math.min(Math.min(level, burstLevel) / from.periodUs, to.burst);
  return Math.ceil(usedBurst * to.periodUs) + backlogUs * to.count;
}
