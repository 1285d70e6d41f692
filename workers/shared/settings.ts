import { InvalidOptionError, leakyBucket } from "sluice";
import { z } from "zod";

/** The name and the parser of one environment variable. */
interface Variable {
  readonly name: string;
  /** Parses the text of the variable. */
  readonly as: z.ZodType;
  /** Whether the value must never be shown. Defaults to false. */
  readonly isSecret?: boolean;
}

/** A worker's environment variables. The property names are the names of the settings in the code. */
export type Variables = Readonly<Record<string, Variable>>;

export type SettingsOf<Given extends Variables> = {
  readonly [Name in keyof Given]: z.output<Given[Name]["as"]>;
};

/** Thrown when variables are invalid. The message has one line for each invalid variable. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/**
 * Reads and validates the environment variables once. An empty variable counts as not set.
 *
 * @throws {@link SettingsError} when variables are invalid; the message says for each of them what to do.
 */
export function readSettings<Given extends Variables>(
  environment: NodeJS.ProcessEnv,
  variables: Given,
): SettingsOf<Given> {
  const settings: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [setting, variable] of Object.entries(variables)) {
    const text = environment[variable.name] || undefined;
    const read = variable.as.safeParse(text);
    if (read.success) settings[setting] = read.data;
    else problems.push(describeProblem(variable, text, read.error.issues[0]!.message));
  }
  if (problems.length > 0) throw new SettingsError(problems.join("\n"));
  return Object.freeze(settings) as SettingsOf<Given>;
}

/**
 * Returns the texts that a log must never show: the values of secret variables, and the passwords in values that are
 * URLs.
 */
export function secretsOf(environment: NodeJS.ProcessEnv, variables: Variables): string[] {
  const secret = Object.values(variables).filter(({ isSecret }) => isSecret === true);
  return secret.flatMap(({ name }) => {
    const text = environment[name] ?? "";
    const { password = "" } = URL.canParse(text) ? new URL(text) : {};
    return [text, password, decode(password)].filter((value) => value !== "");
  });
}

function describeProblem({ name, isSecret }: Variable, text: string | undefined, remedy: string) {
  const what = isSecret === true ? "cannot be used" : `is ${JSON.stringify(text)}`;
  return `${name} ${text === undefined ? "is not set" : what}; ${remedy}.`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const LONGEST_MS = 2 ** 31 - 1;
const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

const redisUrl = z
  .string({ error: "give the address of Redis, such as redis://127.0.0.1:6379" })
  .refine((text) => /^rediss?:\/\/./.test(text) && URL.canParse(text), {
    error: "give an address such as redis://127.0.0.1:6379, or rediss:// for TLS",
  });
const name = z.string().regex(/^[^{}:\p{Cc}]{1,256}$/u, {
  error: 'give 1 to 256 characters without "{", "}" and ":"',
});
const logLevel = z.enum(LOG_LEVELS, { error: `give one of ${LOG_LEVELS.join(", ")}` });

/** Parses an API key that can be sent in a header. */
export const apiKey: z.ZodType<string> = z
  .string({ error: "give the key of the API" })
  .regex(/^[\x21-\x7e]+$/, { error: "give printable ASCII characters without spaces" });

export function baseUrl(preset: string): z.ZodType<string> {
  const isHttp = (text: string): boolean => /^https?:\/\/./.test(text) && URL.canParse(text);
  const error = `give an http or https address, such as ${preset}`;
  return z.string().refine(isHttp, { error }).default(preset);
}

export function wholeNumber(least: number, most: number, unit: string): z.ZodType<number, string> {
  const error = `give a whole number of ${unit} from ${least} to ${most}`;
  return z
    .string()
    .regex(/^\d{1,16}$/, { error, abort: true })
    .transform(Number)
    .refine((number) => number >= least && number <= most, { error });
}

/**
 * Returns the variables for the queue, its bucket, and the most parallel calls. Producers and workers read the same
 * variables.
 */
export function queueVariables(queue: string) {
  return {
    queue: { name: "SLUICE_QUEUE", as: name.default(queue) },
    bucket: { name: "SLUICE_BUCKET", as: name.optional() },
    parallel: {
      name: "SLUICE_MAX_PARALLEL",
      as: wholeNumber(1, 1_000_000, "calls").optional(),
    },
  } satisfies Variables;
}

/** Parses a rate of calls, in the library's form: `"100/s"`. */
export const rate: z.ZodType<string, string> = z.string().superRefine((text, context) => {
  try {
    leakyBucket(text);
  } catch (error) {
    if (!(error instanceof InvalidOptionError)) throw error;
    const [, message = error.message] = /; (.*)\.$/.exec(error.message) ?? [];
    context.addIssue({ code: "custom", message });
  }
});

/** Parses `true` or `false`. Defaults to false. */
export const flag: z.ZodType<boolean> = z
  .enum(["true", "false"], { error: "give true or false" })
  .default("false")
  .transform((text) => text === "true");

/** Parses a list of texts, separated by commas. */
export const list: z.ZodType<string[], string> = z
  .string()
  .transform((text) => text.split(",").map((each) => each.trim()));

/** Returns the variables for a rate of evenly spaced calls, and for its burst. */
export function rateVariables(preset: string) {
  return {
    rate: { name: "SLUICE_RATE", as: rate.default(preset) },
    burst: {
      name: "SLUICE_BURST",
      as: wholeNumber(1, Number.MAX_SAFE_INTEGER, "calls").optional(),
    },
  } satisfies Variables;
}

interface WorkerDefaults {
  readonly timeoutMs: number;
  readonly concurrency?: number;
}

/** Returns the variables for the settings of a worker process. */
export function workerVariables({ timeoutMs, concurrency = 50 }: WorkerDefaults) {
  return {
    redisUrl: { name: "REDIS_URL", as: redisUrl, isSecret: true },
    prefix: { name: "SLUICE_PREFIX", as: name.optional() },
    concurrency: {
      name: "SLUICE_CONCURRENCY",
      as: wholeNumber(1, 100_000, "jobs").default(concurrency),
    },
    timeoutMs: { name: "SLUICE_TIMEOUT_MS", as: milliseconds(1).default(timeoutMs) },
    closeDeadlineMs: { name: "SLUICE_CLOSE_DEADLINE_MS", as: milliseconds(0).default(30_000) },
    lockMs: { name: "SLUICE_LOCK_MS", as: milliseconds(1_000).default(30_000) },
    logLevel: { name: "LOG_LEVEL", as: logLevel.default("info") },
  } satisfies Variables;
}

export function milliseconds(least: number): z.ZodType<number, string> {
  return wholeNumber(least, LONGEST_MS, "milliseconds");
}
