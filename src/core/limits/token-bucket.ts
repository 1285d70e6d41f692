import { statusAtLevel } from "./leaky-bucket.ts";
import { formatRate } from "./rate.ts";
import type { Limit, Rule } from "./rule.ts";

interface TokenBucketState {
  /** The missing amount of a full bucket, in tokens × period. 0 is full. */
  lacking: number;
  /** The time for which `lacking` holds. */
  atUs: number;
  /** The time since which the bucket is not full. Earlier costs have come back and cannot be taken back. */
  busySinceUs: number;
}

/**
 * Token bucket: `count` tokens come back per period, up to `capacity`. A full bucket may be spent at once. Twin of
 * `lua/lib/limits/token-bucket.lua`.
 */
export const tokenBucket: Rule<TokenBucketState> = {
  kind: "token-bucket",
  code: 2,
  capacityName: "capacity",
  isRate: true,
  doesDrain: true,
  format: (limit) => `up to ${limit.capacity}, refilled at ${formatRate(limit)}`,
  fresh: () => ({ lacking: 0, atUs: 0, busySinceUs: 0 }),
  earliest(limit, state, atUs, cost) {
    const debt = lackingAt(limit, state, atUs) + (cost - limit.capacity) * limit.periodUs;
    return debt > 0 ? atUs + Math.ceil(debt / limit.count) : atUs;
  },
  commit(limit, state, atUs, cost) {
    if (cost < 0 && atUs < state.busySinceUs) return;
    const isLater = atUs > state.atUs;
    const lacking = isLater ? lackingAt(limit, state, atUs) : state.lacking;
    if (isLater && lacking === 0) state.busySinceUs = atUs;
    state.lacking = Math.max(0, lacking + cost * limit.periodUs);
    if (isLater) state.atUs = atUs;
  },
  /** Spent tokens stay spent. */
  adapt(from, to, state, nowUs) {
    const at = Math.max(nowUs, state.atUs);
    const spent = lackingAt(from, state, at) / from.periodUs;
    state.lacking = Math.ceil(Math.min(spent, to.capacity) * to.periodUs);
    state.atUs = at;
  },
  plainStatus: statusAtLevel,
};

function lackingAt({ count }: Limit, { lacking, atUs }: TokenBucketState, whenUs: number): number {
  // Negative after a later booking was given back. Tokens that come back until then are still missing.
  const elapsedUs = whenUs - atUs;
  // Divides first, because count × elapsed could exceed 2^53 after a long idle time.
  return elapsedUs >= lacking / count ? 0 : lacking - count * elapsedUs;
}
