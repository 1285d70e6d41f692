import { worstWindow } from "sluice/testing";
import type { Call, Report } from "./downstream.ts";

const SECOND_MS = 1_000;
/** Calls are reported in the order in which their bodies ended, which differs slightly from the order of arrival. */
const DISORDER_MS = 500;

/** The totals of the downstream's reports. */
export interface Tally {
  /** The time of the last report, on the downstream's clock. */
  readonly nowMs: number;
  /** Webhooks accepted at least once, and more than once. */
  readonly delivered: number;
  readonly twice: number;
  /** Calls that were answered 429. */
  readonly refused: number;
  readonly callsInLastSecond: number;
  /** The most calls in any window of one second. */
  readonly worstSecond: number;
  /** The same, without calls that the downstream may have seen late because it stood still in that second. */
  readonly surelyInWorstSecond: number;
  /** The downstream's longest standstill. */
  readonly stalledMs: number;
  /** The number of this worker's accepted calls. */
  deliveredBy(worker: string): number;
  /** The number of calls accepted after `fromMs` and up to `toMs`. */
  acceptedBetween(fromMs: number, toMs: number): number;
  add(report: Report): void;
}

export function createTally(): Tally {
  const calls: Call[] = [];
  const times = new Map<string, number>();
  const byWorker = new Map<string, number>();
  let nowMs = 0;
  let twice = 0;
  let refused = 0;
  let callsInLastSecond = 0;
  let worstSecond = 0;
  let surelyInWorstSecond = 0;
  let stalledMs = 0;
  let stalledBeforeMs = 0;

  function accept({ delivery, worker }: Call): void {
    const before = times.get(delivery) ?? 0;
    times.set(delivery, before + 1);
    if (before === 1) twice += 1;
    byWorker.set(worker, (byWorker.get(worker) ?? 0) + 1);
  }

  /** The times of calls that a window which is not over yet may contain. */
  function recentMs(sinceMs: number): number[] {
    const recent: number[] = [];
    for (let index = calls.length - 1; index >= 0; index--) {
      const { atMs } = calls[index]!;
      if (atMs < sinceMs - SECOND_MS - DISORDER_MS) break;
      recent.push(atMs);
    }
    return recent;
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
    get callsInLastSecond() {
      return callsInLastSecond;
    },
    get worstSecond() {
      return worstSecond;
    },
    get surelyInWorstSecond() {
      return surelyInWorstSecond;
    },
    get stalledMs() {
      return stalledMs;
    },
    deliveredBy: (worker) => byWorker.get(worker) ?? 0,
    acceptedBetween: (fromMs, toMs) =>
      calls.filter(({ atMs, status }) => isAccepted(status) && atMs > fromMs && atMs <= toMs)
        .length,
    add(report) {
      const beforeMs = nowMs;
      nowMs = report.nowMs;
      for (const call of report.calls) {
        calls.push(call);
        if (call.status === 429) refused += 1;
        if (isAccepted(call.status)) accept(call);
      }
      stalledMs = Math.max(stalledMs, report.stalledMs);
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
