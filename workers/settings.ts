import { z } from "zod";

/** What the environment says; each variable is described in `workers/README.md`. */
export interface Settings {
  readonly redisUrl: string;
  readonly queue: string;
  readonly bucket: string;
  readonly rate: string;
  readonly burst: number | undefined;
  readonly concurrency: number;
  readonly prefix: string | undefined;
  readonly timeoutMs: number;
  readonly closeDeadlineMs: number;
  readonly userAgent: string;
  readonly logLevel: string;
}

/** Thrown when a variable can never work; the message has a line for each of them. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

const LONGEST_MS = 2 ** 31 - 1;
const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;
/** Its value may hold a password, so it is never shown. */
const SECRET = "REDIS_URL";

const redisUrl = z
  .string({ error: "give the address of Redis, such as redis://127.0.0.1:6379" })
  .refine((text) => /^rediss?:\/\/./.test(text) && URL.canParse(text), {
    error: "give an address such as redis://127.0.0.1:6379, or rediss:// for TLS",
  });
const name = z.string().regex(/^[^{}:\p{Cc}]{1,256}$/u, {
  error: 'give 1 to 256 characters without "{", "}" and ":"',
});
const userAgent = z.string().regex(/^[\x21-\x7e]+( [\x21-\x7e]+)*$/, {
  error: "give printable ASCII characters",
});

const VARIABLES = z.object({
  REDIS_URL: redisUrl,
  SLUICE_QUEUE: name.default("webhooks"),
  SLUICE_BUCKET: name.optional(),
  SLUICE_RATE: z.string().default("100/s"),
  SLUICE_BURST: wholeNumber(1, Number.MAX_SAFE_INTEGER, "calls").optional(),
  SLUICE_CONCURRENCY: wholeNumber(1, 100_000, "jobs").default(50),
  SLUICE_PREFIX: name.optional(),
  SLUICE_TIMEOUT_MS: wholeNumber(1, LONGEST_MS, "milliseconds").default(15_000),
  SLUICE_CLOSE_DEADLINE_MS: wholeNumber(0, LONGEST_MS, "milliseconds").default(30_000),
  SLUICE_USER_AGENT: userAgent.default("sluice-webhook-worker"),
  LOG_LEVEL: z.enum(LOG_LEVELS, { error: `give one of ${LOG_LEVELS.join(", ")}` }).default("info"),
});

/**
 * Reads the environment once; an empty variable counts as one that is not set.
 *
 * @throws {@link SettingsError} naming each variable that can never work, and the remedy.
 */
export function readSettings(environment: NodeJS.ProcessEnv): Settings {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== ""));
  const read = VARIABLES.safeParse(given);
  if (!read.success) {
    const lines = read.error.issues.map(({ path, message }) => {
      const variable = String(path[0]);
      return `${variable} ${describe(variable, given[variable])}; ${message}.`;
    });
    throw new SettingsError(lines.join("\n"));
  }
  const variables = read.data;
  return Object.freeze({
    redisUrl: variables.REDIS_URL,
    queue: variables.SLUICE_QUEUE,
    bucket: variables.SLUICE_BUCKET ?? variables.SLUICE_QUEUE,
    rate: variables.SLUICE_RATE,
    burst: variables.SLUICE_BURST,
    concurrency: variables.SLUICE_CONCURRENCY,
    prefix: variables.SLUICE_PREFIX,
    timeoutMs: variables.SLUICE_TIMEOUT_MS,
    closeDeadlineMs: variables.SLUICE_CLOSE_DEADLINE_MS,
    userAgent: variables.SLUICE_USER_AGENT,
    logLevel: variables.LOG_LEVEL,
  });
}

function wholeNumber(least: number, most: number, unit: string): z.ZodType<number, string> {
  const error = `give a whole number of ${unit} from ${least} to ${most}`;
  return z
    .string()
    .regex(/^\d{1,16}$/, { error, abort: true })
    .transform(Number)
    .refine((number) => number >= least && number <= most, { error });
}

function describe(variable: string, value: string | undefined): string {
  if (value === undefined) return "is not set";
  return variable === SECRET ? "is no such address" : `is ${JSON.stringify(value)}`;
}
