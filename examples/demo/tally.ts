import { worstWindow } from "sluice/testing";
import type { Call, Report } from "./downstream.ts";

const SECOND_MS = 1_000;
/** Calls are reported in the order in which their bodies ended, which differs slightly from the order of arrival. */
const DISORDER_MS = 500;

/** How fast calls came. */
interface Pace {
  readonly callsInLastSecond: number;
  /** The most calls in any window of one second. */
  readonly worstSecond: number;
  /** The same, without calls that the downstream may have seen late because it stood still in that second. */
  readonly surelyInWorstSecond: number;
}

/** The totals of the downstream's reports. */
export interface Tally extends Pace {
  /** The time of the last report, on the downstream's clock. */
  readonly nowMs: number;
  /** Webhooks accepted at least once, and more than once. */
  readonly delivered: number;
  readonly twice: number;
  /** Calls that were answered 429. */
  readonly refused: number;
  /** Calls whose signature did not fit. */
  readonly unverified: number;
  /** Webhooks that were answered 503, and those of them that came again and were accepted. */
  readonly failed: number;
  readonly cameAgain: number;
  /** The downstream's longest standstill. */
  readonly stalledMs: number;
  /** How fast the calls of one customer came. */
  paceOf(customer: string): Pace;
  /** The number of webhooks that one customer accepted. */
  deliveredTo(customer: string): number;
  /** The number of this worker's accepted calls. */
  deliveredBy(worker: string): number;
  /** The number of calls accepted after `fromMs` and up to `toMs`. */
  acceptedBetween(fromMs: number, toMs: number): number;
  add(report: Report): void;
}

export function createTally(): Tally {
  const calls: Call[] = [];
  const times = new Map<string, number>();
  const failed = new Set<string>();
  const byWorker = new Map<string, number>();
  const byCustomer = new Map<string, Set<string>>();
  const whole = createPaceMeter();
  const paces = new Map<string, PaceMeter>();
  let nowMs = 0;
  let twice = 0;
  let refused = 0;
  let unverified = 0;
  let stalledMs = 0;

  function accept({ delivery, worker, customer }: Call): void {
    const before = times.get(delivery) ?? 0;
    times.set(delivery, before + 1);
    if (before === 1) twice += 1;
    byWorker.set(worker, (byWorker.get(worker) ?? 0) + 1);
    const ofCustomer = byCustomer.get(customer) ?? new Set();
    byCustomer.set(customer, ofCustomer.add(delivery));
  }

  return {
    get nowMs() {
      return nowMs;
    },
    get delivered() {
      return times.size;
    },
    get twice() {
      return twice;
    },
    get refused() {
      return refused;
    },
    get unverified() {
      return unverified;
    },
    get failed() {
      return failed.size;
    },
    get cameAgain() {
      return [...failed].filter((delivery) => times.has(delivery)).length;
    },
    get callsInLastSecond() {
      return whole.callsInLastSecond;
    },
    get worstSecond() {
      return whole.worstSecond;
    },
    get surelyInWorstSecond() {
      return whole.surelyInWorstSecond;
    },
    get stalledMs() {
      return stalledMs;
    },
    paceOf: (customer) => paces.get(customer) ?? createPaceMeter(),
    deliveredTo: (customer) => byCustomer.get(customer)?.size ?? 0,
    deliveredBy: (worker) => byWorker.get(worker) ?? 0,
    acceptedBetween: (fromMs, toMs) =>
      calls.filter(({ atMs, status }) => isAccepted(status) && atMs > fromMs && atMs <= toMs)
        .length,
    add(report) {
      nowMs = report.nowMs;
      for (const call of report.calls) {
        const { customer, delivery, status, isVerified } = call;
        calls.push(call);
        if (!isVerified) unverified += 1;
        if (status === 429) refused += 1;
        if (status === 503) failed.add(delivery);
        if (isAccepted(status)) accept(call);
        if (!paces.has(customer)) paces.set(customer, createPaceMeter());
      }
      stalledMs = Math.max(stalledMs, report.stalledMs);
      whole.add(report, report.calls);
      for (const [customer, pace] of paces) {
        pace.add(
          report,
          report.calls.filter((call) => call.customer === customer),
        );
      }
    },
  };
}

interface PaceMeter extends Pace {
  /** Adds those calls of a report that are meant. */
  add(report: Report, calls: readonly Call[]): void;
}

function createPaceMeter(): PaceMeter {
  const timesMs: number[] = [];
  let nowMs = 0;
  let stalledBeforeMs = 0;
  let callsInLastSecond = 0;
  let worstSecond = 0;
  let surelyInWorstSecond = 0;

  /** The times of calls that a window which is not over yet may contain. */
  function recentMs(sinceMs: number): number[] {
    const recent: number[] = [];
    for (let index = timesMs.length - 1; index >= 0; index--) {
      const atMs = timesMs[index]!;
      if (atMs < sinceMs - SECOND_MS - DISORDER_MS) break;
      recent.push(atMs);
    }
    return recent;
  }

  return {
    get callsInLastSecond() {
      return callsInLastSecond;
    },
    get worstSecond() {
      return worstSecond;
    },
    get surelyInWorstSecond() {
      return surelyInWorstSecond;
    },
    add(report, calls) {
      const beforeMs = nowMs;
      nowMs = report.nowMs;
      timesMs.push(...calls.map(({ atMs }) => atMs));
      const recent = recentMs(beforeMs);
      callsInLastSecond = recent.filter((atMs) => atMs > nowMs - SECOND_MS).length;
      worstSecond = Math.max(worstSecond, worstWindow(recent, SECOND_MS));
      // The first calls of this report may belong to a window that began before the previous one.
      const lateMs = Math.max(stalledBeforeMs, report.stalledMs);
      stalledBeforeMs = report.stalledMs;
      const surely = worstWindow(recent, Math.max(0, SECOND_MS - lateMs));
      surelyInWorstSecond = Math.max(surelyInWorstSecond, surely);
    },
  };
}

function isAccepted(status: number): boolean {
  return status >= 200 && status < 300;
}

/** Measures how much of the cap was used while work waited. */
export interface ShareMeter {
  /** Records whether work waits at this moment. */
  look(isWorkWaiting: boolean): void;
  /** 1 if every call that the cap allows was made; undefined if work waited for less than a second. */
  share(rate: number): number | undefined;
}

const LEAST_MS = 1_000;

export function createShareMeter(tally: Tally): ShareMeter {
  const stretches: { readonly fromMs: number; toMs: number }[] = [];
  let wasWaiting = false;

  return {
    look(isWorkWaiting) {
      const { nowMs, delivered } = tally;
      // Before the first call, the workers are still fetching their first jobs.
      const isWaiting = isWorkWaiting && delivered > 0;
      if (isWaiting && wasWaiting) stretches.at(-1)!.toMs = nowMs;
      if (isWaiting && !wasWaiting) stretches.push({ fromMs: nowMs, toMs: nowMs });
      wasWaiting = isWaiting;
    },
    share(rate) {
      let waitedMs = 0;
      let calls = 0;
      for (const { fromMs, toMs } of stretches) {
        waitedMs += toMs - fromMs;
        calls += tally.acceptedBetween(fromMs, toMs);
      }
      return waitedMs < LEAST_MS ? undefined : (calls * 1_000) / (waitedMs * rate);
    },
  };
}
