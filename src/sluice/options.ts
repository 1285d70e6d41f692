import process from "node:process";
import * as z from "zod";
import { CODECS, type Codec } from "../core/codec.ts";
import { InvalidOptionError, RedisRequiredError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { LONGEST_MS, NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { Schema } from "../queue/enqueue/data.ts";
import type { Ordered, Weights } from "../queue/lanes/lane-options.ts";
import { codeSettingSchemas, type QueueSettings } from "../core/input/queue-settings.ts";
import { serverId } from "../stores/redis/shards.ts";
import type { BreakerOptions } from "../stores/redis/requests/breaker.ts";
import { canRead, type RedisInput } from "../stores/redis/connection.ts";
import type { Bucket } from "../throttle/bucket.ts";

export interface SluiceOptions {
  /**
   * The Redis server: a URL, ioredis options, or an ioredis client, of which the sluice makes a
   * copy. With `"memory"`, buckets and queues are stored in this process's memory: the buckets pace
   * only its own calls, and the jobs are lost when it exits. Defaults to `$REDIS_URL`. If that is
   * not set, buckets are stored in memory, queues are refused, and the sluice logs a warning.
   */
  readonly redis?: RedisInput | undefined;
  /**
   * Whether creating a sluice without Redis fails with `RedisRequiredError`. Without Redis, each
   * replica would use the whole rate. Defaults to true in production (`NODE_ENV=production`), and
   * to false elsewhere.
   */
  readonly requireRedis?: boolean | undefined;
  /**
   * The URLs of several independent Redis servers, instead of `redis`. Each bucket and each queue
   * is stored on one of these servers, which its name determines. Adding or removing a server moves
   * only that server's share of the buckets and queues. A server that is down affects only the
   * buckets and queues on it.
   */
  readonly shards?: readonly string[] | undefined;
  /** The prefix of every key in Redis. Defaults to `"sluice"`. */
  readonly prefix?: string | undefined;
  /**
   * How long a draw waits for Redis before it rejects with `StoreUnavailableError`. A single command of a bucket
   * may take half of it, at least 1 s and at most 5 s. After that, the command's connection is
   * replaced. Defaults to 2,000 ms.
   */
  readonly storeTimeoutMs?: number | undefined;
  /**
   * When to stop sending requests to a failing Redis server: the number of failures before that,
   * and how often the server is probed afterwards.
   */
  readonly breaker?: BreakerOptions | undefined;
  /**
   * The path of a rules file, YAML or JSON, with the limits of buckets: see
   * `docs/guides/operate/rules-file.md`. The file is read immediately, and again within a second of
   * each change. Rules override the code in all processes that share the Redis; operators'
   * overrides take precedence over rules. If the file is invalid, `createSluice()` throws. If the
   * file becomes invalid later, nothing changes. Defaults to no rules file.
   */
  readonly rules?: string | undefined;
  /**
   * Receives warnings and errors that no caller receives. A pino logger can be used. If the logger
   * throws, messages go to `console`. Defaults to `console`.
   */
  readonly logger?: Logger | undefined;
}

const SERVER = z
  .string({ error: 'give URLs such as "redis://127.0.0.1:6379"' })
  .refine(isRedisUrl, { error: 'give URLs such as "redis://127.0.0.1:6379"' });
const A_PATH = 'give the path of a file, such as "sluice.yaml"';
const SLUICE_OPTIONS = z.strictObject({
  redis: z
    .custom<RedisInput>(isRedisInput, {
      error:
        'give a URL such as "redis://127.0.0.1:6379", or options or a client of ioredis (not of node-redis), or "memory"',
    })
    .optional(),
  requireRedis: z.boolean({ error: "give true or false" }).optional(),
  shards: z
    .array(SERVER, { error: 'give a list of URLs such as ["redis://127.0.0.1:6379"]' })
    .min(1, { error: "name at least one server" })
    .refine(areApart, { error: "name each server once" })
    .optional(),
  prefix: NAME.optional(),
  storeTimeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  breaker: z
    .strictObject({
      failures: wholeNumber(1, 1_000_000, "failures").optional(),
      probeMs: wholeNumber(1, 86_400_000, "milliseconds").optional(),
    })
    .optional(),
  rules: z.string({ error: A_PATH }).min(1, { error: A_PATH }).optional(),
  logger: z.custom<Logger>(isLogger, { error: "give an object with warn and error" }).optional(),
});

/** The options of `queue()`. */
export interface QueueOptions<Data = unknown, Input = Data> extends QueueSettings {
  /** The bucket from which the queue's jobs draw their slots. */
  readonly bucket: Bucket;
  /**
   * The weights of the keys, 0.001 to 1,000: a table by key, or a function of the key. When keys
   * share a rate, a key with weight 2 gets twice as much as a key with weight 1. Defaults to 1.
   */
  readonly weights?: Weights | undefined;
  /**
   * Whether the jobs of a key run strictly one after another, by priority and then in the order in
   * which they joined. The next job begins once the previous job is done, dead, cancelled or
   * removed, in any process. A job that is retried stays first, and later jobs of its key wait for
   * it.
   *
   * With `true`, all keys are ordered, and each job needs a key. Alternatives are a function of the
   * key, or `{ keys, stuck }`. With `stuck: "hold"`, a dead letter blocks its key until it is
   * replayed or purged; by default the next job begins. Use the same value in all processes,
   * because the newest job of a key determines how its key is ordered.
   *
   * Defaults to false: jobs of a key begin in order, but may run at the same time.
   */
  readonly ordered?: Ordered | undefined;
  /**
   * The schema for the data of each job: zod, valibot, arktype, or any other Standard Schema. It
   * checks the data when the job is enqueued, and again before its handler runs. The output of the
   * schema is stored as JSON, and the schema must also accept that output. Defaults to no check.
   */
  readonly schema?: Schema<Data, Input> | undefined;
  /**
   * How the data, results and progress of jobs are encoded before Redis stores them: one codec, or several that are
   * applied in this order. `sluice/codec` has codecs that encrypt, compress, and store large payloads elsewhere. Give
   * the queue the same codecs in all processes. Data that Redis stores already stays readable. Defaults to none.
   */
  readonly codec?: Codec | readonly Codec[] | undefined;
  /**
   * The most bytes of a job's data as Redis stores it: as JSON, and encoded if the queue has a codec. Defaults to
   * 1,000,000.
   */
  readonly maxJobBytes?: number | undefined;
  /**
   * Whether the queue and its workers have separate connections instead of the connections that all
   * queues of a sluice share. Separate connections are useful for jobs with megabytes of data,
   * which would delay the requests of other queues. Defaults to false.
   */
  readonly ownConnections?: boolean | undefined;
}

const QUEUE_OPTIONS = z.strictObject({
  ...codeSettingSchemas(),
  bucket: z.custom<Bucket>(isObject, { error: "give the result of sluice.bucket()" }),
  weights: z
    .custom<Weights>((value) => isObject(value) || typeof value === "function", {
      error: "give a number for each key, or a function of the key",
    })
    .optional(),
  schema: z
    .custom<Schema<unknown>>(isSchema, { error: "give a schema that keeps to Standard Schema" })
    .optional(),
  codec: CODECS.optional(),
  // The queue checks the value of `ordered`.
  ordered: z.custom<Ordered>(() => true).optional(),
  maxJobBytes: wholeNumber(2, 512_000_000, "bytes").optional(),
  ownConnections: z.boolean({ error: "give true or false" }).optional(),
});

export function readSluiceOptions(given: unknown): SluiceOptions {
  const where = "createSluice()";
  const read = readOptions(where, SLUICE_OPTIONS, given);
  if (read.shards === undefined || read.redis === undefined) return read;
  const remedy = "give one server as redis, or several as shards";
  throw new InvalidOptionError({ where, option: "shards", value: read.shards.length, remedy });
}

/**
 * Returns the configured address of Redis, or undefined for a sluice in memory.
 *
 * @throws {@link RedisRequiredError} when no Redis is configured, but one is required.
 * @throws {@link InvalidOptionError} when no address can be read from `$REDIS_URL`.
 */
export function locateRedis(read: SluiceOptions): RedisInput | readonly string[] | undefined {
  const { shards, redis, requireRedis } = read;
  if (redis === MEMORY) {
    if (requireRedis !== true) return undefined;
    const remedy = 'redis is "memory"; give a Redis address, or remove this option';
    throw new InvalidOptionError({
      where: "createSluice()",
      option: "requireRedis",
      value: requireRedis,
      remedy,
    });
  }
  const found = shards ?? redis ?? readRedisUrl();
  const isProduction = process.env["NODE_ENV"] === "production";
  if (found !== undefined || !(requireRedis ?? isProduction)) return found;
  const why = requireRedis === true ? "with requireRedis" : "in production";
  const otherwise = ` If this process is to pace its own calls only, pass { redis: "${MEMORY}" }.`;
  throw new RedisRequiredError(`createSluice() ${why}`, otherwise);
}

/**
 * The value of `redis` that selects buckets and queues in memory. Its buckets pace only the calls
 * of one process, and its jobs are lost when the process exits.
 */
const MEMORY = "memory";

export function isMemory({ redis }: SluiceOptions): boolean {
  return redis === MEMORY;
}

/** @throws {@link InvalidOptionError} when no address can be read from `$REDIS_URL`. */
function readRedisUrl(): string | undefined {
  const value = process.env["REDIS_URL"];
  if (value === undefined || value === "") return undefined;
  if (canRead(value)) return value;
  const remedy = 'set a URL such as "redis://127.0.0.1:6379"; URL-encode its password';
  throw new InvalidOptionError({ where: "createSluice()", option: "$REDIS_URL", value, remedy });
}

/** True if a value is a Standard Schema: an object or a function with the property `~standard`. */
function isSchema(value: unknown): boolean {
  const isHolder = isObject(value) || typeof value === "function";
  const standard = isHolder ? (value as Partial<Schema<unknown>>)["~standard"] : undefined;
  return typeof standard?.validate === "function";
}

export function readQueueOptions(where: string, given: unknown): QueueOptions {
  return readOptions(where, QUEUE_OPTIONS, given);
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function isRedisUrl(value: string): boolean {
  return isAddress(value) && /^rediss?:/.test(value);
}

function isAddress(value: string): boolean {
  return URL.canParse(value) && canRead(value);
}

function areApart(urls: readonly string[]): boolean {
  // Invalid addresses are reported by a separate check.
  return !urls.every(isRedisUrl) || new Set(urls.map(serverId)).size === urls.length;
}

function isRedisInput(value: unknown): boolean {
  if (value === MEMORY) return true;
  if (typeof value === "string") return isAddress(value) && /^(rediss?|unix):/.test(value);
  return (
    isObject(value) &&
    !Array.isArray(value) &&
    !isOfOthers(value as object) &&
    !(value instanceof URL) &&
    isHost((value as { host?: unknown }).host) &&
    isPort((value as { port?: unknown }).port)
  );
}

const OF_NODE_REDIS = ["url", "socket", "database", "rootNodes", "sentinelRootNodes"];
/**
 * True for clients and options of node-redis. ioredis would ignore their address and connect to
 * 127.0.0.1.
 */
function isOfOthers(value: object): boolean {
  if ("duplicate" in value) return !("status" in value);
  return OF_NODE_REDIS.some((name) => name in value);
}

function isHost(host: unknown): boolean {
  return host === undefined || typeof host === "string";
}

/**
 * True for a valid port. Digits in a string are valid too, as in ioredis, because `$REDIS_PORT` is
 * text.
 */
function isPort(port: unknown): boolean {
  if (typeof port === "string") return /^\d+$/.test(port) && isPort(Number(port));
  return (
    port === undefined || (Number.isInteger(port) && Number(port) >= 0 && Number(port) < 65_536)
  );
}

function isLogger(value: unknown): boolean {
  const { warn, error } = (isObject(value) ? value : {}) as Partial<Logger>;
  return typeof warn === "function" && typeof error === "function";
}

/**
 * The default logger, which writes to `console`. It omits the fields of a log entry, because each
 * message contains the important values.
 */
export const consoleLogger: Logger = {
  // oxlint-disable-next-line no-console
  warn: (_facts, message) => console.warn(`[sluice] ${message}`),
  // oxlint-disable-next-line no-console
  error: (_facts, message) => console.error(`[sluice] ${message}`),
};
