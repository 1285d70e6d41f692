import { REPLY_DELAY_MS } from "../../support/servers/replier.ts";
import type { Call, Struck, Moment } from "../records.ts";

/** The precision, in ms, of a present-day time in a double. */
const ROUNDING_MS = 0.001;
const WINDOWS_MS = [1, 20, 50, 100, 200, 500, 1_000, 3_000];
/** The precision of reading the wall clock, which dates rate changes and converts slots to the machine's clock. */
const WALL_MS = 1;
/** A process estimates the bucket's clock from the quickest reply of this second and the last. */
const RECKONED_MS = 2_000;

/** When a call arrived, or was due to leave. */
export interface Timed {
  readonly atMs: number;
  /** How late it may have arrived, in ms. */
  readonly jitterMs: number;
}

/**
 * Returns the most calls by which a window of any length W exceeded burst − 1 + ⌈rate × (W + J)⌉, where J is the
 * largest jitter of the calls in it; 0 if none did.
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

/** Returns the slots' own times, which have no jitter. */
export function slotsOf(calls: readonly Call[]): Timed[] {
  return calls.flatMap(({ slotMs }) => (slotMs === undefined ? [] : { atMs: slotMs, jitterMs: 0 }));
}

/** How late after its slot a call may leave, on its process's estimate of the clock: half an interval, within bounds. */
function mostLateMs(perSecond: number): number {
  return Math.min(Math.max(500 / perSecond, 5), HORIZON_MS);
}

/** How late after its slot a call left, in ms; NaN if its slot is unknown. */
export function lagOf({ leftMs, slotMs }: Call, toMachineMs: (wallMs: number) => number): number {
  return slotMs === undefined ? NaN : Math.max(0, leftMs - toMachineMs(slotMs));
}

/** Returns how late a call may leave at a given time, in ms. */
export type LagCap = (atMs: number) => number;

/**
 * Allows half an interval plus one horizon: a slot is drawn again if the quickest recent reply took a horizon longer
 * than usual. During a fault that delays replies, the delay is usual, and a process uses it for a while longer.
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
 * Returns the calls that left later than allowed, which means that a process fired old slots after a standstill.
 * Calls that it released just before the standstill, in the instant after it read the clock, do not count.
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
  /** How late each call left; NaN if its slot is unknown. */
  readonly lags: readonly number[];
  readonly capAt: LagCap;
  readonly perSecond: number;
}

/**
 * Returns the arrivals, each with how late it may be: the measured time of its way, plus how late it left. The latter
 * is measured with the wall clock on its process's calls with known slots at that time, and is at most what is allowed.
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

/** The horizon: how far ahead slots are handed out. */
export const HORIZON_MS = 100;

/** A rate that may have been in force between two times, both included. */
export interface RatePhase {
  readonly perSecond: number;
  readonly fromMs: number;
  readonly toMs: number;
}

type Clock = keyof Moment;

/**
 * Returns the rates that may have been in force, on one of the two clocks. During a change both rates may be, from the
 * request to its confirmation; the old one for a horizon longer, because slots are booked that far ahead.
 */
export function ratePhases(base: number, struck: readonly Struck[], clock: Clock): RatePhase[] {
  const phases: RatePhase[] = [];
  let fromMs = -Infinity;
  for (const { rate } of struck) {
    if (rate === undefined) continue;
    const { perSecond, askedAt, heldFrom, heldTo, goneAt } = rate;
    phases.push({ perSecond: base, fromMs, toMs: heldFrom[clock] + HORIZON_MS });
    phases.push({ perSecond, fromMs: askedAt[clock], toMs: goneAt[clock] + HORIZON_MS });
    fromMs = heldTo[clock];
  }
  return [...phases, { perSecond: base, fromMs, toMs: Infinity }];
}

/** Returns the highest rate that may have been in force between two times. */
function highestRate(phases: readonly RatePhase[], fromMs: number, toMs: number): number {
  const within = phases.filter((phase) => phase.fromMs <= toMs && phase.toMs >= fromMs);
  return Math.max(0, ...within.map(({ perSecond }) => perSecond));
}

/** How long after a fault everything went on, in ms; Infinity if it never did. */
export interface Recovery {
  readonly struck: Struck;
  readonly callsMs: number;
  readonly jobsMs: number;
}

/** Calls go on when each replica has called again, jobs when one has been done again; `calls` are in order of arrival. */
export function recoveries(
  calls: readonly Call[],
  { struck, replicas }: { struck: readonly Struck[]; replicas: readonly number[] },
): Recovery[] {
  return struck.map((each) => {
    const { ms } = each.ended;
    const later = calls.filter(({ leftMs, answer }) => leftMs > ms && answer === "ok");
    const firstOf = (pid: number) =>
      later.find((call) => call.job === undefined && call.pid === pid);
    const since = (call: Call | undefined) => (call === undefined ? Infinity : call.arrivedMs - ms);
    return {
      struck: each,
      callsMs: Math.max(...replicas.map((pid) => since(firstOf(pid)))),
      jobsMs: since(later.find(({ job }) => job !== undefined)),
    };
  });
}
