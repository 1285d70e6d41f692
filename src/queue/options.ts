import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { KEY_PATH } from "../core/input/key-options.ts";
import { WHO_AND_WHY, type WhoAndWhy } from "../core/input/who-and-why.ts";
import type { Key } from "../core/key-path.ts";
import { isTimeZone } from "../core/limits/calendar-days.ts";
import {
  KEY,
  layered,
  LONGEST_MS,
  NAME,
  nameOf,
  readOptional,
  wholeNumber,
} from "../core/input/options.ts";
import { DEFAULTED, type JobDefaults } from "../core/input/queue-settings.ts";
import { COST } from "../throttle/call-options.ts";
import type { DedupeMode } from "../stores/redis/scripts/queue/jobs.ts";
import type { Cost } from "../throttle/costs.ts";
import { cronFault } from "./bullmq/cron.ts";
import type { OnParentFailure } from "../stores/redis/scripts/queue/flows.ts";
import { JOB_REFERENCE, OWN_ID, type JobReference } from "./job.ts";

/** The options of one job for `enqueue`. A recurring job needs a `dedupeId` and either `every` or `cron`. */
export type EnqueueOptions =
  | (JobOptions & {
      readonly every?: undefined;
      readonly cron?: undefined;
      readonly timeZone?: undefined;
      readonly missed?: undefined;
      readonly overlap?: undefined;
    })
  | (JobOptions & {
      readonly dedupeId: string;
      readonly cron?: undefined;
      readonly timeZone?: undefined;
    })
  | (JobOptions & { readonly dedupeId: string; readonly every?: undefined });

/** Joins the jobs of a burst: the job runs `waitMs` after the last of them, with the newest data. */
export interface Debounce {
  readonly mode: "debounce";
  /** How long no other job may come before the job is due, in ms. */
  readonly waitMs: number;
  /**
   * How long after the first job of the burst the job is due at the latest, in ms, however many jobs follow. At least
   * `waitMs`. Defaults to no limit.
   */
  readonly maxDelayMs?: number | undefined;
}

/** All job options. {@link EnqueueOptions} adds the rules about which options can be combined. */
interface JobOptions extends JobDefaults {
  /**
   * The tenant, account or endpoint that the job is for: `"acme"`. It can also be a path of up to three names, the
   * widest first: `["acme", "endpoint-7"]`. Each name has 1 to 256 characters. Defaults to no key.
   */
  readonly key?: Key | undefined;
  /**
   * The kind of work, for a queue with several kinds: `"refund"`. The name has 1 to 256 characters and is stored with
   * the job. Defaults to no name.
   */
  readonly name?: string | undefined;
  /**
   * The cost of each attempt: a number of calls, or an amount for each unit, `{ tokens: 800 }`. Defaults to the
   * bucket's `cost`. Without a bucket `cost`, defaults to 1 call.
   */
  readonly cost?: Cost | undefined;
  /** How long to wait before the job may start, in ms. Defaults to 0. */
  readonly delayMs?: number | undefined;
  /**
   * When the job may start, as a Date or in ms since 1970, instead of `delayMs`. If the time is in the past, the job
   * may start at once.
   */
  readonly at?: Date | number | undefined;
  /**
   * A job id that you choose: 1 to 256 characters, without ":" and not only digits. Redis may keep a job after it is
   * done or has failed. While the job is kept, no other job with this id is stored. Defaults to a generated number.
   */
  readonly id?: string | undefined;
  /**
   * While a job with this id is in the queue, `dedupe` decides what happens to a second job with the same id. For a
   * recurring job, this is the name of its schedule.
   */
  readonly dedupeId?: string | undefined;
  /**
   * What happens to a job while another job has the same `dedupeId`:
   *
   * - `"first"`: this job is not stored.
   * - `"last"`: if the other job is pending, it gets this job's data and options, except for key, priority and times.
   *   If the other job has begun, this job is stored as a second job.
   * - `"again"`: the same as `"last"` if the other job is pending. If the other job has begun, this job is stored and
   *   runs after the other job, however that one ends. At most one job waits in this way, with the newest data.
   * - `{ mode: "debounce", waitMs, maxDelayMs }`: the same as `"again"`, but each new job also delays the pending job, as
   *   long as that is not due. So a burst of jobs runs once, after its last job.
   *
   * Defaults to `"first"`.
   */
  readonly dedupe?: DedupeMode | Debounce | undefined;
  /**
   * Whether the running job with the same `dedupeId` is cancelled, as by `queue.cancel`: its `signal` is aborted within a
   * second, and it becomes a dead letter. This job runs once that one has ended. Applies to `dedupe: "again"` and to
   * debounced jobs. Defaults to false.
   */
  readonly cancelRunning?: boolean | undefined;
  /**
   * Which jobs of the `key` stay if more than `keepAtMost` would wait:
   *
   * - `"newest"`: this job is stored, and the oldest waiting jobs of the key are removed.
   * - `"oldest"`: this job is not stored. `enqueue` resolves with the last waiting job of the key, with `isNew: false`.
   *
   * Counts the due jobs of exactly this key that wait for their turn. Delayed jobs, and jobs that a worker has fetched,
   * do not count. Defaults to no limit.
   */
  readonly keep?: "newest" | "oldest" | undefined;
  /** How many jobs of the key may wait, with `keep`. From 1 to 1,000. Defaults to 1. */
  readonly keepAtMost?: number | undefined;
  /**
   * How long the `dedupeId` blocks other jobs, in ms from when the job is stored. Applies only to `dedupe: "first"`. By
   * default, the `dedupeId` blocks other jobs until this job is done or has failed.
   */
  readonly dedupeMs?: number | undefined;
  /**
   * Jobs of any queues of this sluice that must end before this one is due: jobs from `enqueue`, or
   * `{ queue: "reports", id: "17" }`. At most 10,000. `delayMs` and `maxWaitMs` begin once they have ended. A parent that
   * is no longer stored counts as done. Defaults to none.
   */
  readonly after?: readonly JobReference[] | undefined;
  /**
   * What happens to this job if a job in `after` becomes a dead letter:
   *
   * - `"fail"`: this job becomes a dead letter, too, without running. A replay of the parent resumes it.
   * - `"skip"`: this job is removed.
   * - `"run"`: this job runs once all parents have ended. Its handler sees which ones failed.
   *
   * If a parent is cancelled or removed, this job is cancelled, except with `"run"`. Defaults to `"fail"`.
   */
  readonly onParentFailure?: OnParentFailure | undefined;
  /** The time limit for each attempt of this job, in ms. Replaces the worker's `timeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /**
   * Makes the job recurring, with this interval in ms. The least interval is 100 ms. The first run is due at once.
   * Needs a `dedupeId`.
   */
  readonly every?: number | undefined;
  /**
   * Makes the job recurring, at the times of a cron expression: `"0 9 * * 1-5"`, `"@midnight"`. The expression has five
   * fields, or six with the second first. `H` stands for a fixed value derived from the `dedupeId`: `"H H * * *"` runs
   * once a day. Needs a `dedupeId`.
   */
  readonly cron?: string | undefined;
  /** The time zone of `cron`: `"Europe/Berlin"`. Defaults to `"UTC"`. */
  readonly timeZone?: string | undefined;
  /**
   * What happens to the times that a recurring job misses, because its earlier run still waits or may not be
   * overlapped. `"skip"` only counts the missed times. `"once"` makes up for all of them with one run. Defaults to
   * `"skip"`.
   */
  readonly missed?: "skip" | "once" | undefined;
  /** Whether a run of a recurring job may begin while the previous run is still running. Defaults to true. */
  readonly overlap?: boolean | undefined;
}

/**
 * What happens to an ordered key when one of its jobs becomes a dead letter. With 1, the next job begins. With 2, the
 * next job waits until the dead letter was replayed or purged.
 */
export type LaneOrder = 1 | 2;

/** Validated job options. The key is encoded as text. */
export type JobOptionsRead = Omit<JobOptions, "key"> & { readonly key?: string | undefined };

/** Validated job options, with the order of the job's key. `ordered` is undefined if the key is not ordered. */
export type OrderedJobOptions = JobOptionsRead & { readonly ordered?: LaneOrder | undefined };

/** The latest time of a delayed job. BullMQ stores ms × 2^12 as its score, which must stay below 2^53. */
const LATEST_MS = 2 ** 41 - 1;
const AT_ERROR = { error: "give a Date, or ms (not seconds) since 1970, before 2039-09-07" };
/** Smaller numbers (before 1973) are assumed to be seconds. */
const LEAST_MS = 1e11;
/** @internal */
export const AT: z.ZodType<Date | number> = z.custom<Date | number>(isTime, AT_ERROR);
const TIME = wholeNumber(1, LONGEST_MS, "milliseconds").optional();
/** A job name is stored unchanged, and is never part of a Redis key. */
const JOB_NAME = nameOf("leave out control characters");

/** The most parents of a job in one call. */
const MOST_PARENTS = 10_000;

const DEDUPE_MODES: readonly unknown[] = ["first", "last", "again"] satisfies DedupeMode[];
const DEBOUNCE = z.strictObject({
  mode: z.literal("debounce", {
    error: 'give "debounce", or one of "first", "last" and "again" instead of the object',
  }),
  waitMs: wholeNumber(1, LONGEST_MS, "milliseconds"),
  maxDelayMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
});
const DEDUPE_REMEDY = 'give "first", "last", "again" or { mode: "debounce", waitMs: 1_000 }';
/** Checked by hand, because a union would not name the wrong field of the object. */
const DEDUPE: z.ZodType<DedupeMode | Debounce> = z
  .custom<DedupeMode | Debounce>()
  .superRefine((given: unknown, context) => {
    if (DEDUPE_MODES.includes(given)) return;
    const read = DEBOUNCE.safeParse(given);
    if (read.success) return;
    const [issue] = read.error.issues;
    const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
    const [name] = issue!.code === "unrecognized_keys" ? issue!.keys : [];
    const message =
      name === undefined
        ? issue!.message
        : "there is no such option; give mode, waitMs or maxDelayMs";
    const path = name === undefined ? issue!.path : [name];
    context.addIssue({
      code: "custom",
      message: isObject ? message : DEDUPE_REMEDY,
      path: isObject ? [...path] : [],
    });
  });

const ENQUEUE_OPTIONS = z.strictObject({
  key: KEY_PATH.optional(),
  name: JOB_NAME.optional(),
  cost: COST.optional(),
  timeoutMs: TIME,
  delayMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
  at: AT.optional(),
  id: OWN_ID.optional(),
  dedupeId: KEY.optional(),
  dedupe: DEDUPE.optional(),
  cancelRunning: z.boolean({ error: "give true or false" }).optional(),
  dedupeMs: TIME,
  keep: z.enum(["newest", "oldest"], { error: 'give "newest" or "oldest"' }).optional(),
  keepAtMost: wholeNumber(1, 1_000, "jobs").optional(),
  after: z
    .array(JOB_REFERENCE, { error: "give an array of jobs from enqueue()" })
    .max(MOST_PARENTS, { error: `give at most ${MOST_PARENTS} jobs; see enqueueGroup() for more` })
    .optional(),
  onParentFailure: z
    .enum(["fail", "skip", "run"], { error: 'give "fail", "skip" or "run"' })
    .optional(),
  ...DEFAULTED,
  every: wholeNumber(100, LONGEST_MS, "milliseconds").optional(),
  cron: z.string({ error: "give a cron expression" }).optional(),
  timeZone: z
    .string({ error: "give a time zone" })
    .refine(isTimeZone, { error: 'give the name of a time zone, such as "Europe/Berlin"' })
    .optional(),
  missed: z.enum(["skip", "once"], { error: 'give "skip" or "once"' }).optional(),
  overlap: z.boolean({ error: "give true or false" }).optional(),
} satisfies Record<keyof EnqueueOptions, z.ZodType>);
export const ENQUEUE_OPTION_NAMES: readonly string[] = Object.keys(ENQUEUE_OPTIONS.shape);

/** The rules for options that exclude each other, or need each other. */
const RULES: readonly {
  readonly option: keyof EnqueueOptions | "dedupe.maxDelayMs";
  readonly isBroken: (options: JobOptionsRead) => boolean;
  readonly remedy: string | ((options: JobOptionsRead) => string | undefined);
}[] = [
  { option: "at", isBroken: (o) => has(o.at, o.delayMs), remedy: "give it or delayMs, not both" },
  {
    option: "dedupeMs",
    isBroken: (o) => o.dedupeMs !== undefined && o.dedupeId === undefined,
    remedy: "set dedupeId, too; dedupeMs is how long that id blocks further jobs",
  },
  {
    option: "dedupe",
    isBroken: (o) => o.dedupe !== undefined && o.dedupeId === undefined,
    remedy: "set dedupeId, too; dedupe decides what happens to a second job with the same dedupeId",
  },
  {
    option: "dedupeMs",
    isBroken: (o) => has(o.dedupeMs, o.dedupe) && o.dedupe !== "first",
    remedy:
      'remove dedupeMs; it only applies with dedupe: "first", because "last" and "again" drop no job',
  },
  {
    option: "cancelRunning",
    isBroken: (o) => o.cancelRunning === true && o.dedupe !== "again" && !isDebounced(o),
    remedy:
      'set dedupe: "again" or { mode: "debounce", waitMs }, too; only then does this job run after the running one',
  },
  {
    option: "dedupe.maxDelayMs",
    isBroken: (o) => isDebounced(o) && (o.dedupe.maxDelayMs ?? Infinity) < o.dedupe.waitMs,
    remedy: "give at least waitMs, or leave it out",
  },
  ...(["delayMs", "at"] as const).map((option) => ({
    option,
    isBroken: (o: JobOptionsRead) => isDebounced(o) && o[option] !== undefined,
    remedy: "leave it out; a debounced job is due after waitMs",
  })),
  {
    option: "keep",
    isBroken: (o) => o.keep !== undefined && o.key === undefined,
    remedy: "give a key, too; keep bounds how many jobs of a key wait",
  },
  {
    option: "keepAtMost",
    isBroken: (o) => o.keepAtMost !== undefined && o.keep === undefined,
    remedy: 'set keep: "newest" or "oldest", too; it says which jobs stay',
  },
  ...(["dedupeId", "delayMs", "at"] as const).map((option) => ({
    option,
    isBroken: (o: JobOptionsRead) => has(o.keep, o[option] === 0 ? undefined : o[option]),
    remedy: "leave it or keep out; keep bounds the jobs that are due at once, and have no dedupeId",
  })),
  {
    option: "onParentFailure",
    isBroken: (o) => o.onParentFailure !== undefined && o.after === undefined,
    remedy: "set after, too; it names the parents of the job",
  },
  {
    option: "dedupe",
    isBroken: (o) => o.after !== undefined && o.dedupe !== undefined && o.dedupe !== "first",
    remedy: 'leave it or after out; with after, only dedupe: "first" works',
  },
  {
    option: "keep",
    isBroken: (o) => has(o.keep, o.after),
    remedy: "leave it or after out; keep bounds the jobs that are due at once",
  },
  { option: "cron", isBroken: (o) => has(o.cron, o.every), remedy: "give it or every, not both" },
  {
    option: "timeZone",
    isBroken: (o) => o.timeZone !== undefined && o.cron === undefined,
    remedy: "remove timeZone, or set cron; timeZone only applies to cron",
  },
  {
    option: "dedupeId",
    isBroken: (o) => isRecurring(o) && !NAME.safeParse(o.dedupeId).success,
    remedy: 'name a recurring job, without ":", so that two deployments do not double it',
  },
  {
    option: "cron",
    isBroken: (o) => faultOf(o) !== undefined,
    remedy: faultOf,
  },
  ...(["missed", "overlap"] as const).map((option) => ({
    option,
    isBroken: (o: JobOptionsRead) => !isRecurring(o) && o[option] !== undefined,
    remedy: "it is for recurring jobs; give every or cron, too, or leave it out",
  })),
  {
    option: "after",
    isBroken: (o) => isRecurring(o) && o.after !== undefined,
    remedy: "leave it out: a recurring job runs at its own times",
  },
  {
    option: "dedupe",
    isBroken: (o) => isRecurring(o) && o.dedupe !== undefined,
    remedy: "leave it out: of a recurring job the newest declaration holds",
  },
  {
    option: "id",
    isBroken: (o) => isRecurring(o) && o.id !== undefined,
    remedy: "leave it out: each run of a recurring job gets its own id",
  },
  ...(["delayMs", "at", "dedupeMs"] as const).map((option) => ({
    option,
    isBroken: (o: JobOptionsRead) => isRecurring(o) && o[option] !== undefined,
    remedy: "leave it out: a recurring job runs at its own times",
  })),
];

/**
 * Validates the options of one job.
 *
 * @throws {@link InvalidOptionError} when an option, or a combination of two options, can never work.
 */
export function readEnqueueOptions(where: string, given: unknown): JobOptionsRead {
  const read: JobOptionsRead = readOptional(where, ENQUEUE_OPTIONS, given);
  const broken = RULES.find(({ isBroken }) => isBroken(read));
  if (broken === undefined) return ownOf(read);
  const { option } = broken;
  const remedy = typeof broken.remedy === "string" ? broken.remedy : broken.remedy(read)!;
  const value =
    option === "dedupe.maxDelayMs" ? (read.dedupe as Debounce).maxDelayMs : read[option];
  throw new InvalidOptionError({ where, option, value, remedy });
}

/** True if a job waits for the end of its burst. */
export function isDebounced<Options extends Pick<JobOptions, "dedupe">>(
  options: Options,
): options is Options & { readonly dedupe: Debounce } {
  return typeof options.dedupe === "object";
}

function faultOf({ cron, timeZone, dedupeId }: JobOptionsRead): string | undefined {
  return cron === undefined ? undefined : cronFault({ cron, timeZone, id: dedupeId! });
}

/**
 * Validates a dedupeId.
 *
 * @throws {@link InvalidOptionError} when the value cannot be a dedupeId.
 */
export function readDedupeId(where: string, given: unknown): string {
  const read = KEY.safeParse(given);
  if (read.success) return read.data;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where, option: "dedupeId", value: given, remedy });
}

/** Copies the values of `at`, `cost` and `dedupe`, because the caller may reuse these objects. */
function ownOf(read: JobOptionsRead): JobOptionsRead {
  const { at, cost, dedupe } = read;
  const isOwn = [at, cost, dedupe].every((value) => typeof value !== "object");
  if (isOwn) return read;
  return {
    ...read,
    dedupe: typeof dedupe === "object" ? { ...dedupe } : dedupe,
    at: typeof at === "object" ? at.getTime() : at,
    cost: typeof cost === "object" ? { ...cost } : cost,
  };
}

/** Adds the queue's default options to the options of a job. */
export function withDefaults<Options extends JobOptionsRead>(
  options: Options,
  defaults: JobDefaults,
): Options {
  const backoff = layered(defaults.backoff, options.backoff);
  return layered<object>(defaults, options, { backoff }) as Options;
}

export function isRecurring({ every, cron }: Pick<JobOptions, "every" | "cron">): boolean {
  return every !== undefined || cron !== undefined;
}

function has(one: unknown, other: unknown): boolean {
  return one !== undefined && other !== undefined;
}

function isTime(value: unknown): boolean {
  const [ms, leastMs] = value instanceof Date ? [value.getTime(), 0] : [value, LEAST_MS];
  return Number.isSafeInteger(ms) && (ms as number) >= leastMs && (ms as number) <= LATEST_MS;
}

/** Selects a key or a parent key. Without a key, it selects the whole queue. */
export interface KeyFilter {
  /**
   * The tenant, account or endpoint that the jobs are for. All keys below this key are included: `"acme"` includes
   * `["acme", "endpoint-7"]` and all other paths that begin with `"acme"`.
   */
  readonly key?: Key | undefined;
}

/** @deprecated Use `KeyFilter`. */
export type OfKey = KeyFilter;

/** Selects the jobs of a key, and records in the change log who makes the change and why. */
export interface OfKeyByHand extends KeyFilter, WhoAndWhy {}

const OF_KEY = z.strictObject({ key: KEY_PATH.optional() });
const OF_KEY_BY_HAND = OF_KEY.extend(WHO_AND_WHY);

/**
 * Validates options with an optional key, and encodes the key as text.
 *
 * @throws {@link InvalidOptionError} when the key is invalid, or there is another option.
 */
export function readOfKey(where: string, given: unknown): { readonly key?: string | undefined } {
  return readOptional(where, OF_KEY, given);
}

/** Like {@link readOfKey}, and also reads who makes the change and why. */
export function readOfKeyByHand(
  where: string,
  given: unknown,
): WhoAndWhy & { readonly key?: string | undefined } {
  return readOptional(where, OF_KEY_BY_HAND, given);
}
