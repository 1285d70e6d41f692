import type { JobSchedulerJson, Queue as StoredQueue, RepeatOptions } from "bullmq";
import { readName } from "../core/options.ts";
import { UTC } from "./cron.ts";
import type { EnqueueOptions } from "./enqueue-options.ts";
import {
  readJob,
  storedName,
  storedOptions,
  type Job,
  type Stored,
  type StoredOptions,
} from "./job.ts";
import type { StoredAccess } from "./stored-queue.ts";

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

/**
 * Stores a schedule over the one of the same name, if there is one; the job is the next of it. A run of cron
 * that is due stays: BullMQ would remove it, and plan the next.
 */
export async function storeSchedule<Data>(
  queue: StoredQueue,
  data: Data,
  options: EnqueueOptions,
): Promise<Job<Data>> {
  const { every, cron, timeZone = UTC } = options;
  const name = options.dedupeId!;
  const times = every === undefined ? { pattern: cron!, tz: timeZone } : { every };
  const template = { name: storedName(options.key), data, opts: storedOptions(options) };
  // A run of `every` is removed too, but planned anew for the same time.
  const due = every === undefined ? await findDueRun<Data>(queue, name) : undefined;
  if (due !== undefined) {
    const { pattern, tz = UTC } = due.schedule;
    if (pattern === cron && tz === timeZone) return declareDueRun(queue, due, template);
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

/** Gives the due run the newest data and options, which it hands on to the next; the key is another from that one on. */
async function declareDueRun<Data>(
  queue: StoredQueue,
  { schedule, run }: DueRun<Data>,
  template: { readonly name: string; readonly data: Data; readonly opts: StoredOptions },
): Promise<Job<Data>> {
  const { name } = template;
  const data = JSON.stringify(template.data);
  const { jobId, delay, timestamp, prevMillis, repeat } = run.opts as RunOptions;
  const planned = { jobId, delay, timestamp, prevMillis, repeat };
  const opts = { ...template.opts, ...planned } as StoredOptions;
  const client = await queue.getBackend().client;
  await Promise.all([
    client.hset(queue.toKey(`repeat:${schedule.key}`), {
      name,
      data,
      opts: JSON.stringify(template.opts),
    }),
    client.hset(queue.toKey(run.id!), { data, opts: JSON.stringify(opts) }),
  ]);
  return readJob(Object.assign(run, { data: template.data, opts }));
}

/** Plans the run after a due one, as the worker does that fetches it; the due one is then none that BullMQ removes. */
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
