/** What can be set of a queue while it is open: by its code, and over that by a rules file. */
import * as z from "zod";
import { MOST_LEVELS } from "../key-path.ts";
import { LONGEST_MS, PRIORITY, wholeNumber, type Priority } from "./options.ts";

/** The options of a queue's jobs for which `enqueue` gets no others. */
export interface JobDefaults {
  /** Which jobs leave the queue, and then the line, first. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** How long after it is due the job's first attempt may start; later it fails as expired. Defaults to no limit. */
  readonly maxWaitMs?: number | undefined;
  /** How often the job is tried before it is kept as failed, from 1 to 1,000. Defaults to 20: over hours, by its backoff. */
  readonly attempts?: number | undefined;
  /**
   * The wait before try n + 1 is a random part of `baseMs` × 2^(n − 1), and of `maxMs` at most.
   * Defaults to 1,000 ms, and 3,600,000 ms (an hour) at most.
   */
  readonly backoff?:
    | { readonly baseMs?: number | undefined; readonly maxMs?: number | undefined }
    | undefined;
}

const TIME = wholeNumber(1, LONGEST_MS, "milliseconds").optional();

/**
 * The options that a queue may set for all of its jobs.
 *
 * @internal
 */
export const DEFAULTED: {
  readonly priority: z.ZodOptional<z.ZodType<Priority>>;
  readonly maxWaitMs: z.ZodOptional<z.ZodType<number>>;
  readonly attempts: z.ZodOptional<z.ZodType<number>>;
  readonly backoff: z.ZodOptional<z.ZodType<NonNullable<JobDefaults["backoff"]>>>;
} = {
  priority: PRIORITY.optional(),
  maxWaitMs: TIME,
  attempts: wholeNumber(1, 1_000, "attempts").optional(),
  backoff: z.strictObject({ baseMs: TIME, maxMs: TIME }).optional(),
};
/** @internal */
export const JOB_DEFAULTS: z.ZodType<JobDefaults> = z.strictObject(DEFAULTED);

/** Which done jobs a queue keeps: those that both bounds allow. */
export interface KeepDone {
  /** How many at most, the last ones. 0 keeps none. Defaults to 1,000. */
  readonly count?: number | undefined;
  /** How long at most. Defaults to 86,400,000 ms (a day). */
  readonly forMs?: number | undefined;
}

/** @internal */
export const KEEP_DONE: z.ZodType<KeepDone> = z.strictObject(
  {
    count: wholeNumber(0, 10_000_000, "jobs").optional(),
    forMs: TIME,
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? "give { count: 1_000, forMs: 86_400_000 }" : undefined,
  },
);

/** Which dead letters a queue keeps: those that both bounds allow. */
export interface KeepFailed {
  /** How many at most, the last ones. 0 keeps none. Defaults to no bound. */
  readonly count?: number | undefined;
  /** How long at most. Defaults to no bound. */
  readonly forMs?: number | undefined;
}

/** @internal */
export const KEEP_FAILED: z.ZodType<KeepFailed> = z.strictObject(
  {
    count: wholeNumber(0, 10_000_000, "jobs").optional(),
    forMs: wholeNumber(1, 100 * 365 * 86_400_000, "milliseconds").optional(),
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? "give { count: 10_000, forMs: 2_592_000_000 }" : undefined,
  },
);

/** How many jobs may wait in a queue. */
export interface MaxBacklog {
  /** Of all keys together, and without one. Defaults to no bound. */
  readonly all?: number | undefined;
  /** Of each key. Defaults to no bound. */
  readonly perKey?: number | undefined;
}

const BACKLOG_REMEDY = "give a number of jobs from 1, or { all: 10_000, perKey: 1_000 }";
const MOST_JOBS = wholeNumber(1, 1_000_000_000, "jobs");

/** @internal */
export const MAX_BACKLOG: z.ZodType<number | MaxBacklog> = z.union(
  [
    MOST_JOBS,
    z
      .strictObject({ all: MOST_JOBS.optional(), perKey: MOST_JOBS.optional() })
      .refine(({ all, perKey }) => all !== undefined || perKey !== undefined, {
        error: BACKLOG_REMEDY,
      }),
  ],
  { error: BACKLOG_REMEDY },
);

/** What the weight of a key can be. */
export const LEAST_WEIGHT = 0.001;
export const MOST_WEIGHT = 1_000;

/** The weights of names, of one level of keys. */
type WeightTable = Readonly<Record<string, number>>;

/** What rules, and operators, say of a queue. What they leave out is as the code says it. */
export interface QueueRules {
  readonly maxBacklog?: number | MaxBacklog | undefined;
  readonly keepDone?: KeepDone | undefined;
  readonly keepFailed?: KeepFailed | undefined;
  readonly defaults?: JobDefaults | undefined;
  /** Of 1,000 keys at most, of all levels together. */
  readonly weights?: WeightTable | readonly (WeightTable | null)[] | undefined;
}

export type QueueSettingName = keyof QueueRules;

/** @internal */
export const QUEUE_SETTINGS: Readonly<Record<QueueSettingName, true>> = {
  maxBacklog: true,
  keepDone: true,
  keepFailed: true,
  defaults: true,
  weights: true,
};

/** Each process reads them anew when they change, and the log of changes keeps those that were. */
const MOST_WEIGHTS = 1_000;

const WEIGHT_ERROR = `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`;

/**
 * Made where it is first needed.
 *
 * @internal
 */
export function queueSettingSchemas(): {
  readonly [Name in QueueSettingName]-?: z.ZodType<QueueRules[Name]>;
} {
  const weights = z.record(
    z.string(),
    z
      .number({ error: WEIGHT_ERROR })
      .min(LEAST_WEIGHT, { error: WEIGHT_ERROR })
      .max(MOST_WEIGHT, { error: WEIGHT_ERROR }),
  );
  return {
    maxBacklog: MAX_BACKLOG.optional().describe("How many jobs may wait."),
    keepDone: KEEP_DONE.optional().describe("Which done jobs are kept."),
    keepFailed: KEEP_FAILED.optional().describe("Which dead letters are kept."),
    defaults: JOB_DEFAULTS.optional().describe("The options of jobs that are enqueued without."),
    weights: z
      .union([weights, z.array(weights.nullable()).min(1).max(MOST_LEVELS)])
      .refine((given) => countOf(given) <= MOST_WEIGHTS, {
        error: `give the weights of ${MOST_WEIGHTS} keys at most, or those of all in code`,
      })
      .optional()
      .describe("How much of a shared rate keys get beside others: by name, or by level."),
  };
}

function countOf(weights: NonNullable<QueueRules["weights"]>): number {
  const levels = Array.isArray(weights) ? weights : [weights];
  return levels.reduce((sum, table) => sum + Object.keys(table ?? {}).length, 0);
}
