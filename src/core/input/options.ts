import { distance } from "fastest-levenshtein";
import * as z from "zod";
import { isThenable } from "../describe.ts";
import { InvalidOptionError } from "../errors.ts";

/**
 * Returns true if the value at a path of options may be a secret, which errors must not show. The path `[]` is the
 * options object itself.
 */
export type IsSecret = (path: readonly PropertyKey[]) => boolean;

const HIDDEN = "***";

/**
 * Checks options against a schema, and returns them as a frozen object. Reads each option only once.
 *
 * @throws {@link InvalidOptionError} when an option has an invalid value or an unknown name.
 *
 * @internal
 */
export function readOptions<Schema extends z.ZodObject>(
  where: string,
  schema: Schema,
  given: unknown,
  isSecret: IsSecret = () => false,
): Readonly<z.output<Schema>> {
  const shown = isSecret([]) ? HIDDEN : given;
  if (isThenable(given)) throw wrongOptions(where, shown, "not a promise of one");
  // Without this check, the methods of a collection, such as `keys`, would be read as options.
  if (isCollection(given)) throw wrongOptions(where, shown, "not a list or the like");
  const read = schema.safeParse(given);
  if (read.success) return Object.freeze(read.data);
  const { issues } = read.error;
  const issue = issues.find(({ code }) => code === "unrecognized_keys") ?? issues[0]!;
  const within = shapeAt(schema, issue.path);
  if (issue.code === "unrecognized_keys") {
    const path = [...issue.path, issue.keys[0]!];
    const value = isSecret(path) ? HIDDEN : valueAt(given, path);
    throw unknownOption(where, within, { path, value });
  }
  if (issue.path.length === 0) {
    const remedy = `give an object of options: ${within.join(", ")}`;
    throw new InvalidOptionError({ where, option: "options", value: shown, remedy });
  }
  const option = nameOfPath(issue.path);
  // The custom message of a schema is clearer than zod's message, so only zod's own message is replaced.
  const isPlain = issue.code === "invalid_type" && issue.message.startsWith("Invalid input");
  const isNoObject = within.length > 0 && isPlain;
  throw new InvalidOptionError({
    where,
    option,
    value: isSecret(issue.path) ? HIDDEN : valueAt(given, issue.path),
    remedy: isNoObject ? `give an object of ${within.join(", ")}` : issue.message,
  });
}

/**
 * Reads the options of a method that can also be called without options. Throws like {@link readOptions}.
 *
 * @internal
 */
export function readOptional<Schema extends z.ZodObject>(
  where: string,
  schema: Schema,
  given: unknown = {},
): Readonly<z.output<Schema>> {
  return readOptions(where, schema, given);
}

/**
 * Creates the error for options of the wrong type, such as a promise. A promise has no fields of its own, and would be
 * read as empty options.
 */
function wrongOptions(where: string, value: unknown, but: string): InvalidOptionError {
  const remedy = `give an object of options, ${but}`;
  return new InvalidOptionError({ where, option: "options", value, remedy });
}

function isCollection(given: unknown): boolean {
  return typeof given === "object" && given !== null && Symbol.iterator in given;
}

function unknownOption(
  where: string,
  known: readonly string[],
  { path, value }: { readonly path: readonly PropertyKey[]; readonly value: unknown },
): InvalidOptionError {
  const name = String(path.at(-1));
  const remedy = `there is no such option; ${likelyOptions(name, known)}`;
  return new InvalidOptionError({
    where,
    option: nameOfPath(path),
    value,
    remedy,
  });
}

/**
 * Returns the names of the options at a path. The path may pass through a table with arbitrary names. Returns no names
 * if the value at the path is not an object of options.
 */
function shapeAt(schema: z.ZodType, path: readonly PropertyKey[]): readonly string[] {
  let found: unknown = schema;
  for (const name of path) {
    if (found instanceof z.ZodRecord) found = objectIn(found.valueType);
    else if (found instanceof z.ZodArray) found = objectIn(found.element);
    else if (found instanceof z.ZodObject) found = objectIn(found.shape[name as string]);
    else return [];
  }
  return found instanceof z.ZodObject ? Object.keys(found.shape) : [];
}

/**
 * Finds the object schema inside a schema that also allows other types. Returns the given schema if it contains no
 * alternatives.
 */
function objectIn(schema: unknown): unknown {
  if (schema instanceof z.ZodOptional) return objectIn(schema.unwrap());
  if (!(schema instanceof z.ZodUnion)) return schema;
  return schema.options.find((each) => each instanceof z.ZodObject);
}

/** Formats the name of an option with its path: `"backoff.baseMs"`, `"key[1]"`. */
function nameOfPath(path: readonly PropertyKey[]): string {
  const parts = path.map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`));
  return parts.join("").replace(/^\./, "");
}

function valueAt(given: unknown, path: readonly PropertyKey[]): unknown {
  let value = given;
  for (const name of path) value = (value as Record<PropertyKey, unknown> | undefined)?.[name];
  return value;
}

/**
 * The schema for a whole number within bounds.
 *
 * @internal
 */
export function wholeNumber(least: number, most: number, unit: string): z.ZodType<number> {
  const error = `give a whole number of ${unit} from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

/** The longest time that an option accepts, in ms. It is the longest timeout of a timer in Node. */
export const LONGEST_MS: number = 2 ** 31 - 1;

/**
 * The schema for a name that an application chooses. `barred` matches forbidden characters, which are control
 * characters by default. `remedy` is the error message for them.
 *
 * @internal
 */
export function nameOf(
  remedy: string,
  barred: RegExp = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u,
): z.ZodType<string> {
  return z
    .string({ error: "give a string" })
    .refine((name) => name.length >= 1 && name.length <= 256, {
      error: "give a name of 1 to 256 characters",
      abort: true,
    })
    .refine((name) => !barred.test(name), { error: remedy });
}

/**
 * The schema for the name of a bucket or queue. The name becomes part of Redis keys, so it must not contain their
 * separators.
 *
 * @internal
 */
export const NAME: z.ZodType<string> = nameOf(
  'leave out "{", "}", ":" and control characters, which separate the parts of Redis keys',
  /[{}:\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u,
);

/**
 * The schema for one name in a key, such as an account, an endpoint or an IP address. It may contain the separators of
 * Redis keys, because `keys.ts` encodes them.
 *
 * @internal
 */
export const KEY: z.ZodType<string> = nameOf(
  "leave out control characters, or pass encodeURIComponent(key)",
);

/**
 * The schema for the unit that a limit counts.
 *
 * @internal
 */
export const UNIT: z.ZodType<string> = z
  .string({ error: 'give a name such as "tokens"' })
  .regex(/^[a-z][a-z0-9_-]{0,39}$/i, { error: 'give a short name such as "tokens"' });

/** The order in which waiting callers start. Callers with the same priority start in order of arrival. */
export type Priority = "critical" | "high" | "normal" | "low";

/** All priorities, the most urgent first. */
export const PRIORITIES: readonly Priority[] = ["critical", "high", "normal", "low"];

/** The rank of each priority: 0 is the most urgent. */
export const RANKS = Object.fromEntries(
  PRIORITIES.map((priority, rank) => [priority, rank]),
) as Readonly<Record<Priority, number>>;

/** @internal */
export const PRIORITY: z.ZodType<Priority> = z.enum(PRIORITIES, {
  error: `give one of ${PRIORITIES.map((priority) => `"${priority}"`).join(", ")}`,
});

/** @throws {@link InvalidOptionError} when the name cannot be used as a part of a Redis key. */
export function readName(where: string, option: string, name: unknown): string {
  const read = NAME.safeParse(name);
  if (read.success) return read.data;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where, option, value: name, remedy });
}

/**
 * The most characters of an unknown name that are compared. The name may come from a user and be long, and the known
 * names are short.
 */
const LONGEST_NAME = 40;

/** Finds the known name that is closest to a mistyped name. Returns undefined if none is similar. */
export function closest(name: string, known: readonly string[]): string | undefined {
  const mistyped = name.slice(0, LONGEST_NAME).toLowerCase();
  const byDistance = known
    .map((candidate) => ({
      candidate,
      edits: editsTo(candidate, mistyped),
      ofAll: distance(mistyped, candidate.toLowerCase()),
    }))
    .sort((a, b) => a.edits - b.edits || a.ofAll - b.ofAll);
  const best = byDistance[0];
  if (best === undefined) return undefined;
  return best.edits <= Math.ceil(name.length / 3) ? best.candidate : undefined;
}

/** The number of edits that a missing ending counts as. It counts less than a wrong letter. */
const ENDING = 0.5;

/**
 * Counts the edits between two names. The last words of the known name may be missing, such as a unit: "dely" matches
 * "delayMs".
 */
function editsTo(candidate: string, mistyped: string): number {
  const whole = distance(mistyped, candidate.toLowerCase());
  if (mistyped.length >= 3 && candidate.toLowerCase().startsWith(mistyped)) {
    return Math.min(whole, ENDING);
  }
  const beginnings = [...candidate.matchAll(/[A-Z]/g)].map(({ index }) =>
    candidate.slice(0, index),
  );
  const edits = beginnings
    .filter((beginning) => beginning.length >= 4)
    .map((beginning) => distance(mistyped, beginning.toLowerCase()) + ENDING);
  return Math.min(whole, ...edits);
}

/**
 * Merges layers of options. A later layer overrides earlier layers, except for options that it leaves undefined.
 * Returns undefined if all layers are undefined.
 */
export function layered<Options extends object>(
  ...layers: readonly (Options | undefined)[]
): Options | undefined {
  if (layers.every((layer) => layer === undefined)) return undefined;
  const given = layers.flatMap((layer) => Object.entries(layer ?? {}));
  return Object.fromEntries(given.filter(([, value]) => value !== undefined)) as Options;
}

/**
 * Returns advice about an unknown option. For an option of another library, this is the equivalent option here. For any
 * other name, it is the closest known option.
 */
export function likelyOptions(name: string, known: readonly string[]): string {
  const hint = hintForOther(name, known);
  if (hint !== undefined) return hint;
  const near = closest(name, known);
  return near === undefined ? `the options are ${known.join(", ")}` : `did you mean ${near}?`;
}

/**
 * The options of other libraries. Each one has a list of the equivalent options here, the closest first, or a hint if
 * there is no equivalent.
 */
const OPTIONS_OF_OTHER_LIBRARIES: ReadonlyMap<string, readonly string[] | string> = new Map<
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
  ["expiration", "calls have to end by themselves; for jobs, a worker has timeoutMs"],
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
  ["limiter", "give the rate to the bucket of the queue"],
  ["max", ["rate", "limits"]],
  ["defaultJobOptions", ["defaults"]],
  ["delay", ["delayMs", "baseMs"]],
  ["timeout", "for jobs, a worker and enqueue() have timeoutMs"],
  ["type", "a backoff is exponential, with full jitter: { baseMs, maxMs }"],
  ["jobId", ["id", "dedupeId"]],
  ["deduplication", ["dedupeId"]],
  ["repeat", ["every", "cron"]],
  ["pattern", ["cron"]],
  ["tz", ["timeZone"]],
  ["lockDuration", ["lockMs"]],
  ["removeOnComplete", "the queue has keepDone: { count, forMs }"],
  ["removeOnFail", "the queue has keepFailed: { count, forMs }"],
  // express-rate-limit, @fastify/rate-limit, limiter, NestJS
  ["window", ["rate", "limits"]],
  ["windowMs", ["rate", "limits"]],
  ["timeWindow", ["rate", "limits"]],
  ["tokensPerInterval", ["rate", "limits"]],
  ["ttl", ["rate", "limits", "timeoutMs"]],
  ["keyGenerator", ["key"]],
  // Common names for a rate
  ...["rps", "qps", "tps", "rpm", "rph", "reqPerSec", "requestsPerSecond", "requestsPerMinute"].map(
    (name) => [name, ["rate", "requests"]] as const,
  ),
  ...["callsPerSecond", "perSecond", "perMinute", "throughput", "maxPerSecond"].map(
    (name) => [name, ["rate", "requests"]] as const,
  ),
  ...["tpm", "tokensPerMinute", "inputTokensPerMinute"].map(
    (name) => [name, ["tokens", "input", "limits"]] as const,
  ),
  ...["rateLimit", "refillRate", "fillRate", "refill"].map(
    (name) => [name, ["rate", "limits"]] as const,
  ),
  ...["perTenant", "perUser", "perClient", "perCustomer", "perAccount", "perEndpoint", "perIp"].map(
    (name) => [name, ["perKey"]] as const,
  ),
  ...["tenant", "tenantId", "userId", "accountId", "partitionKey", "group", "groupId"].map(
    (name) => [name, ["key"]] as const,
  ),
  ...["capacity", "bucketSize", "maxBurst", "burstSize", "burstCapacity"].map(
    (name) => [name, ["burst", "limits"]] as const,
  ),
  ...["parallel", "parallelism", "concurrent", "maxParallel", "maxInFlight", "inFlight"].map(
    (name) => [name, ["concurrency"]] as const,
  ),
  // pg-boss, graphile-worker, Agenda and others
  ...["retries", "maxRetries", "retryLimit", "maxAttempts", "retry"].map(
    (name) => [name, ["attempts", "tries"]] as const,
  ),
  ...["retryDelay", "initialDelay", "retryBackoff"].map(
    (name) => [name, ["backoff", "baseMs"]] as const,
  ),
  ...["startAfter", "runAt", "scheduledAt"].map((name) => [name, ["at", "delayMs"]] as const),
  ...["singletonKey", "jobKey", "unique", "uniqueKey", "idempotencyKey"].map(
    (name) => [name, ["dedupeId", "id"]] as const,
  ),
  ["expireInSeconds", ["timeoutMs"]],
  ["schedule", ["cron"]],
  ["queueName", "give the name of the queue as the first argument"],
  // Clients of Redis
  ...["url", "uri", "host", "port", "client", "redisUrl", "redisOptions"].map(
    (name) => [name, ["redis"]] as const,
  ),
  // Options of other functions of this library.
  ["rate", "give the rate to the bucket: bucket(name, { rate })"],
  [
    "concurrency",
    "give it to the worker, or to the bucket: worker(queue, handler, { concurrency })",
  ],
  ["attempts", ["defaults"]],
  ["maxWaitMs", "give it with each call: draw(), with() or throttled()"],
]);

/** The table above, with names in lower case and without separators: `MAX_CONCURRENT` matches `maxConcurrent`. */
const BY_PLAIN_NAME = new Map(
  [...OPTIONS_OF_OTHER_LIBRARIES].map(([name, likely]) => [plainName(name), likely]),
);

function plainName(name: string): string {
  return name.slice(0, LONGEST_NAME).toLowerCase().replaceAll(/[-_]/g, "");
}

/** Returns a suggestion for an option of another library. Returns undefined if there is none. */
function hintForOther(name: string, known: readonly string[]): string | undefined {
  const names = BY_PLAIN_NAME.get(plainName(name));
  if (names === undefined) return undefined;
  // A known option with nearly the same name takes precedence over this advice.
  if (typeof names === "string") return closest(name, known) === undefined ? names : undefined;
  const likely = names.filter((each) => known.includes(each));
  return likely.length === 0 ? undefined : `did you mean ${likely.join(" or ")}?`;
}

/** True if a text is a URL with http or https, and without a user, query and hash. */
export function isBaseUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return /^https?:$/.test(protocol) && `${username}${password}${search}${hash}` === "";
}
