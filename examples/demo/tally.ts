import { worstWindow } from "sluice/testing";
import type { Call, Report } from "./downstream.ts";

const SECOND_MS = 1_000;
/**
 * The most by which two reported calls may be out of order. Calls are reported when their bodies have ended, not when
 * they arrived.
 */
const DISORDER_MS = 500;

/** How fast calls arrived. */
interface Pace {
  readonly callsInLastSecond: number;
  /** The most calls in any window of one second. */
  readonly worstSecond: number;
  /** The calls in the worst second, without calls that were late because a worker or the downstream was blocked. */
  readonly surelyInWorstSecond: number;
}

/** A report of the downstream, and for how long the workers were blocked. */
interface WatchedReport extends Report {
  /** The longest time in the last second for which a worker process was blocked. */
  readonly workersStalledMs: number;
}

/** The totals of the downstream's reports. */
export interface Tally extends Pace {
  /** The time of the last report, on the downstream's clock. */
  readonly nowMs: number;
  /** Webhooks that were accepted at least once, and then those that were accepted more than once. */
  readonly delivered: number;
  readonly twice: number;
  /** Calls that got the response 429. */
  readonly refused: number;
  /** Calls with an invalid signature. */
  readonly unverified: number;
  /** Webhooks that got the response 503, and then those of them that were retried and accepted. */
  readonly failed: number;
  readonly cameAgain: number;
  /** The longest time for which the downstream's process was blocked. */
  readonly stalledMs: number;
  /** The longest time for which a worker process was blocked. */
  readonly workersStalledMs: number;
  /** Returns how fast the calls of one customer arrived. */
  paceOf(customer: string): Pace;
  /** Returns the number of webhooks that one customer accepted. */
  deliveredTo(customer: string): number;
  /** Returns the number of this worker's accepted calls. */
  deliveredBy(worker: string): number;
  /** Returns the number of calls that were accepted after `fromMs` and up to `toMs`. */
  acceptedBetween(fromMs: number, toMs: number): number;
  add(report: WatchedReport): void;
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
  let workersStalledMs = 0;

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
    get workersStalledMs() {
      return workersStalledMs;
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
      // Ignores blocked times before the first call, because the processes are still starting.
      if (calls.length > 0) {
        stalledMs = Math.max(stalledMs, report.stalledMs);
        workersStalledMs = Math.max(workersStalledMs, report.workersStalledMs);
      }
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
  /** Adds a report, and those of its calls that this pace counts. */
  add(report: WatchedReport, calls: readonly Call[]): void;
}

function createPaceMeter(): PaceMeter {
  const timesMs: number[] = [];
  /** The end of each report's time, and by how much a call of the second before may have been late. */
  const reports: { readonly nowMs: number; readonly lateMs: number }[] = [];
  let callsInLastSecond = 0;
  let worstSecond = 0;

  /** Returns the times of calls that a window may contain that has not ended yet. */
  function recentMs(sinceMs: number): readonly number[] {
    const first = timesMs.findLastIndex((atMs) => atMs < sinceMs - SECOND_MS - DISORDER_MS) + 1;
    return timesMs.slice(first);
  }

  return {
    get callsInLastSecond() {
      return callsInLastSecond;
    },
    get worstSecond() {
      return worstSecond;
    },
    get surelyInWorstSecond() {
      const sorted = timesMs.toSorted((one, other) => one - other);
      let report = 0;
      let worst = 0;
      for (const [last, atMs] of sorted.entries()) {
        while (report < reports.length - 1 && reports[report]!.nowMs < atMs) report += 1;
        // Also checks the reports before and after, because a blocked time may be reported one report earlier or
        // later than the calls that it delayed.
        const nearby = reports.slice(Math.max(0, report - 1), report + 2);
        const surelyMs = SECOND_MS - Math.max(...nearby.map(({ lateMs }) => lateMs));
        let first = last;
        while (first > 0 && atMs - sorted[first - 1]! < surelyMs) first -= 1;
        worst = Math.max(worst, last - first + 1);
      }
      return worst;
    },
    add({ nowMs, stalledMs, workersStalledMs }, calls) {
      const beforeMs = reports.at(-1)?.nowMs ?? 0;
      reports.push({ nowMs, lateMs: Math.max(stalledMs, workersStalledMs) });
      timesMs.push(...calls.map(({ atMs }) => atMs));
      const recent = recentMs(beforeMs);
      callsInLastSecond = recent.filter((atMs) => atMs > nowMs - SECOND_MS).length;
      worstSecond = Math.max(worstSecond, worstWindow(recent, SECOND_MS));
    },
  };
}

function isAccepted(status: number): boolean {
  return status >= 200 && status < 300;
}

/** Measures how much of the cap was used while webhooks waited. */
export interface ShareMeter {
  /** Records whether webhooks wait at this moment. */
  look(isWorkWaiting: boolean): void;
  /**
   * Returns the used share of the cap: 1 if all calls that the cap allows were made; undefined if webhooks waited for
   * less than a second.
   */
  share(rate: number): number | undefined;
}

const LEAST_MS = 1_000;

export function createShareMeter(tally: Tally): ShareMeter {
  const stretches: { readonly fromMs: number; toMs: number }[] = [];
  let wasWaiting = false;

  return {
    look(isWorkWaiting) {
      const { nowMs, delivered } = tally;
      // Counts no waiting time before the first call, because the workers are still fetching their first jobs.
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
