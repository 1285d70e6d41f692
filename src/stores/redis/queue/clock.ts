/**
 * Estimates the clock of a Redis server. Redis writes its time into a reply after this process sent
 * the request, and before the reply arrives. So each reply limits the possible difference between
 * the server's clock and this process's monotonic clock. Together, the replies are as precise as
 * the fastest round trip. The wall clock of this process is not used, because it may be wrong or
 * jump.
 */

/**
 * The clock of the server that stores a queue. It learns the time from replies to other requests.
 * If necessary, it sends its own request, at most every ten seconds and never one per job.
 */
export interface RedisClock {
  /**
   * Returns undefined if the times below are usable now. Otherwise returns a promise that resolves
   * once they are, and rejects if the request fails.
   */
  ready(): Promise<void> | undefined;
  /** A lower bound of the server's current time, in whole ms since 1970. */
  earliestMs(): number;
  /** An upper bound of the server's current time, in whole ms since 1970. */
  latestMs(): number;
}

/** One reply with the server's time, and when its request was sent and the reply arrived. */
interface ClockSample {
  /** On `performance.now()`. */
  readonly sentMs: number;
  readonly arrivedMs: number;
  /** Lower and upper bounds of the server's time when it replied, in ms since 1970. */
  readonly fromMs: number;
  readonly toMs: number;
}

export interface SampledClock extends RedisClock {
  /** Learns from a reply that contains the server's time. */
  sample(sample: ClockSample): void;
  /**
   * Call this when the connection may reach another server from now on. Requests that were sent
   * before are then less trusted, because they may have waited for the connection.
   */
  distrust(): void;
}

/** An estimate older than this is refreshed in the background on its next use. After `STALE_MS`, the next use waits. */
const AGED_MS = 10_000;
const STALE_MS = 60_000;
/**
 * If the bounds after the first reply differ by more than this, the clock sends a second request.
 */
const WIDE_MS = 5;
/**
 * The maximum assumed difference in speed between the two clocks: 1 ms per second. It occurs while
 * one of the clocks is being corrected.
 */
const MOST_DRIFT = 1 / 1_000;
/** If the wall clock and the monotonic clock drift apart by more than this, the machine may have been asleep. */
const MOST_APART_MS = 1_000;

/** Bounds of the difference between the server's clock and `performance.now()`, in ms. */
interface Known {
  readonly leastMs: number;
  readonly mostMs: number;
  /** When the bounds were learned, on `performance.now()`. */
  readonly atMs: number;
  /** How far this process's wall clock was ahead of `performance.now()` at that time. */
  readonly wallAheadMs: number;
}

/** `wallMs` is the wall clock of this process. A jump of it makes the clock ask again. */
export function createClock(
  askUs: () => Promise<number>,
  wallMs: () => number = Date.now,
): SampledClock {
  let known: Known | undefined;
  /**
   * `isDoubted` is true if the connection may now reach another server. `doubtedAtMs` is the time
   * when this became possible, on `performance.now()`.
   */
  let isDoubted = false;
  let doubtedAtMs = -Infinity;
  let asking: Promise<void> | undefined;

  function sample({ sentMs, arrivedMs, fromMs, toMs }: ClockSample): void {
    // A request that was sent before the reconnect may have waited for the connection, so its send
    // time is not a precise bound.
    const isOld = sentMs < doubtedAtMs;
    if (isOld && known !== undefined) return;
    const seen = { leastMs: fromMs - arrivedMs, mostMs: toMs - sentMs };
    const wallAheadMs = wallMs() - performance.now();
    const both = known === undefined || isDoubted ? seen : narrowed(known, seen, arrivedMs);
    known = { ...both, atMs: arrivedMs, wallAheadMs };
    isDoubted &&= isOld;
  }

  function ask(): Promise<void> {
    asking ??= askOnce().finally(() => void (asking = undefined));
    return asking;
  }

  async function askOnce(): Promise<void> {
    const sentMs = performance.now();
    const ms = (await askUs()) / 1_000;
    sample({ sentMs, arrivedMs: performance.now(), fromMs: ms, toMs: ms });
  }

  function ageMs(): number {
    if (known === undefined || isDoubted) return Infinity;
    const { atMs, wallAheadMs } = known;
    const nowMs = performance.now();
    const isApart = Math.abs(wallMs() - nowMs - wallAheadMs) > MOST_APART_MS;
    return isApart ? Infinity : nowMs - atMs;
  }

  async function untilKnown(): Promise<void> {
    while (ageMs() >= STALE_MS) await ask();
    // The bounds can be wide if this process was busy starting up when the reply arrived.
    if (known !== undefined && known.mostMs - known.leastMs > WIDE_MS) await ask();
  }

  return {
    sample,
    distrust() {
      isDoubted = true;
      doubtedAtMs = performance.now();
    },
    ready() {
      const age = ageMs();
      if (age >= STALE_MS) return untilKnown();
      // Refreshes in the background, and ignores errors. While Redis is unreachable, the next
      // caller that must wait sends the request again.
      if (age >= AGED_MS) ask().catch(() => undefined);
      return undefined;
    },
    earliestMs: () =>
      Math.floor(known === undefined ? Date.now() : performance.now() + known.leastMs),
    latestMs: () => Math.ceil(known === undefined ? Date.now() : performance.now() + known.mostMs),
  };
}

type Bounds = Pick<Known, "leastMs" | "mostMs">;

/** Combines old and new bounds. If they exclude each other, the server's clock has jumped, and only the new ones count. */
function narrowed(known: Known, seen: Bounds, nowMs: number): Bounds {
  const driftMs = (nowMs - known.atMs) * MOST_DRIFT;
  const leastMs = Math.max(known.leastMs - driftMs, seen.leastMs);
  const mostMs = Math.min(known.mostMs + driftMs, seen.mostMs);
  return leastMs <= mostMs ? { leastMs, mostMs } : seen;
}
