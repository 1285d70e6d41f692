import { InvalidOptionError } from "../../core/errors.ts";
import { readName } from "../../core/input/options.ts";
import type { RunStore } from "../../stores/redis/queue/store.ts";
import { UTC } from "../bullmq/cron.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { readScheduleFacts, type LastRun } from "../bullmq/stored-schedule.ts";

/** A recurring job, with its next runs and its latest run. */
export interface Schedule {
  /** The name of the recurring job, for `unschedule`. */
  readonly dedupeId: string;
  /** The interval between runs, in ms. Undefined for a job with `cron`. */
  readonly every: number | undefined;
  /** The cron expression as it was declared: `"H 9 * * 1-5"`. Undefined for a job with `every`. */
  readonly cron: string | undefined;
  /** The time zone of `cron`. Undefined for a job with `every`. */
  readonly timeZone: string | undefined;
  /**
   * When the next run is due, in ms since 1970: `1790000000000`. If an attempt of that run has failed, when its next
   * attempt is due. This time is in the past while the run waits for its slot.
   */
  readonly nextAtMs: number;
  /**
   * When the next five runs are due, the earliest first, in ms since 1970: `[1790000000000, …]`. Leaves out the times
   * that pass while a run waits.
   */
  readonly nextRunsAtMs: readonly number[];
  /**
   * How many scheduled times had no run: `3`. A time is missed if it passes while an earlier run waits, runs with
   * `overlap: false`, or waits for its next attempt. A time is also missed if its run comes too late for `maxWaitMs`.
   * For a `cron` job, at most 1,000 missed times are counted for one wait.
   */
  readonly missed: number;
  /** The run that began last. Undefined before the first run. */
  readonly last: LastRun | undefined;
}

/**
 * Lists and ends the recurring jobs of a queue. All methods reject with StoreUnavailableError when Redis is
 * unreachable.
 */
export interface Schedules {
  /**
   * Ends a recurring job. The pending run is removed, whether it waits for its time, in its lane, in a worker, or for
   * its next attempt. No run begins after this resolves. A run that is active continues; if it fails, it is not
   * retried. Resolves with false if there is no such job.
   */
  unschedule(dedupeId: string): Promise<boolean>;
  /** Lists all recurring jobs, ordered by their next run. */
  schedules(): Promise<Schedule[]>;
  /** Returns the recurring job with this `dedupeId`, or undefined if there is none. */
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
