import { worstWindow } from "sluice/testing";
import type { Call, Report } from "./downstream.ts";

const SECOND_MS = 1_000;
/** Calls are told in the order in which their bodies ended, which is not quite the order in which they came. */
const DISORDER_MS = 500;

/** What the downstream's reports add up to. */
export interface Tally {
  /** The downstream's clock at the last report. */
  readonly nowMs: number;
  /** Webhooks that were accepted at least once, and more than once. */
  readonly delivered: number;
  readonly twice: number;
  /** Calls that were answered 429. */
  readonly refused: number;
  readonly callsInLastSecond: number;
  /** The most calls that any window of one second saw. */
  readonly worstSecond: number;
  /** The same, less what the downstream may have seen late, having stood still itself in that second. */
  readonly surelyInWorstSecond: number;
  /** The longest that the downstream itself stood still. */
  readonly stalledMs: number;
  /** How many calls of this worker were accepted. */
  deliveredBy(worker: string): number;
  /** How many calls were accepted after `fromMs` and up to `toMs`. */
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
  let toldBeforeMs = 0;

  function accept({ delivery, worker }: Call): void {
    const before = times.get(delivery) ?? 0;
    times.set(delivery, before + 1);
    if (before === 1) twice += 1;
    byWorker.set(worker, (byWorker.get(worker) ?? 0) + 1);
  }

  /** When the calls came that a window can still gain from. */
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
      // The second of the first calls of a report began before that of the report.
      const lateMs = Math.max(toldBeforeMs, report.stalledMs);
      toldBeforeMs = report.stalledMs;
      const surely = worstWindow(recent, Math.max(0, SECOND_MS - lateMs));
      surelyInWorstSecond = Math.max(surelyInWorstSecond, surely);
    },
  };
}

function isAccepted(status: number): boolean {
  return status >= 200 && status < 300;
}

/** How much of the cap was used, counted only while work waited. */
export interface ShareMeter {
  /** Notes whether work waits just now. */
  look(isWorkWaiting: boolean): void;
  /** 1 when each call of the cap was made; undefined when work waited for less than a second. */
  share(rate: number): number | undefined;
}

const LEAST_MS = 1_000;

export function createShareMeter(tally: Tally): ShareMeter {
  const stretches: { readonly fromMs: number; toMs: number }[] = [];
  let wasWaiting = false;

  return {
    look(isWorkWaiting) {
      const { nowMs, delivered } = tally;
      // Until the first call has come, the workers still fetch their first jobs.
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
