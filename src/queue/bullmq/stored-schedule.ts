/**
 * Schedules of recurring jobs, as BullMQ stores them: a hash with the times and the template, the next run as a delayed
 * job of the id `repeat:<name>:<ms since 1970>`, and in each run's options what plans the run after it.
 *
 * `upsertJobScheduler` removes a run that is due and not fetched yet, and plans the next one: a deploy that declares its
 * schedules anew would skip runs. So a due run is given the new declaration instead, by `lua/queue/runs-declare.lua`.
 * It can go when BullMQ keeps due runs. No upstream issue known for them (taskforcesh/bullmq#3063 and #3197 are about
 * runs that are done or run); checked with bullmq 6.7.0 (`addJobScheduler-11.lua`).
 */
import type { JobSchedulerJson, Queue, RepeatOptions } from "bullmq";
import type { RedisClock, RunDeclaration } from "../../core/queue-store.ts";
import type { Job } from "../job.ts";
import type { EnqueueOptions } from "../options.ts";
import { UTC } from "./cron.ts";
import {
  readJob,
  storedName,
  storedOptions,
  type Stored,
  type StoredOptions,
} from "./stored-job.ts";

/** The options of a run: those of its template, and what BullMQ adds. */
type RunOptions = StoredOptions & { prevMillis: number; repeat: RepeatOptions };

/** The times of a schedule, in BullMQ's words. */
type Times =
  | { readonly every: number; readonly offset?: number }
  | { readonly pattern: string; readonly tz: string };

/** What the runs of a schedule are made of. */
interface Template<Data> {
  readonly name: string;
  readonly data: Data;
  readonly opts: StoredOptions;
}

/** Stores a schedule over the one of the same name, if there is one, and resolves with its next run. A run that is due stays. */
export async function storeSchedule<Data>(
  queue: Queue,
  {
    declareRun,
    clock,
  }: {
    readonly declareRun: (declaration: RunDeclaration) => Promise<boolean>;
    readonly clock: RedisClock;
  },
  { data, options }: { readonly data: Data; readonly options: EnqueueOptions },
): Promise<Job<Data>> {
  const { every, cron, timeZone = UTC } = options;
  const name = options.dedupeId!;
  const times = every === undefined ? { pattern: cron!, tz: timeZone } : { every };
  const template = {
    name: storedName(options.key),
    data,
    opts: storedOptions(options, clock).opts,
  };
  const due = await findDueRun<Data>(queue, name, clock);
  if (due !== undefined) {
    const { declaration, job } = declarationFor(due, { times, template });
    if (await declareRun(declaration)) {
      // The declaration does not move the job; this does.
      if (job.priority !== readJob(due.run).priority) {
        await due.run.changePriority({ priority: template.opts.priority! });
      }
      return job;
    }
    await planAfter(queue, due);
  }
  const job = await queue.upsertJobScheduler(name, times, template);
  return readJob(job as Stored<Data>);
}

/** A run that is due, and that no worker has fetched: the run after it is not planned yet. */
export interface DueRun<Data> {
  readonly schedule: JobSchedulerJson;
  readonly run: Stored<Data>;
}

export async function findDueRun<Data>(
  queue: Queue,
  name: string,
  clock: RedisClock,
): Promise<DueRun<Data> | undefined> {
  await clock.ready();
  const schedule = await queue.getJobScheduler(name);
  if (schedule?.next === undefined || schedule.next > clock.latestMs()) return undefined;
  const run = (await queue.getJob(`repeat:${name}:${schedule.next}`)) as Stored<Data> | undefined;
  return run === undefined || run.finishedOn !== undefined ? undefined : { schedule, run };
}

/**
 * Makes a due run the first of the new schedule: it gets the new data and options, and hands them on with the new times.
 * Also returns the job that the run is then. A changed key holds from the run after it on.
 */
function declarationFor<Data>(
  { schedule, run }: DueRun<Data>,
  { times, template }: { readonly times: Times; readonly template: Template<Data> },
): { readonly declaration: RunDeclaration; readonly job: Job<Data> } {
  const { name, data, opts: ours } = template;
  const { jobId, delay, timestamp, prevMillis, repeat } = run.opts as RunOptions;
  // By the offset BullMQ keeps the runs of `every` in step after it has missed some.
  const inStep: Times =
    "every" in times ? { ...times, offset: schedule.next! % times.every } : times;
  const planned = { jobId, delay, timestamp, prevMillis };
  const handedOn = { repeat: { ...inStep, count: repeat.count } };
  const opts = { ...ours, ...planned, ...handedOn } as StoredOptions;
  const stored = JSON.stringify(data);
  const declaration = {
    name: schedule.key,
    id: run.id!,
    dueAtMs: schedule.next!,
    schedule: { ...inStep, name, data: stored, opts: JSON.stringify(ours) },
    run: { data: stored, opts: JSON.stringify(opts) },
  };
  const { id, name: storedAs, timestamp: storedAtMs, attemptsMade } = run;
  const { priority = 0 } = ours;
  const facts = { id, name: storedAs, timestamp: storedAtMs, attemptsMade, data, opts, priority };
  return { declaration, job: readJob(facts as Stored<Data>) };
}

/** Plans the run after one that a worker has just fetched, as the worker will, so that BullMQ does not remove the fetched one. */
async function planAfter(queue: Queue, { schedule, run }: DueRun<unknown>): Promise<void> {
  const { repeat, ...opts } = run.opts as RunOptions;
  const scheduler = await queue.jobScheduler;
  const from = { override: false, producerId: run.id! };
  await scheduler.upsertJobScheduler(schedule.key, repeat, run.name, run.data, opts, from);
}
