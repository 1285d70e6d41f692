import { kindOf, LOCK_MS } from "../plan/fault-kinds.ts";
import type { Call, Standstill, Struck } from "../records.ts";

/** What became of the jobs. */
export interface JobsSeen {
  /** What `enqueue` resolved for. */
  readonly confirmed: readonly number[];
  /** What is kept as failed. */
  readonly dead: ReadonlySet<number>;
  /** What still waits. */
  readonly waiting: ReadonlySet<number>;
  readonly calls: readonly Call[];
  readonly struck: readonly Struck[];
  readonly standstills: readonly Standstill[];
}

export interface JobsVerdict {
  readonly done: number;
  /** Confirmed, and nowhere to be found. */
  readonly lost: readonly number[];
  /** How often a job was done that had been done. */
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

/** The calls by which each job was done, in order; whether one whose answer dripped was, only its worker knows. */
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

/** Whether the lock under which a job was done can have ended before that was told; a worker learns of it a lock later at most. */
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
