import { distance } from "fastest-levenshtein";
import * as z from "zod";
import { isThenable } from "./describe.ts";
import { InvalidOptionError } from "./errors.ts";

/** Who leaves a line first; inside one priority it is first come, first served. */
export type Priority = "critical" | "high" | "normal" | "low";

/** Most urgent first. */
export const PRIORITIES: readonly Priority[] = ["critical", "high", "normal", "low"];

/** How many priorities are more urgent: 0 is the most urgent. */
export const RANKS = Object.fromEntries(
  PRIORITIES.map((priority, rank) => [priority, rank]),
) as Readonly<Record<Priority, number>>;

/**
 * Reads options once, at the edge: an unknown name or a bad value fails here and nowhere else.
 *
 * @throws {@link InvalidOptionError} naming the option, its value and the remedy.
 *
 * @internal
 */
export function readOptions<Schema extends z.ZodObject>(
  where: string,
  schema: Schema,
  given: unknown,
): Readonly<z.output<Schema>> {
  if (isThenable(given)) throw promisedOptions(where, given);
  const read = schema.safeParse(given);
  if (read.success) return Object.freeze(read.data);
  const { issues } = read.error;
  const issue = issues.find(({ code }) => code === "unrecognized_keys") ?? issues[0]!;
  const within = shapeAt(schema, issue.path);
  if (issue.code === "unrecognized_keys") {
    throw unknownOption(where, within, given, [...issue.path, issue.keys[0]!]);
  }
  if (issue.path.length === 0) {
    const remedy = `give an object of options: ${within.join(", ")}`;
    throw new InvalidOptionError({ where, option: "options", value: given, remedy });
  }
  const option = issue.path.join(".");
  const isNoObject = within.length > 0 && issue.code === "invalid_type";
  throw new InvalidOptionError({
    where,
    option,
    value: valueAt(given, issue.path),
    remedy: isNoObject ? `give an object of ${within.join(", ")}` : issue.message,
  });
}

/** A promise has no fields of its own, and would pass for options that name nothing. */
function promisedOptions(where: string, given: PromiseLike<unknown>): InvalidOptionError {
  const remedy = "give options at once: nobody waits for a promise of them";
  return new InvalidOptionError({ where, option: "options", value: given, remedy });
}

function unknownOption(
  where: string,
  known: readonly string[],
  given: unknown,
  path: readonly PropertyKey[],
): InvalidOptionError {
  const name = String(path.at(-1));
  const near = closest(name, known);
  const likely =
    near === undefined ? `the options are ${known.join(", ")}` : `did you mean ${near}?`;
  const remedy = `there is no such option; ${knownElsewhere(name, known) ?? likely}`;
  return new InvalidOptionError({
    where,
    option: path.join("."),
    value: valueAt(given, path),
    remedy,
  });
}

/** The names of the options at a place among others; none where there is another value. */
function shapeAt(schema: z.ZodType, path: readonly PropertyKey[]): readonly string[] {
  let found: unknown = schema;
  for (const name of path) {
    if (!(found instanceof z.ZodObject)) return [];
    found = found.shape[name as string];
    if (found instanceof z.ZodOptional) found = found.unwrap();
  }
  return found instanceof z.ZodObject ? Object.keys(found.shape) : [];
}

function valueAt(given: unknown, path: readonly PropertyKey[]): unknown {
  let value = given;
  for (const name of path) value = (value as Record<PropertyKey, unknown> | undefined)?.[name];
  return value;
}

/**
 * A whole number within bounds.
 *
 * @internal
 */
export function wholeNumber(least: number, most: number, unit: string): z.ZodType<number> {
  const error = `give a whole number of ${unit} from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

/** The longest time that an option may name: a timer of Node holds no more. */
export const LONGEST_MS: number = 2 ** 31 - 1;

/**
 * The names of buckets, queues and keys: they become parts of Redis keys, and must not leave theirs.
 *
 * @internal
 */
export const NAME: z.ZodType<string> = z
  .string({ error: "give a string" })
  .refine((name) => name.length >= 1 && name.length <= 256, {
    error: "give a name of 1 to 256 characters",
    abort: true,
  })
  .refine((name) => !/[{}:\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(name), {
    error: 'leave out "{", "}", ":" and control characters, which Redis keys are built with',
  });

/**
 * Whom a call is for: an account, an endpoint, an IP address. What Redis keys are built with is encoded there.
 *
 * @internal
 */
export const KEY: z.ZodType<string> = z
  .string({ error: "give a string" })
  .refine((name) => name.length >= 1 && name.length <= 256, {
    error: "give a name of 1 to 256 characters",
    abort: true,
  })
  .refine((name) => !/[{}\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(name), {
    error: 'leave out "{", "}" and control characters, or pass encodeURIComponent(key)',
  });

/**
 * What a limit counts.
 *
 * @internal
 */
export const UNIT: z.ZodType<string> = z
  .string({ error: 'give a name such as "tokens"' })
  .regex(/^[a-z][a-z0-9_-]{0,39}$/i, { error: 'give a short name such as "tokens"' });

/** @internal */
export const PRIORITY: z.ZodType<Priority> = z.enum(PRIORITIES, {
  error: `give one of ${PRIORITIES.map((priority) => `"${priority}"`).join(", ")}`,
});

/** @throws {@link InvalidOptionError} when the name cannot be part of a Redis key. */
export function readName(where: string, option: string, name: unknown): string {
  const read = NAME.safeParse(name);
  if (read.success) return read.data;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where, option, value: name, remedy });
}

/** A longer name is cut: it comes from a user, and the known ones are short. */
const LONGEST_NAME = 40;

/** The known name that a mistyped one most likely meant, or undefined if none is near. */
export function closest(name: string, known: readonly string[]): string | undefined {
  const mistyped = name.slice(0, LONGEST_NAME).toLowerCase();
  const byDistance = known
    .map((candidate) => ({ candidate, distance: distance(mistyped, candidate.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance);
  const best = byDistance[0];
  if (best === undefined) return undefined;
  const isPrefix = name.length >= 3 && best.candidate.startsWith(name);
  return isPrefix || best.distance <= Math.ceil(name.length / 3) ? best.candidate : undefined;
}

/**
 * What options of libraries with a task like this one's are called here, the nearest first; or, where there is no
 * such option, what to know instead.
 */
const NAMES_HERE: ReadonlyMap<string, readonly string[] | string> = new Map<
  string,
  readonly string[] | string
>([
  // Bottleneck
  ["minTime", ["rate"]],
  ["maxConcurrent", ["concurrency"]],
  ["reservoir", ["limits"]],
  ["reservoirRefreshAmount", ["limits"]],
  ["reservoirRefreshInterval", ["limits"]],
  ["reservoirIncreaseAmount", ["limits"]],
  ["reservoirIncreaseInterval", ["limits"]],
  ["highWater", ["maxWaiting"]],
  ["strategy", ["maxWaiting"]],
  ["weight", ["cost"]],
  ["expiration", "a call has to end by itself; a worker has timeoutMs for its jobs"],
  ["datastore", ["redis"]],
  ["clientOptions", ["redis"]],
  // p-throttle and p-queue
  ["limit", ["rate", "limits"]],
  ["interval", ["rate", "limits"]],
  ["intervalCap", ["rate", "limits"]],
  ["strict", ["limits"]],
  // rate-limiter-flexible
  ["points", ["limits", "cost"]],
  ["duration", ["limits"]],
  ["storeClient", ["redis"]],
  ["keyPrefix", ["prefix"]],
  ["insuranceLimiter", ["onStoreDown"]],
  ["inMemoryBlockOnConsumed", "refusals are always remembered"],
  // BullMQ
  ["connection", ["redis"]],
  ["limiter", "the bucket of the queue has the rate"],
  ["max", ["rate", "limits"]],
  ["defaultJobOptions", ["defaults"]],
  ["delay", ["delayMs", "baseMs"]],
  ["timeout", "a worker has timeoutMs for its jobs"],
  ["type", "a backoff is exponential, with full jitter: { baseMs, maxMs }"],
  ["jobId", ["dedupeId"]],
  ["deduplication", ["dedupeId"]],
  ["repeat", ["every", "cron"]],
  ["pattern", ["cron"]],
  ["tz", ["timeZone"]],
  ["lockDuration", ["lockMs"]],
  ["removeOnComplete", "done jobs are kept for a day, 1,000 at most"],
  ["removeOnFail", "failed jobs are kept until they are replayed or purged"],
  // What is said elsewhere in this library.
  ["maxWaitMs", "each call says it: draw(), with() or throttled()"],
]);

/** What to say of an option of another library, or of another place here, in place of one of these; undefined of any else. */
function knownElsewhere(name: string, known: readonly string[]): string | undefined {
  const here = NAMES_HERE.get(name);
  if (here === undefined || typeof here === "string") return here;
  const named = here.filter((each) => known.includes(each));
  return named.length === 0 ? undefined : `did you mean ${named.join(" or ")}?`;
}
