import type { GeneratedArrivals } from "./arrivals.ts";

/** The history of a bucket, as `bucket.history()` returns it. */
export interface SimulatedHistory {
  /** The length of a step, in ms. */
  readonly stepMs: number;
  /** The steps, the oldest first. */
  readonly points: readonly {
    readonly atMs: number;
    /** The number of calls that started in the step. */
    readonly started: number;
    /** The average number of pending calls in the step, by priority. */
    readonly waiting?: Readonly<Record<string, number | undefined>> | undefined;
  }[];
}

/**
 * Describes the arrivals of a history. A history counts starts, so the calls that arrived in a step are those that
 * started and those that joined the line. It knows no keys, costs or priorities.
 */
export function arrivalsOfHistory({ stepMs, points }: SimulatedHistory): GeneratedArrivals[] {
  const [first] = points;
  let waitingBefore = 0;
  let lastMs = -Infinity;
  return points.flatMap(({ atMs, started, waiting = {} }) => {
    const waitingNow = Object.values(waiting).reduce<number>((sum, calls = 0) => sum + calls, 0);
    const before = atMs - lastMs > stepMs ? 0 : waitingBefore;
    waitingBefore = waitingNow;
    lastMs = atMs;
    const calls = Math.max(0, started + waitingNow - before);
    if (calls === 0) return [];
    const ratePerSecond = (calls * 1_000) / stepMs;
    return [{ ratePerSecond, startMs: atMs - first!.atMs, durationMs: stepMs }];
  });
}
