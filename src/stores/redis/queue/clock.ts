/**
 * The clock of a Redis server, as far as this process can know it. Each answer that has the server's time bounds how far
 * the server's clock is ahead of this process's monotonic one: it was written after the question was sent, and before
 * the answer came. The bounds of all answers together are as near as the quickest round trip. This process's wall clock
 * may be wrong, or step: it is not used.
 */

/**
 * The clock of the server that holds a queue. It never takes a command for each job: what it does not learn from
 * other answers, it asks every ten seconds at most.
 */
export interface RedisClock {
  /** Undefined if the times below are right; else what to wait for until they are. Rejects as the connection does. */
  ready(): Promise<void> | undefined;
  /** Now, in whole ms since 1970; not after the server's own time. */
  earliestMs(): number;
  /** Now, in whole ms since 1970; not before the server's own time. */
  latestMs(): number;
}

/** What an answer of the server says: that it was this time there, at some moment between these two. */
interface ClockSample {
  /** On `performance.now()`. */
  readonly sentMs: number;
  readonly arrivedMs: number;
  /** In ms since 1970: the time there lay between these two. */
  readonly fromMs: number;
  readonly toMs: number;
}

export interface SampledClock extends RedisClock {
  /** Takes in an answer that had the server's time. */
  sample(sample: ClockSample): void;
  /** There may be another server from now on; and what was asked before may be sent only now. */
  distrust(): void;
}

/** Older knowledge is made new beside its next use; from `STALE_MS` on, the next use waits for it. */
const AGED_MS = 10_000;
const STALE_MS = 60_000;
/** What is known no better by the first answer, it is asked again. */
const WIDE_MS = 5;
/** How much faster or slower one of the two clocks may run than the other, while one is being corrected: 1 ms in a second. */
const MOST_DRIFT = 1 / 1_000;
/** If wall clock and monotonic clock have moved apart by more, this machine may have slept, and its monotonic clock too. */
const MOST_APART_MS = 1_000;

/** What is known of the server's clock: how many ms it is ahead of `performance.now()`. */
interface Known {
  readonly leastMs: number;
  readonly mostMs: number;
  /** Since when, on `performance.now()`. */
  readonly atMs: number;
  /** How far this process's wall clock was ahead then. */
  readonly wallAheadMs: number;
}

export function createClock(askUs: () => Promise<number>): SampledClock {
  let known: Known | undefined;
  /** Whether the server may be another than the one that is known, and since when, on `performance.now()`. */
  let isDoubted = false;
  let doubtedAtMs = -Infinity;
  let asking: Promise<void> | undefined;

  function sample({ sentMs, arrivedMs, fromMs, toMs }: ClockSample): void {
    // It has waited for a connection, so when it was asked says little.
    const isOld = sentMs < doubtedAtMs;
    if (isOld && known !== undefined) return;
    const seen = { leastMs: fromMs - arrivedMs, mostMs: toMs - sentMs };
    const wallAheadMs = Date.now() - performance.now();
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
    const isApart = Math.abs(Date.now() - nowMs - wallAheadMs) > MOST_APART_MS;
    return isApart ? Infinity : nowMs - atMs;
  }

  async function untilKnown(): Promise<void> {
    while (ageMs() >= STALE_MS) await ask();
    // As when this process was busy as the answer came, at its start.
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
      // No caller waits for this. While Redis is unreachable, the next caller that must wait asks
      // again.
      if (age >= AGED_MS) ask().catch(() => undefined);
      return undefined;
    },
    earliestMs: () =>
      Math.floor(known === undefined ? Date.now() : performance.now() + known.leastMs),
    latestMs: () => Math.ceil(known === undefined ? Date.now() : performance.now() + known.mostMs),
  };
}

type Bounds = Pick<Known, "leastMs" | "mostMs">;

/** What both say; what was seen last if they exclude each other, since then the server's clock has stepped. */
function narrowed(known: Known, seen: Bounds, nowMs: number): Bounds {
  const driftMs = (nowMs - known.atMs) * MOST_DRIFT;
  const leastMs = Math.max(known.leastMs - driftMs, seen.leastMs);
  const mostMs = Math.min(known.mostMs + driftMs, seen.mostMs);
  return leastMs <= mostMs ? { leastMs, mostMs } : seen;
}
