/** Jobs of one key that wait, as a fluid that drains. */
export interface LaneLoad {
  readonly jobs: number;
  readonly weight: number;
  /** How many may start in a ms by the key's own limits. */
  readonly mostPerMs: number;
  /** From when on they may start, in ms from now. */
  readonly fromMs: number;
}

/** When a backlog drains. All times are in ms from now; Infinity: it never does. */
export interface Drain {
  /** When all has started. */
  readonly goneMs: number;
  /** When the job starts that has so many before it in its lane. */
  readonly startMs: (lane: number, before: number) => number;
}

/** From `fromMs` on, a lane that had `served` jobs drains at `perMs`. */
interface Stretch {
  readonly fromMs: number;
  readonly served: number;
  readonly perMs: number;
}

/** Shares of a job this small are none: a fluid's numbers are not exact. */
const NEGLIGIBLE = 1e-6;

/**
 * Drains lanes side by side at `perMs` in all: each by its weight, but none
 * faster than its key may; what one leaves, the others share. That is what fair
 * queueing comes to once there are more than a few jobs (generalized processor
 * sharing; Parekh and Gallager, 1993).
 */
export function drain(lanes: readonly LaneLoad[], perMs: number): Drain {
  const left = lanes.map(({ jobs }) => jobs);
  const stretches: Stretch[][] = lanes.map(() => []);
  let nowMs = 0;

  for (;;) {
    const open = lanes.flatMap((_lane, index) => (left[index]! > NEGLIGIBLE ? [index] : []));
    if (open.length === 0) break;
    const ready = open.filter((index) => lanes[index]!.fromMs <= nowMs);
    const rates = ratesOf(ready, lanes, perMs);
    let forMs = Infinity;
    for (const index of open) {
      const { jobs, fromMs } = lanes[index]!;
      const rate = rates.get(index) ?? 0;
      if (fromMs > nowMs) forMs = Math.min(forMs, fromMs - nowMs);
      else if (rate > 0) forMs = Math.min(forMs, left[index]! / rate);
      if (rate > 0)
        stretches[index]!.push({ fromMs: nowMs, served: jobs - left[index]!, perMs: rate });
    }
    if (forMs === Infinity) return { goneMs: Infinity, startMs };
    for (const [index, rate] of rates) left[index]! -= rate * forMs;
    nowMs += forMs;
  }

  function startMs(lane: number, before: number): number {
    const stretch = stretches[lane]?.findLast(({ served }) => served <= before + NEGLIGIBLE);
    return stretch === undefined
      ? Infinity
      : stretch.fromMs + (before - stretch.served) / stretch.perMs;
  }
  return { goneMs: nowMs, startMs };
}

/** Who needs less than its share by weight gets what it needs; the rest is shared by the others. */
function ratesOf(
  ready: readonly number[],
  lanes: readonly LaneLoad[],
  perMs: number,
): ReadonlyMap<number, number> {
  const rates = new Map<number, number>();
  const byNeed = ready.toSorted(
    (a, b) => lanes[a]!.mostPerMs / lanes[a]!.weight - lanes[b]!.mostPerMs / lanes[b]!.weight,
  );
  let weights = byNeed.reduce((sum, index) => sum + lanes[index]!.weight, 0);
  let rest = perMs;
  for (const index of byNeed) {
    const { weight, mostPerMs } = lanes[index]!;
    const share = rest === Infinity ? Infinity : (rest * weight) / weights;
    const rate = Math.min(mostPerMs, share);
    rates.set(index, rate);
    weights -= weight;
    rest -= rate;
  }
  return rates;
}
