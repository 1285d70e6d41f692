import type { Queue as StoredQueue } from "bullmq";
import { readName } from "../core/options.ts";
import { UTC } from "./cron.ts";
import type { EnqueueOptions } from "./enqueue-options.ts";
import { readJob, storedName, storedOptions, type Job, type Stored } from "./job.ts";
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

/** Stores a schedule over the one of the same name, if there is one; the job is the next of it. */
export async function storeSchedule<Data>(
  queue: StoredQueue,
  data: Data,
  options: EnqueueOptions,
): Promise<Job<Data>> {
  const { every, cron, timeZone = UTC } = options;
  const times = every === undefined ? { pattern: cron!, tz: timeZone } : { every };
  const template = { name: storedName(options.key), data, opts: storedOptions(options) };
  const job = await queue.upsertJobScheduler(options.dedupeId!, times, template);
  return readJob(job as Stored<Data>);
}

/** The recurring jobs of a queue. Both reject with StoreUnavailableError when Redis is away. */
export interface Schedules {
  /** Ends a recurring job, and removes its next run; one that runs already ends as it does. False if there is none. */
  unschedule(dedupeId: string): Promise<boolean>;
  /** All of them, the next to come first. */
  schedules(): Promise<Schedule[]>;
}

export function createSchedules(access: StoredAccess): Schedules {
  return {
    async unschedule(given) {
      const dedupeId = readName("unschedule()", "dedupeId", given);
      return access.ask((queue) => queue.removeJobScheduler(dedupeId));
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
