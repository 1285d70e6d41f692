/**
 * A leaky bucket by the textbook (GCRA in its reserve form), in exact
 * fractions: all times are µs × count, as BigInt, so that nothing is rounded
 * before the answer.
 */
export interface ReferenceBucket {
  /** The slot of one call, in µs, rounded up; it is booked. */
  readonly reserve: (nowUs: number, cost: number) => number;
}

export function createReferenceBucket(limit: {
  count: number;
  periodUs: number;
  capacity: number;
}): ReferenceBucket {
  const count = BigInt(limit.count);
  const interval = BigInt(limit.periodUs);
  const burst = BigInt(limit.capacity);
  let arrival = 0n;

  return {
    reserve(nowUs, cost) {
      const now = BigInt(nowUs) * count;
      const earliest = arrival - (burst - BigInt(cost)) * interval;
      const slot = earliest > now ? earliest : now;
      arrival = (arrival > now ? arrival : now) + BigInt(cost) * interval;
      return Number((slot + count - 1n) / count);
    },
  };
}
