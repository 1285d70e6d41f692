import { HORIZON_MS, highestRate, type RatePhase } from "./rates.ts";
import type { Call, Struck } from "./records.ts";
import { REPLY_DELAY_MS } from "../support/servers/replier.ts";

/** A double holds a time of today to within this, in ms. */
const ROUNDING_MS = 0.001;
const WINDOWS_MS = [1, 20, 50, 100, 200, 500, 1_000, 3_000];
/** Of the wall clock, as a process can read it; rate changes are noted on it, and slots are put on the machine's clock by it. */
const WALL_MS = 1;
/** A process reckons the bucket's clock by the quickest reply of this second and the last. */
const RECKONED_MS = 2_000;

/** When a call came, or was to leave. */
export interface Timed {
  readonly atMs: number;
  /** How late it may have come, in ms. */
  readonly jitterMs: number;
}

/**
 * The most calls beyond burst − 1 + ⌈rate × (W + J)⌉ that any window of a length W held, where J is the largest
 * jitter of the calls in it; 0 if none did.
 */
export function mostExtra(
  calls: readonly Timed[],
  { phases, burst }: { readonly phases: readonly RatePhase[]; readonly burst: number },
): number {
  const sorted = calls.toSorted((a, b) => a.atMs - b.atMs);
  let most = 0;
  for (const windowMs of WINDOWS_MS) {
    let next = 0;
    for (const [first, { atMs }] of sorted.entries()) {
      while (next < sorted.length && sorted[next]!.atMs - atMs < windowMs - ROUNDING_MS) next += 1;
      const jitterMs = largestJitter(sorted, first, next);
      const from = atMs - jitterMs - WALL_MS;
      const perSecond = highestRate(phases, from, atMs + windowMs + WALL_MS);
      const allowed = burst - 1 + Math.ceil((perSecond * (windowMs + jitterMs)) / 1_000);
      most = Math.max(most, next - first - Math.max(0, allowed));
    }
  }
  return most;
}

function largestJitter(calls: readonly Timed[], from: number, to: number): number {
  let largest = 0;
  for (let index = from; index < to; index++) largest = Math.max(largest, calls[index]!.jitterMs);
  return largest;
}

/** Slots by their own times, which nothing makes late. */
export function slotsOf(calls: readonly Call[]): Timed[] {
  return calls.flatMap(({ slotMs }) => (slotMs === undefined ? [] : { atMs: slotMs, jitterMs: 0 }));
}

/** How late a call may leave after its slot, by its process's reckoning: half an interval, within bounds. */
function mostLateMs(perSecond: number): number {
  return Math.min(Math.max(500 / perSecond, 5), HORIZON_MS);
}

/** How late a call left after its slot, in ms; NaN where that is not known. */
export function lagOf({ leftMs, slotMs }: Call, toMachineMs: (wallMs: number) => number): number {
  return slotMs === undefined ? NaN : Math.max(0, leftMs - toMachineMs(slotMs));
}

/** How late a call may leave at a time, in ms. */
export type LagCap = (atMs: number) => number;

/**
 * Half an interval, and what the quickest reply of late took: it is drawn again where that is a horizon more than
 * usual. Replies that a fault held up are usual while it lasts, and a process reckons by them for a while longer.
 */
export function lagCap(perSecond: number, struck: readonly Struck[]): LagCap {
  const usual = mostLateMs(perSecond) + HORIZON_MS;
  const slow = struck.filter(({ fault }) => fault.name === "latency");
  return (atMs) => {
    const isSlow = slow.some(
      ({ began, ended }) => atMs >= began.ms && atMs <= ended.ms + RECKONED_MS,
    );
    return usual + (isSlow ? REPLY_DELAY_MS : 0);
  };
}

/**
 * Calls that left later than they may: a process that stood still has fired its old slots. Where it stood still between
 * its look at the clock and its calls, what it had let go in that instant is no such call.
 */
export function lateCalls(calls: readonly Call[], { lags, capAt, perSecond }: LateOptions): Call[] {
  const atOnce = 1 + Math.floor((mostLateMs(perSecond) * perSecond) / 1_000);
  const clumps = new Map<number, { readonly fromMs: number; size: number }>();
  return calls.filter(({ pid, leftMs }, index) => {
    const lag = lags[index]!;
    if (Number.isNaN(lag) || lag <= capAt(leftMs)) return false;
    let clump = clumps.get(pid);
    if (clump === undefined || leftMs > clump.fromMs + HORIZON_MS) {
      clump = { fromMs: leftMs, size: 0 };
      clumps.set(pid, clump);
    }
    clump.size += 1;
    return clump.size > atOnce;
  });
}

interface LateOptions {
  /** How late each of the calls left; NaN where its slot is not known. */
  readonly lags: readonly number[];
  readonly capAt: LagCap;
  readonly perSecond: number;
}

/**
 * Arrivals, each with how late it may be: what its way took, measured, and how late it left. The latter is measured too,
 * as well as the wall clock can, by the calls of its process at that time whose slots are known, and never more than may be.
 */
export function arrivalsOf(
  calls: readonly Call[],
  { lags, perSecond, capAt }: { lags: readonly number[]; perSecond: number; capAt: LagCap },
): Timed[] {
  const lastLag = new Map<number, { atMs: number; lag: number }[]>();
  return calls.map(({ pid, leftMs, arrivedMs }, index) => {
    const known = lastLag.get(pid) ?? [];
    lastLag.set(pid, known);
    const own = lags[index]!;
    if (!Number.isNaN(own)) known.push({ atMs: leftMs, lag: own });
    while (known.length > 0 && known[0]!.atMs < leftMs - RECKONED_MS) known.shift();
    const around = Math.max(0, ...known.map(({ lag }) => lag)) + mostLateMs(perSecond);
    const lagMs = Math.min(Number.isNaN(own) ? around : own, capAt(leftMs));
    const wayMs = Math.max(0, arrivedMs - leftMs);
    return { atMs: arrivedMs, jitterMs: wayMs + lagMs + WALL_MS };
  });
}
