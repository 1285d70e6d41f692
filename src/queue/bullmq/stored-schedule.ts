/**
 * Stores schedules of recurring jobs as BullMQ does. A schedule is a hash with its times and the template of its runs.
 * Each run is a job with the id `repeat:<name>:<ms since 1970>`. Our own fields are in the same hash, with the prefix
 * `sluice:`.
 *
 * Unlike BullMQ, we plan the next run when a run begins (`lua/lib/runs/`). BullMQ's worker plans the next run when it
 * fetches a run. With that, runs pile up if they begin later than they recur, and a schedule that is declared again
 * loses a run that is due. No upstream issue known (taskforcesh/bullmq#3063 and #3197 are about runs that are done or
 * run); checked with bullmq 6.7.0 (`nextJobFromJobData` in worker.js, `addJobScheduler-11.lua`).
 */
import type { JobSchedulerJson, Queue } from "bullmq";
import { readCronText } from "../../core/input/cron-text.ts";
import type {
  CronState,
  NextCron,
  RunAnswer,
  RunDeclared,
  RunDeclaration,
} from "../../stores/redis/scripts/queue/runs.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import type { Job } from "../job.ts";
import type { OrderedJobOptions } from "../options.ts";
import { nextCron, nextCronMs, nextCronTimes, UTC } from "./cron.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { readFields, readJob, storedName, storedOptions, type Stored } from "./stored-job.ts";

/**
 * Stores a schedule, and replaces an existing schedule with the same name. Resolves with the next pending run, and
 * whether the schedule is new. A run that is already due is kept.
 */
export async function storeSchedule<Data>(
  queue: Queue,
  {
    declare,
    clock,
  }: {
    readonly declare: (declaration: RunDeclaration) => Promise<RunDeclared>;
    readonly clock: RedisClock;
  },
  { json, options }: { readonly json: string; readonly options: OrderedJobOptions },
): Promise<{ readonly job: Job<Data>; readonly isNew: boolean }> {
  const { every, cron, timeZone = UTC, missed, overlap } = options;
  const { opts: template } = storedOptions(options, clock);
  const id = options.dedupeId!;
  const pattern = cron === undefined ? undefined : readCronText(cron, id);
  const declaration: RunDeclaration = {
    name: id,
    fields: {
      name: storedName(options.key),
      data: json,
      opts: JSON.stringify(template),
      ...(every === undefined
        ? { pattern: pattern!, tz: timeZone, "sluice:cron": cron! }
        : { every }),
      ...(missed === "once" && { "sluice:missed": missed }),
      ...(overlap === false && { "sluice:overlap": "no" }),
    },
  };
  let declared = await declare(declaration);
  while (declared.nowMs !== undefined) {
    // There is always a next time: `enqueue` rejects expressions without one.
    const cronMs = nextCronMs(declared.nowMs, { cron: pattern!, timeZone });
    declared = await declare({ ...declaration, cronMs });
  }
  const { Job } = loadBullmq();
  const { id: runId, fields, isNew } = declared;
  const run = Job.fromJSON(queue, readFields(fields, runId), runId) as unknown as Stored<Data>;
  const job = readJob(run);
  const { priority = "normal" } = options;
  // A run that a worker holds keeps its priority.
  if (job.priority === priority || (await run.isActive())) return { job, isNew };
  // The declaration does not change the priority of an existing run, so it is changed here.
  await run.changePriority({ priority: template.priority! });
  return { job: { ...job, priority }, isNew };
}

/** Sends a request about a run, and repeats it as long as Redis asks for another time of the cron expression. */
export async function askOfRun(
  ask: (next: NextCron | undefined) => Promise<RunAnswer>,
): Promise<Exclude<RunAnswer, { readonly says: "next time?" }>> {
  let answer = await ask(undefined);
  while (answer.says === "next time?") {
    const { says: _says, ...state } = answer;
    answer = await ask(await nextCron(state));
  }
  return answer;
}

/** The latest run of a recurring job that has begun. */
export interface LastRun {
  readonly id: string;
  /** When the run began, in ms since 1970: `1790000000000`. */
  readonly startedAtMs: number;
  /** When the run ended or was removed, in ms since 1970. Undefined while it runs, or waits for its next attempt. */
  readonly endedAtMs: number | undefined;
  /**
   * The outcome of the run. `"failed"` means that it became a dead letter. Undefined if it has not ended, or was
   * removed while it waited for its next attempt.
   */
  readonly outcome: "done" | "failed" | undefined;
}

/** A schedule's times, missed runs and latest run, which Sluice stores in addition to BullMQ's fields. */
export interface ScheduleFacts {
  /** When the current run is due, or when its next attempt is due. */
  readonly nextAtMs: number;
  readonly nextRunsAtMs: readonly number[];
  /** The cron expression as it was declared. Undefined for a schedule with `every`. */
  readonly cron: string | undefined;
  readonly missed: number;
  readonly last: LastRun | undefined;
}

/** Reads when a schedule runs, and how its latest run ended. Uses the clock of Redis, as the scripts do. */
export async function readScheduleFacts(
  queue: Queue,
  { key: name, every, pattern, tz = UTC, next: dueMs = 0 }: JobSchedulerJson,
  {
    clock,
    isParked,
  }: { readonly clock: RedisClock; readonly isParked: (id: string) => Promise<boolean> },
): Promise<ScheduleFacts> {
  await clock.ready();
  const redis = (await queue.getBackend().client) as unknown as ScheduleReader;
  const fields = ["count", "at", "run", "ran", "of", "ended", "outcome", "cron"];
  const [count, at, id, startedAt, of, endedAt, outcome, cron] = await redis.hmget(
    queue.toKey(`repeat:${name}`),
    ...fields.map((field) => `sluice:${field}`),
  );
  const nowMs = clock.earliestMs();
  const atMs = Math.max(Number(at ?? 0), dueMs);
  const state = { nowMs, atMs, isInTime: atMs === dueMs };
  const passed =
    every === undefined
      ? (await nextCron({ ...state, cron: pattern!, timeZone: tz }))?.passed
      : passedOf(every, state);
  const hasEnded = of === id;
  const run = `repeat:${name}:${dueMs}`;
  const [isRetried] = await redis.hmget(queue.toKey(`repeat:${name}:open`), run);
  const score = isRetried == null ? null : await redis.zscore(queue.toKey("delayed"), run);
  // Ignores the delay of a run that is parked in its lane, because every parked job is delayed by a day.
  const isDelayed = score !== null && !(await isParked(run));
  const nextAtMs = isDelayed ? Math.max(dueMs, Math.floor(Number(score) / PER_MS)) : dueMs;
  const laterAfterMs = Math.max(nextAtMs, nowMs);
  const later =
    every === undefined
      ? nextCronTimes(laterAfterMs, { cron: pattern!, timeZone: tz }, SHOWN_RUNS - 1)
      : everyAfter(laterAfterMs, { every, dueMs });
  return {
    nextAtMs,
    nextRunsAtMs: [nextAtMs, ...later],
    cron: pattern === undefined ? undefined : (cron ?? pattern),
    missed: Number(count ?? 0) + (passed ?? 0),
    last: id
      ? {
          id,
          startedAtMs: Number(startedAt),
          endedAtMs: hasEnded ? Number(endedAt) : undefined,
          outcome: hasEnded ? (outcome as LastRun["outcome"]) : undefined,
        }
      : undefined,
  };
}

/** How many next runs of a schedule are listed. */
const SHOWN_RUNS = 5;

/** Returns the times of the runs after the next run, for a schedule with `every`. They follow at the same interval. */
function everyAfter(
  afterMs: number,
  { every, dueMs }: { readonly every: number; readonly dueMs: number },
): number[] {
  const passed = Math.floor((afterMs - dueMs) / every);
  return Array.from({ length: SHOWN_RUNS - 1 }, (_, index) => dueMs + (passed + 1 + index) * every);
}

/** BullMQ stores the times of delayed jobs in units of 1/4096 ms. */
const PER_MS = 4_096;

/** The ioredis methods that this module uses. BullMQ's type of the client does not have all of them. */
interface ScheduleReader {
  hmget(key: string, ...fields: string[]): Promise<readonly (string | null)[]>;
  zscore(key: string, member: string): Promise<string | null>;
}

/**
 * Returns how many times of a schedule with `every` have passed without being counted yet. Must match `next_time` in
 * `lua/lib/runs/plan.lua`.
 */
function passedOf(
  every: number,
  { nowMs, atMs, isInTime }: Pick<CronState, "nowMs" | "atMs" | "isInTime">,
): number {
  const firstMs = isInTime ? atMs + every : atMs;
  return Math.max(0, Math.floor((nowMs - firstMs) / every) + 1);
}
