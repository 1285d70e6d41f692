import { kindOf, LOCK_MS } from "../plan/fault-kinds.ts";
import type { Call, Standstill, Struck } from "../records.ts";

/** What is known about the jobs. */
export interface JobsSeen {
  /** Jobs for which `enqueue` resolved. */
  readonly confirmed: readonly number[];
  /** Jobs kept as failed. */
  readonly dead: ReadonlySet<number>;
  /** Jobs that still wait. */
  readonly waiting: ReadonlySet<number>;
  readonly calls: readonly Call[];
  readonly struck: readonly Struck[];
  readonly standstills: readonly Standstill[];
}

export interface JobsVerdict {
  readonly done: number;
  /** Confirmed jobs that cannot be found. */
  readonly lost: readonly number[];
  /** How often a job was done again. */
  readonly again: number;
  /** The same, where no lock can have ended. */
  readonly unexplained: readonly { readonly first: Call; readonly second: Call }[];
}

export function judgeJobs(seen: JobsSeen): JobsVerdict {
  const { confirmed, dead, waiting, calls } = seen;
  const byJob = doneByJob(calls);
  const lost = confirmed.filter((job) => !byJob.has(job) && !dead.has(job) && !waiting.has(job));
  const unexplained: { first: Call; second: Call }[] = [];
  let again = 0;
  for (const done of byJob.values()) {
    for (const [index, second] of done.slice(1).entries()) {
      again += 1;
      const first = done[index]!;
      if (!canHaveEnded(first, second, seen)) unexplained.push({ first, second });
    }
  }
  return { done: byJob.size, lost, again, unexplained };
}

/** Returns each job's successful calls, in order; a call with a dripped answer may or may not be one. */
function doneByJob(calls: readonly Call[]): ReadonlyMap<number, Call[]> {
  const byJob = new Map<number, Call[]>();
  for (const call of calls) {
    if (call.job === undefined || (call.answer !== "ok" && call.answer !== "dripped")) continue;
    const done = byJob.get(call.job) ?? [];
    byJob.set(call.job, done);
    done.push(call);
  }
  for (const done of byJob.values()) done.sort((a, b) => a.arrivedMs - b.arrivedMs);
  return byJob;
}

/** Whether a job's lock can have ended before its result was reported; its worker notices that one lock's time later at most. */
function canHaveEnded(
  first: Call,
  second: Call,
  { struck, standstills }: Pick<JobsSeen, "struck" | "standstills">,
): boolean {
  if (first.answer === "dripped") return true;
  const isBetween = (fromMs: number, toMs: number): boolean =>
    fromMs <= second.arrivedMs && toMs + LOCK_MS >= first.leftMs;
  const isHit = struck.some(({ fault, began, ended, pid }) => {
    const { endsLocks } = kindOf(fault.name);
    if (endsLocks === "none" || (endsLocks === "target" && pid !== first.pid)) return false;
    return isBetween(began.ms, ended.ms);
  });
  return (
    isHit ||
    standstills.some(({ pid, fromMs, toMs }) => pid === first.pid && isBetween(fromMs, toMs))
  );
}
