/**
 * Schedules of recurring jobs, as BullMQ stores them: a hash with the times and the template, and their runs as jobs
 * with the id `repeat:<name>:<ms since 1970>`. Our fields are beside BullMQ's, with `sluice:` before their names.
 *
 * The next run is planned at another time. BullMQ's worker plans it when it fetches a run. If runs then begin later
 * than they recur, they pile up, and a schedule that is declared again loses a run that is due. Ours is planned when a
 * run begins (`lua/lib/runs/`). No upstream issue known (taskforcesh/bullmq#3063 and #3197 are about runs that are done
 * or run); checked with bullmq 6.7.0 (`nextJobFromJobData` in worker.js, `addJobScheduler-11.lua`).
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
 * Stores a schedule, in place of the one with the same name. Resolves with the next pending run, and whether the
 * schedule is new. A run that is due stays.
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
    // Every expression has a next time: others were refused.
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
  // The declaration does not change the priority of a run that stays, so this does.
  await run.changePriority({ priority: template.priority! });
  return { job: { ...job, priority }, isNew };
}

/** Repeats a request about a run until Redis needs no further time of a cron expression. */
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

/** The run that has begun last. */
export interface LastRun {
  readonly id: string;
  /** When it began, in ms since 1970: `1790000000000`. */
  readonly startedAtMs: number;
  /** When it ended, or was removed, in ms since 1970; undefined while it runs, or waits for its next attempt. */
  readonly endedAtMs: number | undefined;
  /** How it ended: `"failed"` if it is a dead letter. Undefined if it was removed while it waited for its next attempt. */
  readonly outcome: "done" | "failed" | undefined;
}

/** What we store of a schedule beside what BullMQ stores. */
export interface ScheduleFacts {
  /** When the current run starts: its time, or that of its next attempt. */
  readonly nextAtMs: number;
  readonly nextRunsAtMs: readonly number[];
  /** The expression as it was declared; undefined for `every`. */
  readonly cron: string | undefined;
  readonly missed: number;
  readonly last: LastRun | undefined;
}

/** Uses the clock of Redis, as the scripts do. */
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
  // A run that is parked in its lane is delayed by a day there.
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

/** How many runs of a schedule are listed. */
const SHOWN_RUNS = 5;

/** Returns the runs of `every` after the next one. They keep its rhythm. */
function everyAfter(
  afterMs: number,
  { every, dueMs }: { readonly every: number; readonly dueMs: number },
): number[] {
  const passed = Math.floor((afterMs - dueMs) / every);
  return Array.from({ length: SHOWN_RUNS - 1 }, (_, index) => dueMs + (passed + 1 + index) * every);
}

/** BullMQ counts the times of delayed jobs in 4096ths of a ms. */
const PER_MS = 4_096;

/** The methods used of an ioredis client. BullMQ's type of it has fewer. */
interface ScheduleReader {
  hmget(key: string, ...fields: string[]): Promise<readonly (string | null)[]>;
  zscore(key: string, member: string): Promise<string | null>;
}

/** How many times of `every` have passed uncounted. Twin of `next_time` in `lua/lib/runs/plan.lua`. */
function passedOf(
  every: number,
  { nowMs, atMs, isInTime }: Pick<CronState, "nowMs" | "atMs" | "isInTime">,
): number {
  const firstMs = isInTime ? atMs + every : atMs;
  return Math.max(0, Math.floor((nowMs - firstMs) / every) + 1);
}
