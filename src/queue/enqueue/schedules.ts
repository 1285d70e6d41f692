import { InvalidOptionError } from "../../core/errors.ts";
import { readName } from "../../core/input/options.ts";
import type { RunStore } from "../../stores/redis/queue/store.ts";
import { UTC } from "../bullmq/cron.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { readScheduleFacts, type LastRun } from "../bullmq/stored-schedule.ts";

/** A recurring job. */
export interface Schedule {
  /** Its name, which `unschedule` takes. */
  readonly dedupeId: string;
  /** The milliseconds from one run to the next; undefined for a `cron` one. */
  readonly every: number | undefined;
  /** As it was declared: `"H 9 * * 1-5"`; undefined for an `every` one. */
  readonly cron: string | undefined;
  /** The time zone of `cron`; undefined for `every`. */
  readonly timeZone: string | undefined;
  /**
   * When the next run is due, in ms since 1970: `1790000000000`. If that run has failed, when its next attempt is due.
   * In the past while it waits for its slot.
   */
  readonly nextAtMs: number;
  /**
   * When the next five runs are due, the next one first, in ms since 1970: `[1790000000000, …]`. Times that pass while
   * a run waits are left out.
   */
  readonly nextRunsAtMs: readonly number[];
  /**
   * How many of its times had no run: `3`. They passed while a run waited, ran with `overlap: false`, or waited for its
   * next attempt; or their run came too late for `maxWaitMs`. At most 1,000 are counted for one wait of a `cron` job.
   */
  readonly missed: number;
  /** The run that began last; undefined before the first one. */
  readonly last: LastRun | undefined;
}

/** The recurring jobs of a queue. All methods reject with StoreUnavailableError when Redis is unreachable. */
export interface Schedules {
  /**
   * Ends a recurring job. Its pending run is removed, wherever it waits: for its time, in its lane, in a worker, or for
   * its next attempt. After this resolves, no run begins. A running run continues; if it fails, it is not retried.
   * Resolves with false if there is no such job.
   */
  unschedule(dedupeId: string): Promise<boolean>;
  /** All recurring jobs, ordered by their next run. */
  schedules(): Promise<Schedule[]>;
  /** One recurring job by its `dedupeId`; undefined if there is none. */
  schedule(dedupeId: string): Promise<Schedule | undefined>;
}

export function createSchedules({
  queue: name,
  access,
  runs,
  isParked,
  onRemoved,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly runs: Pick<RunStore, "end">;
  /** True if a job is in the lane of its key. */
  readonly isParked: (id: string) => Promise<boolean>;
  readonly onRemoved: (ids: readonly string[]) => void;
}): Schedules {
  const list = (): Promise<Schedule[]> =>
    access.ask(async (queue) => {
      const found = await queue.getJobSchedulers(0, -1, true);
      const facts = await Promise.all(
        found.map((each) => readScheduleFacts(queue, each, { clock: access.clock, isParked })),
      );
      const schedules = found.map(({ key, every, pattern, tz }, index) => ({
        dedupeId: key,
        every: every === undefined ? undefined : Number(every),
        timeZone: pattern === undefined ? undefined : (tz ?? UTC),
        ...facts[index]!,
      }));
      return schedules.toSorted((one, other) => one.nextAtMs - other.nextAtMs);
    });

  return {
    async unschedule(given) {
      const dedupeId = readDedupeId("unschedule", given);
      const { isEnded, removed } = await access.ask(() =>
        runs.end({ queue: name, name: dedupeId }),
      );
      onRemoved(removed);
      return isEnded;
    },
    schedules: list,
    async schedule(given) {
      const dedupeId = readDedupeId("schedule", given);
      return (await list()).find((schedule) => schedule.dedupeId === dedupeId);
    },
  };
}

function readDedupeId(method: string, given: unknown): string {
  const where = `${method}()`;
  if (typeof given === "string") return readName(where, "dedupeId", given);
  const remedy = `give the dedupeId of a recurring job: ${method}("daily-report"); enqueue(data, { dedupeId, cron }) declares one`;
  throw new InvalidOptionError({ where, option: "dedupeId", value: given, remedy });
}
