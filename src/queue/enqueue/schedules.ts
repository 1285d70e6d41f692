import type { JobSchedulerJson, RepeatOptions, Queue as StoredQueue } from "bullmq";
import { readName } from "../../core/options.ts";
import type { RunDeclaration } from "../../core/queue-store.ts";
import {
  readJob,
  storedName,
  storedOptions,
  type Job,
  type Stored,
  type StoredOptions,
} from "../job.ts";
import { UTC, type EnqueueOptions } from "../options.ts";
import type { StoredAccess } from "../stored-queue.ts";

/** A recurring job, as it stands. */
export interface Schedule {
  /** Its name, by which `unschedule` ends it. */
  readonly dedupeId: string;
  /** Milliseconds from one job to the next; undefined if `cron` says when. */
  readonly every: number | undefined;
  readonly cron: string | undefined;
  /** Where the times of `cron` are local ones; undefined for `every`. */
  readonly timeZone: string | undefined;
  /** When its next job is due, in ms since 1970: `1790000000000`. */
  readonly nextAtMs: number;
}

/** What BullMQ keeps with a run beside the options of its template. */
type RunOptions = StoredOptions & { prevMillis: number; repeat: RepeatOptions };

/** When a schedule has its runs. */
type Times =
  | { readonly every: number; readonly offset?: number }
  | { readonly pattern: string; readonly tz: string };

/** What the runs of a schedule are made of. */
interface Template<Data> {
  readonly name: string;
  readonly data: Data;
  readonly opts: StoredOptions;
}

/**
 * Stores a schedule over the one of the same name, if there is one; the job is the next of it. A run that is
 * due stays: BullMQ would remove it, and plan the next.
 */
export async function storeSchedule<Data>(
  queue: StoredQueue,
  declareRun: (declaration: RunDeclaration) => Promise<boolean>,
  { data, options }: { readonly data: Data; readonly options: EnqueueOptions },
): Promise<Job<Data>> {
  const { every, cron, timeZone = UTC } = options;
  const name = options.dedupeId!;
  const times = every === undefined ? { pattern: cron!, tz: timeZone } : { every };
  const template = { name: storedName(options.key), data, opts: storedOptions(options) };
  const due = await findDueRun<Data>(queue, name);
  if (due !== undefined) {
    const { declaration, job } = declarationFor(due, { times, template });
    if (await declareRun(declaration)) {
      // Its place goes by that.
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

/** A run whose time has come, and which no worker has fetched: the next one is not planned yet. */
interface DueRun<Data> {
  readonly schedule: JobSchedulerJson;
  readonly run: Stored<Data>;
}

async function findDueRun<Data>(
  queue: StoredQueue,
  name: string,
): Promise<DueRun<Data> | undefined> {
  const schedule = await queue.getJobScheduler(name);
  if (schedule?.next === undefined || schedule.next > Date.now()) return undefined;
  const run = (await queue.getJob(`repeat:${name}:${schedule.next}`)) as Stored<Data> | undefined;
  return run === undefined || run.finishedOn !== undefined ? undefined : { schedule, run };
}

/**
 * What has a due run be the first of what is declared now, and the job that it is then: it gets the newest data and
 * options, which it hands on to the next with the newest times. The key is another from that one on.
 */
function declarationFor<Data>(
  { schedule, run }: DueRun<Data>,
  { times, template }: { readonly times: Times; readonly template: Template<Data> },
): { readonly declaration: RunDeclaration; readonly job: Job<Data> } {
  const { name, data, opts: ours } = template;
  const { jobId, delay, timestamp, prevMillis, repeat } = run.opts as RunOptions;
  // By its offset BullMQ keeps the runs of `every` in step when it has missed some.
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

/** Plans the run after one that is fetched, as its worker does; then it is none that BullMQ removes. */
async function planAfter(queue: StoredQueue, { schedule, run }: DueRun<unknown>): Promise<void> {
  const { repeat, ...opts } = run.opts as RunOptions;
  const scheduler = await queue.jobScheduler;
  const from = { override: false, producerId: run.id! };
  await scheduler.upsertJobScheduler(schedule.key, repeat, run.name, run.data, opts, from);
}

/** The recurring jobs of a queue. Both reject with StoreUnavailableError when Redis is away. */
export interface Schedules {
  /** Ends a recurring job, and removes its next run, due or not; one that a worker has fetched goes on. False if there is none. */
  unschedule(dedupeId: string): Promise<boolean>;
  /** All of them, the next to come first. */
  schedules(): Promise<Schedule[]>;
}

export function createSchedules(
  access: StoredAccess,
  remove: (id: string) => Promise<boolean>,
): Schedules {
  return {
    async unschedule(given) {
      const dedupeId = readName("unschedule()", "dedupeId", given);
      const due = await access.ask((queue) => findDueRun(queue, dedupeId));
      const isEnded = await access.ask((queue) => queue.removeJobScheduler(dedupeId));
      // BullMQ removes a run to come, and lets one that is due go on.
      if (due !== undefined) await remove(due.run.id!);
      return isEnded;
    },
    async schedules() {
      const found = await access.ask((queue) => queue.getJobSchedulers(0, -1, true));
      return found.map(({ key, every, pattern, tz, next }) => ({
        dedupeId: key,
        every: every === undefined ? undefined : Number(every),
        cron: pattern,
        timeZone: pattern === undefined ? undefined : (tz ?? UTC),
        nextAtMs: next ?? 0,
      }));
    },
  };
}
