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
import { OWN_ID } from "./job.ts";

/** How one job is queued. A recurring job has `every` or `cron`, and a `dedupeId`. */
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

/** All options of a job, without the rules of which ones belong together. */
interface JobOptions extends JobDefaults {
  /**
   * The tenant, account or endpoint that the job is for: `"acme"`, or a path of up to three names, the widest first,
   * `["acme", "endpoint-7"]`. Names have 1 to 256 characters. Defaults to none.
   */
  readonly key?: Key | undefined;
  /**
   * What kind of work the job is, for a queue with several kinds: `"refund"`. 1 to 256 characters, stored with the job.
   * Defaults to none.
   */
  readonly name?: string | undefined;
  /**
   * The cost of each attempt: a number of calls, or by unit, `{ tokens: 800 }`. Defaults to the bucket's `cost`, else
   * to 1 call.
   */
  readonly cost?: Cost | undefined;
  /** How long to wait before the job may start. Defaults to 0. */
  readonly delayMs?: number | undefined;
  /** When the job may start, as a Date or in ms since 1970, instead of `delayMs`. A past time means at once. */
  readonly at?: Date | number | undefined;
  /**
   * An id that you choose: 1 to 256 characters, without ":" and not only digits. While the job is kept, even after it
   * was done or has failed, no other job with this id is stored. Defaults to a number.
   */
  readonly id?: string | undefined;
  /**
   * While a job with this id is in the queue, `dedupe` decides what happens to another one. For a recurring job, this
   * is the name of its schedule.
   */
  readonly dedupeId?: string | undefined;
  /**
   * What happens to a job while another one has its `dedupeId`:
   *
   * - `"first"`: nothing is stored.
   * - `"last"`: if the other job is pending, it gets this data and these options, except for key, priority and times.
   *   If it has begun, this job is stored beside it.
   * - `"again"`: the same if the other job is pending. If it has begun, this job is stored and runs after it, however
   *   it ends. At most one job waits in this way, with the newest data.
   *
   * Defaults to `"first"`.
   */
  readonly dedupe?: DedupeMode | undefined;
  /**
   * How long `dedupeId` holds, counted from when the job is stored; only for `"first"`. By default it holds until the
   * job is done or has failed.
   */
  readonly dedupeMs?: number | undefined;
  /** The time limit of one attempt of this job, in ms, instead of its worker's `timeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** Makes the job recurring, with this interval in ms, from 100. The first run is due at once. Needs a `dedupeId`. */
  readonly every?: number | undefined;
  /**
   * Makes the job recurring, at the times of a cron expression of five fields, or of six with the second first: `"0 9 *
   * * 1-5"`, `"@midnight"`. `H` is a value that depends on the `dedupeId`: `"H H * * *"` is once a day. Needs a
   * `dedupeId`.
   */
  readonly cron?: string | undefined;
  /** The time zone of `cron`: `"Europe/Berlin"`. Defaults to `"UTC"`. */
  readonly timeZone?: string | undefined;
  /**
   * What happens to times of a recurring job that pass while its run waits, or may not overlap the last run. `"skip"`
   * only counts them; `"once"` makes up for them with one run. Defaults to `"skip"`.
   */
  readonly missed?: "skip" | "once" | undefined;
  /** Whether a run of a recurring job may begin while the last one still runs. Defaults to true. */
  readonly overlap?: boolean | undefined;
}

/**
 * What a dead letter does to its ordered key. 1: the next job begins. 2: the next job waits until the dead letter was
 * replayed or purged.
 */
export type LaneOrder = 1 | 2;

/** The options of a job after they were read. The key is its text. */
export type JobOptionsRead = Omit<JobOptions, "key"> & { readonly key?: string | undefined };

/** The same, with the order of its key; undefined if the key is not ordered. */
export type OrderedJobOptions = JobOptionsRead & { readonly ordered?: LaneOrder | undefined };

/** The latest time that BullMQ's scores of delayed jobs can hold: ms × 2^12 below 2^53. */
const LATEST_MS = 2 ** 41 - 1;
const AT_ERROR = { error: "give a Date, or ms (not seconds) since 1970, before 2039-09-07" };
/** Smaller numbers (before 1973) are assumed to be seconds. */
const LEAST_MS = 1e11;
/** @internal */
export const AT: z.ZodType<Date | number> = z.custom<Date | number>(isTime, AT_ERROR);
const TIME = wholeNumber(1, LONGEST_MS, "milliseconds").optional();
/** Stored unchanged, and never part of a Redis key. */
const JOB_NAME = nameOf("leave out control characters");

const DEDUPE_MODES: readonly DedupeMode[] = ["first", "last", "again"];

const ENQUEUE_OPTIONS = z.strictObject({
  key: KEY_PATH.optional(),
  name: JOB_NAME.optional(),
  cost: COST.optional(),
  timeoutMs: TIME,
  delayMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
  at: AT.optional(),
  id: OWN_ID.optional(),
  dedupeId: KEY.optional(),
  dedupe: z.enum(DEDUPE_MODES, { error: 'give "first", "last" or "again"' }).optional(),
  dedupeMs: TIME,
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

/** Options that exclude or need one another. */
const RULES: readonly {
  readonly option: keyof EnqueueOptions;
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

/** @throws {@link InvalidOptionError} when an option, or two together, can never work. */
export function readEnqueueOptions(where: string, given: unknown): JobOptionsRead {
  const read: JobOptionsRead = readOptional(where, ENQUEUE_OPTIONS, given);
  const broken = RULES.find(({ isBroken }) => isBroken(read));
  if (broken === undefined) return ownOf(read);
  const { option } = broken;
  const remedy = typeof broken.remedy === "string" ? broken.remedy : broken.remedy(read)!;
  throw new InvalidOptionError({ where, option, value: read[option], remedy });
}

function faultOf({ cron, timeZone, dedupeId }: JobOptionsRead): string | undefined {
  return cron === undefined ? undefined : cronFault({ cron, timeZone, id: dedupeId! });
}

/** @throws {@link InvalidOptionError} for what cannot be a dedupeId. */
export function readDedupeId(where: string, given: unknown): string {
  const read = KEY.safeParse(given);
  if (read.success) return read.data;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where, option: "dedupeId", value: given, remedy });
}

/** Copies the objects that reading does not copy. */
function ownOf(read: JobOptionsRead): JobOptionsRead {
  const { at, cost } = read;
  if (typeof at !== "object" && typeof cost !== "object") return read;
  return {
    ...read,
    at: typeof at === "object" ? at.getTime() : at,
    cost: typeof cost === "object" ? { ...cost } : cost,
  };
}

/** Fills a queue's defaults into the options of a job. */
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

/** Names a key, or a parent key. Without it, the whole queue is meant. */
export interface OfKey {
  /**
   * The tenant, account or endpoint that the jobs are for. All keys below it are included: `"acme"` stands for
   * `["acme", "endpoint-7"]` and all other paths that begin with that name.
   */
  readonly key?: Key | undefined;
}

/** Selects the jobs of a key, and records in the change log who makes the change and why. */
export interface OfKeyByHand extends OfKey, WhoAndWhy {}

const OF_KEY = z.strictObject({ key: KEY_PATH.optional() });
const OF_KEY_BY_HAND = OF_KEY.extend(WHO_AND_WHY);

/**
 * Reads the options, with the key as text.
 *
 * @throws {@link InvalidOptionError} when it is not a key, or there is another option.
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
