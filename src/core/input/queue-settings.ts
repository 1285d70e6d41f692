/**
 * The table of all queue settings: how their values are checked, and how layers of settings merge. An operator's
 * override takes precedence over the rules file, and the rules file over the code. The rules, the HTTP API, the command
 * line and the queue report read this table.
 */
import * as z from "zod";
import { MOST_LEVELS } from "../key-path.ts";
import { LONGEST_MS, PRIORITY, wholeNumber, type Priority } from "./options.ts";

/** Defaults for the options of `enqueue`. */
export interface JobDefaults {
  /** Jobs of a higher priority start first. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /**
   * How long after its due time the first attempt may start, in ms. A job that cannot start in time fails as expired.
   * Defaults to no limit.
   */
  readonly maxWaitMs?: number | undefined;
  /**
   * The number of attempts, from 1 to 1,000, after which a failed job becomes a dead letter. Defaults to 20, which the
   * backoff spreads over hours.
   */
  readonly attempts?: number | undefined;
  /**
   * The wait between attempts. The wait before attempt n + 1 is random, up to `baseMs` × 2^(n − 1) and up to `maxMs`.
   * Defaults to 1,000 ms and 3,600,000 ms (an hour).
   */
  readonly backoff?:
    | { readonly baseMs?: number | undefined; readonly maxMs?: number | undefined }
    | undefined;
}

const TIME = wholeNumber(1, LONGEST_MS, "milliseconds").optional();

/**
 * The schemas for the job options that can have a default in their queue.
 *
 * @internal
 */
export const DEFAULTED: {
  readonly priority: z.ZodOptional<z.ZodType<Priority>>;
  readonly maxWaitMs: z.ZodOptional<z.ZodType<number>>;
  readonly attempts: z.ZodOptional<z.ZodType<number>>;
  readonly backoff: z.ZodOptional<z.ZodType<NonNullable<JobDefaults["backoff"]>>>;
} = {
  priority: PRIORITY.optional().describe(
    "Jobs of a higher priority start first. Defaults to normal.",
  ),
  maxWaitMs: TIME.describe("How long after its due time the first attempt may start, in ms."),
  attempts: wholeNumber(1, 1_000, "attempts").optional().describe("The most attempts of a job."),
  backoff: z
    .strictObject({
      baseMs: TIME.describe(
        "The longest wait before the second attempt, in ms. It doubles with each attempt.",
      ),
      maxMs: TIME.describe("The longest wait before any attempt, in ms."),
    })
    .optional()
    .describe("The waits between the attempts of a job."),
};

/** The limits for stored done jobs. A done job is removed once it exceeds either limit. */
export interface KeepDone {
  /** The number of done jobs to store. The latest jobs are stored. 0 stores none. Defaults to 1,000. */
  readonly count?: number | undefined;
  /** How long to store a done job, in ms. Defaults to 86,400,000 ms (a day). */
  readonly forMs?: number | undefined;
}

const KEEP_DONE: z.ZodType<KeepDone> = z.strictObject(
  {
    count: wholeNumber(0, 10_000_000, "jobs")
      .optional()
      .describe("How many done jobs are stored at most."),
    forMs: TIME.describe("How long a done job is stored, in ms."),
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? "give { count: 1_000, forMs: 86_400_000 }" : undefined,
  },
);

/** The limits for stored dead letters. A dead letter is removed once it exceeds either limit. */
export interface KeepFailed {
  /** The number of dead letters to store. The latest dead letters are stored. 0 stores none. Defaults to no limit. */
  readonly count?: number | undefined;
  /** How long to store a dead letter, in ms. Defaults to no limit. */
  readonly forMs?: number | undefined;
}

const KEEP_FAILED: z.ZodType<KeepFailed> = z.strictObject(
  {
    count: wholeNumber(0, 10_000_000, "jobs")
      .optional()
      .describe("How many dead letters are stored at most."),
    forMs: wholeNumber(1, 100 * 365 * 86_400_000, "milliseconds")
      .optional()
      .describe("How long a dead letter is stored, in ms."),
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? "give { count: 10_000, forMs: 2_592_000_000 }" : undefined,
  },
);

/** The most pending jobs of a queue. */
export interface MaxBacklog {
  /** The most pending jobs of the whole queue, with and without a key. Defaults to no limit. */
  readonly all?: number | undefined;
  /** The most pending jobs of each key. Defaults to no limit. */
  readonly perKey?: number | undefined;
}

const BACKLOG_REMEDY = "give a number of jobs from 1, or { all: 10_000, perKey: 1_000 }";
const MOST_JOBS = wholeNumber(1, 1_000_000_000, "jobs");

const MAX_BACKLOG: z.ZodType<number | MaxBacklog> = z.union(
  [
    MOST_JOBS,
    z
      .strictObject({
        all: MOST_JOBS.optional().describe("The most pending jobs of the whole queue."),
        perKey: MOST_JOBS.optional().describe("The most pending jobs of each key."),
      })
      .refine(({ all, perKey }) => all !== undefined || perKey !== undefined, {
        error: BACKLOG_REMEDY,
      }),
  ],
  { error: BACKLOG_REMEDY },
);

/** The smallest and the greatest weight of a key. */
export const LEAST_WEIGHT = 0.001;
export const MOST_WEIGHT = 1_000;

/** The weights for key names at one level of a path. */
type WeightTable = Readonly<Record<string, number>>;

/**
 * The most weights of one queue. Each process rereads the weights when they change, and the change log stores the
 * earlier ones.
 */
const MOST_WEIGHTS = 1_000;

const WEIGHT_ERROR = `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`;

function weightsSchema(): z.ZodType<NonNullable<QueueRules["weights"]>> {
  const weights = z.record(
    z.string(),
    z
      .number({ error: WEIGHT_ERROR })
      .min(LEAST_WEIGHT, { error: WEIGHT_ERROR })
      .max(MOST_WEIGHT, { error: WEIGHT_ERROR }),
  );
  return z
    .union([weights, z.array(weights.nullable()).min(1).max(MOST_LEVELS)])
    .refine((given) => countOf(given) <= MOST_WEIGHTS, {
      error: `give the weights of ${MOST_WEIGHTS} keys at most, or those of all in code`,
    });
}

function countOf(weights: NonNullable<QueueRules["weights"]>): number {
  const levels = Array.isArray(weights) ? weights : [weights];
  return levels.reduce((sum, table) => sum + Object.keys(table ?? {}).length, 0);
}

/** The settings of a queue that can be set in the same form by code, by rules and by operators. */
export interface QueueSettings {
  /**
   * The most pending jobs: `10_000`, or `{ all: 10_000, perKey: 500 }`. Further jobs are rejected with
   * `QueueFullError`. A job is pending while it waits for a worker, for a later time or for its next attempt. Recurring
   * jobs and retries are never rejected. A limit in the code applies only to calls of `enqueue` in this process.
   * Defaults to no limit.
   */
  readonly maxBacklog?: number | MaxBacklog | undefined;
  /**
   * The done jobs that stay stored with their results, logs and progress: the last `count`, for at most `forMs`. The
   * workers of each process remove all other done jobs, by the setting of that process. Calls of `finished()` resolve
   * in any case. Defaults to the last 1,000, for a day.
   */
  readonly keepDone?: KeepDone | undefined;
  /**
   * The dead letters that stay stored: the last `count`, for at most `forMs`. The workers of each process remove all
   * other dead letters, by the setting of that process, and log how many they removed. They remove none during a
   * replay. Defaults to all dead letters, forever.
   */
  readonly keepFailed?: KeepFailed | undefined;
  /**
   * Defaults for the options of `enqueue`: `{ attempts: 8, backoff: { baseMs: 500 } }`. Defaults in the code apply only
   * to this process.
   */
  readonly defaults?: JobDefaults | undefined;
}

/** The settings of a queue in a rules file, or set by an operator. Omitted settings keep the value from the code. */
export interface QueueRules extends QueueSettings {
  /** The weights for up to 1,000 keys, over all levels. */
  readonly weights?: WeightTable | readonly (WeightTable | null)[] | undefined;
}

export type QueueSettingName = keyof QueueRules;

interface Setting<Value> {
  readonly about: string;
  /** The allowed forms of the value, shown to users of the HTTP API. */
  readonly forms: string;
  /** Creates the schema. This is a function so that only processes that need a costly schema create it. */
  readonly schema: () => z.ZodType<Value>;
  /** Converts a short form of the value into an object, so that layers can merge. */
  readonly expand?: (value: Value) => object;
  /** The default value. The code, the rules and operators override it. */
  readonly initial?: Value;
}

/** @internal */
export const QUEUE_SETTINGS: {
  readonly [Name in QueueSettingName]-?: Setting<NonNullable<QueueRules[Name]>>;
} = {
  maxBacklog: {
    about: "How many jobs may be pending",
    forms: "10000, or { all, perKey }",
    schema: () => MAX_BACKLOG,
    expand: (value) => (typeof value === "number" ? { all: value } : value),
  },
  keepDone: {
    about: "Which done jobs are kept",
    forms: "{ count, forMs }",
    schema: () => KEEP_DONE,
    initial: { count: 1_000, forMs: 86_400_000 },
  },
  keepFailed: {
    about: "Which dead letters are kept",
    forms: "{ count, forMs }",
    schema: () => KEEP_FAILED,
  },
  defaults: {
    about: "Defaults for the options of jobs",
    forms: "{ attempts, priority, … }",
    schema: () => z.strictObject(DEFAULTED),
  },
  weights: {
    about: "How much of a shared rate each key gets relative to others, by name or by level",
    forms: "{ acme: 3 }, or a list of these by level",
    schema: weightsSchema,
  },
};

export const SETTING_NAMES = Object.keys(QUEUE_SETTINGS) as readonly QueueSettingName[];
/**
 * The settings that code sets in the same form as rules. `weights` is excluded, because it may be a function in code,
 * and is read and merged separately.
 */
const IN_CODE = SETTING_NAMES.filter((name) => name !== "weights");

type Values = Readonly<Partial<Record<QueueSettingName, unknown>>>;

function mapped(
  names: readonly QueueSettingName[],
  make: (setting: Setting<unknown>, name: QueueSettingName) => unknown,
): Values {
  const made = names.map((name) => [name, make(QUEUE_SETTINGS[name] as Setting<unknown>, name)]);
  return Object.fromEntries(made.filter(([, value]) => value !== undefined)) as Values;
}

/**
 * Creates the schemas for the settings in a rules file.
 *
 * @internal
 */
export function queueSettingSchemas(): {
  readonly [Name in QueueSettingName]-?: z.ZodOptional<z.ZodType<NonNullable<QueueRules[Name]>>>;
} {
  return mapped(SETTING_NAMES, ({ schema, about }) =>
    schema().optional().describe(`${about}.`),
  ) as ReturnType<typeof queueSettingSchemas>;
}

/**
 * Creates the schemas for the settings in the options of a queue.
 *
 * @internal
 */
export function codeSettingSchemas(): {
  readonly [Name in keyof QueueSettings]-?: z.ZodOptional<
    z.ZodType<NonNullable<QueueSettings[Name]>>
  >;
} {
  return mapped(IN_CODE, ({ schema }) => schema().optional()) as ReturnType<
    typeof codeSettingSchemas
  >;
}

/** Returns only the settings from the options of a queue. Omitted parts of a setting have their default values. */
export function completeSettings(given: QueueSettings): QueueSettings {
  return mapped(IN_CODE, ({ initial }, name) => {
    const value = given[name as keyof QueueSettings];
    return value === undefined ? undefined : mergeValues([initial, value]);
  }) as QueueSettings;
}

/**
 * Merges the values of one setting. Objects are merged part by part, at all depths. Later values override earlier ones.
 */
function mergeValues(values: readonly unknown[]): unknown {
  const latest = values.findLast((value) => value !== undefined);
  if (typeof latest !== "object") return latest;
  const layers = values.filter((value) => typeof value === "object") as Record<string, unknown>[];
  const names = new Set(layers.flatMap((layer) => Object.keys(layer)));
  const parts = [...names].map((name) => [name, mergeValues(layers.map((layer) => layer[name]))]);
  return Object.fromEntries(parts.filter(([, value]) => value !== undefined));
}

/** The settings that apply if neither the code nor the rules nor an operator set any. */
export const INITIAL_SETTINGS = mapped(IN_CODE, ({ initial }) => initial) as QueueSettings;

/** Returns the settings of one layer, with each value expanded to an object. */
export function expandSettings(given: QueueRules): Values {
  return mapped(SETTING_NAMES, ({ expand }, name) =>
    expand === undefined || given[name] === undefined ? given[name] : expand(given[name]),
  );
}

/** The active settings of a queue. */
export interface SettingsInForce {
  readonly maxBacklog: MaxBacklog | undefined;
  readonly keepDone: { readonly count: number; readonly forMs: number };
  readonly keepFailed: KeepFailed | undefined;
  readonly defaults: JobDefaults | undefined;
}

/** Merges layers of settings, part by part. Later layers override earlier ones. */
export function mergeSettings(...layers: readonly QueueRules[]): SettingsInForce {
  const expanded = layers.map(expandSettings);
  return mapped(IN_CODE, ({ initial }, name) =>
    mergeValues([initial, ...expanded.map((each) => each[name])]),
  ) as unknown as SettingsInForce;
}
