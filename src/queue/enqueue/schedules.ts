import { readName } from "../../core/options.ts";
import { UTC } from "../bullmq/cron.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { findDueRun } from "../bullmq/stored-schedule.ts";

/** A recurring job. */
export interface Schedule {
  /** Its name, which `unschedule` takes. */
  readonly dedupeId: string;
  /** Milliseconds from one run to the next; undefined for a `cron` one. */
  readonly every: number | undefined;
  readonly cron: string | undefined;
  /** The time zone of `cron`; undefined for `every`. */
  readonly timeZone: string | undefined;
  /** When its next run is due, in ms since 1970: `1790000000000`. */
  readonly nextAtMs: number;
}

/** The recurring jobs of a queue. Both reject with StoreUnavailableError when Redis is away. */
export interface Schedules {
  /** Ends a recurring job, and removes its next run, due or not; a run that a worker has fetched goes on. False if there is no such job. */
  unschedule(dedupeId: string): Promise<boolean>;
  /** All recurring jobs, ordered by their next run. */
  schedules(): Promise<Schedule[]>;
}

export function createSchedules(
  access: StoredAccess,
  remove: (id: string) => Promise<boolean>,
): Schedules {
  return {
    async unschedule(given) {
      const dedupeId = readName("unschedule()", "dedupeId", given);
      const due = await access.ask((queue) => findDueRun(queue, dedupeId, access.clock));
      const isEnded = await access.ask((queue) => queue.removeJobScheduler(dedupeId));
      // BullMQ removes a run that is not due yet, and leaves one that is.
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
