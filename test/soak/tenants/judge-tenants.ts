/** What is judged of the tenants' queue: that nothing is lost or buried, that something always starts, and fair turns. */
import type { FailedJob } from "sluice";
import { kindOf, LOCK_MS } from "../plan/fault-kinds.ts";
import type { StoredJobs } from "../processes/messages.ts";
import type { Call, Removal, Standstill, Struck } from "../records.ts";
import {
  DELAY_MS,
  isDoneBy,
  mayDie,
  MOST_WEIGHT,
  weightOf,
  type Fate,
  type TenantJob,
} from "./tenants.ts";

export interface TenantsSeen {
  /** In order of arrival. */
  readonly calls: readonly Call[];
  readonly stored: readonly StoredJobs[];
  readonly removals: readonly Removal[];
  readonly dead: readonly Pick<FailedJob<TenantJob>, "data" | "reason">[];
  readonly waiting: ReadonlySet<number>;
  readonly struck: readonly Struck[];
  readonly standstills: readonly Standstill[];
}

export interface TenantsVerdict {
  readonly done: number;
  /** Confirmed jobs that are not done, not dead, and that no tool has removed. */
  readonly lost: readonly number[];
  /** Dead letters that must not be any. */
  readonly buried: readonly string[];
  /** Times in which nothing started while something might. */
  readonly idle: readonly Span[];
  /** Newcomers, and how many turns others had beyond theirs before the last of a newcomer's jobs. */
  readonly newcomers: readonly { readonly tenant: string; readonly beyond: number }[];
}

interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

export function judgeTenants(seen: TenantsSeen): TenantsVerdict {
  const { calls, dead, stored } = seen;
  const jobs = stored.flatMap(({ jobs: each }) => each);
  const fates = new Map(jobs.map(({ number, fate }) => [number, fate]));
  const done = doneJobs(calls, fates);
  return {
    done: done.size,
    lost: lostJobs(seen, done),
    buried: dead
      .filter(({ data: { fate }, reason }) => !mayDie(fate, reason))
      .map(({ data: { number }, reason }) => `${number}: ${reason}`),
    idle: idleSpans(seen),
    newcomers: newcomersOf(seen),
  };
}

function doneJobs(calls: readonly Call[], fates: ReadonlyMap<number, Fate>): ReadonlySet<number> {
  const done = calls.filter(
    ({ job, attempt }) => fates.has(job!) && isDoneBy(fates.get(job!)!, attempt!),
  );
  return new Set(done.map(({ job }) => job!));
}

function lostJobs(
  { stored, removals, dead, waiting }: TenantsSeen,
  done: ReadonlySet<number>,
): number[] {
  const found = new Set([...done, ...waiting, ...dead.map(({ data }) => data.number)]);
  const removed = new Set(removals.flatMap(({ ids }) => (ids === "all" ? [] : [...ids])));
  const allRemovedMs = removals.flatMap(({ ids, endedMs }) => (ids === "all" ? [endedMs] : []));
  return stored.flatMap(({ jobs, ids, askedMs }) => {
    // One that was stored while a tool removed all may be among those.
    if (allRemovedMs.some((endedMs) => askedMs <= endedMs)) return [];
    const there = jobs.filter((_, index) => !removed.has(ids[index]!));
    return there.map(({ number }) => number).filter((number) => !found.has(number));
  });
}

/** The longest time in which nothing may start. */
const MOST_IDLE_MS = 1_000;

/** Returns the longer times without a call, faults that stop jobs left out, in which a job waited that was called later. */
function idleSpans({ calls, stored, struck }: TenantsSeen): Span[] {
  const firstCalls = new Map<number, number>();
  for (const { job, arrivedMs } of calls) {
    if (!firstCalls.has(job!)) firstCalls.set(job!, arrivedMs);
  }
  const waits = stored.flatMap(({ jobs, storedMs }) =>
    jobs.flatMap(({ number, fate }) => {
      const toMs = firstCalls.get(number);
      const fromMs = storedMs + (fate === "delayed" ? DELAY_MS : 0);
      return toMs === undefined ? [] : [{ fromMs, toMs }];
    }),
  );
  const stops = struck.filter(({ fault }) => kindOf(fault.name).stopsJobs);
  const spans: Span[] = [];
  for (const [index, { arrivedMs: toMs }] of calls.entries()) {
    if (index === 0) continue;
    const between = { fromMs: calls[index - 1]!.arrivedMs, toMs };
    const free = stops.reduce(
      (left: Span[], { began, ended }) => {
        const stopped = { fromMs: began.ms, toMs: ended.ms };
        return left.flatMap((span) => without(span, stopped));
      },
      longer([between]),
    );
    for (const span of longer(free)) {
      const waited = waits.filter((wait) => wait.fromMs < span.toMs && wait.toMs >= span.toMs);
      // Nothing may have been there when it began.
      const fromMs = Math.max(span.fromMs, Math.min(...waited.map((wait) => wait.fromMs)));
      spans.push(...longer([{ fromMs, toMs: span.toMs }]));
    }
  }
  return spans;
}

function longer(spans: readonly Span[]): Span[] {
  return spans.filter(({ fromMs, toMs }) => toMs - fromMs > MOST_IDLE_MS);
}

function without({ fromMs, toMs }: Span, stopped: Span): Span[] {
  if (stopped.toMs <= fromMs || stopped.fromMs >= toMs) return [{ fromMs, toMs }];
  return [
    { fromMs, toMs: stopped.fromMs },
    { fromMs: stopped.toMs, toMs },
  ].filter((span) => span.toMs > span.fromMs);
}

/** How long after a fault that ends locks a newcomer is not judged: one of its jobs may wait for that. */
const DISTURBED_MS = 1.5 * LOCK_MS;

/**
 * Judges each newcomer whose jobs no fault can have held up. While it waits for n turns, each other tenant may have n times the ratio of
 * their weights, and one that had begun; what it has in addition were jobs that workers held, or had to wait for a lock.
 */
function newcomersOf({
  calls,
  stored,
  struck,
  standstills,
}: TenantsSeen): TenantsVerdict["newcomers"] {
  const disturbed = [
    ...struck
      .filter(({ fault: { name } }) => kindOf(name).stopsJobs || kindOf(name).endsLocks !== "none")
      .map(({ began, ended }) => ({ fromMs: began.ms, toMs: ended.ms + DISTURBED_MS })),
    ...standstills.map(({ fromMs, toMs }) => ({ fromMs, toMs: toMs + DISTURBED_MS })),
  ];
  return stored.flatMap(({ isNewcomer, jobs, storedMs }) => {
    if (!isNewcomer) return [];
    const { tenant } = jobs[0]!;
    const own = calls.filter((call) => call.tenant === tenant);
    const toMs = own.at(-1)?.arrivedMs ?? Infinity;
    if (disturbed.some((span) => span.fromMs <= toMs && span.toMs >= storedMs)) return [];
    const turns = new Map<string, number>();
    for (const call of calls) {
      if (call.arrivedMs <= storedMs || call.arrivedMs >= toMs || call.tenant === tenant) continue;
      turns.set(call.tenant!, (turns.get(call.tenant!) ?? 0) + 1);
    }
    const beyond = [...turns].reduce((sum, [other, count]) => {
      const due = jobs.length * weightOf(other, MOST_WEIGHT) + 1;
      return sum + Math.max(0, count - due);
    }, 0);
    return [{ tenant, beyond }];
  });
}
