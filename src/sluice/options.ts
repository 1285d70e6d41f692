import process from "node:process";
import * as z from "zod";
import { InvalidOptionError, RedisRequiredError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { LONGEST_MS, NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { Schema } from "../queue/enqueue/data.ts";
import type { Ordered } from "../queue/lanes/order.ts";
import type { Weights } from "../queue/lanes/weights.ts";
import {
  JOB_DEFAULTS,
  KEEP_DONE,
  KEEP_FAILED,
  MAX_BACKLOG,
  type JobDefaults,
  type KeepDone,
  type KeepFailed,
  type MaxBacklog,
} from "../core/input/queue-settings.ts";
import { serverId } from "../stores/redis/shards.ts";
import type { BreakerOptions } from "../stores/redis/requests/breaker.ts";
import { canRead, type RedisInput } from "../stores/redis/connection.ts";
import type { Bucket } from "../throttle/bucket.ts";

export interface SluiceOptions {
  /**
   * Where Redis is: a URL, ioredis options, or an ioredis client, which is copied; or `"memory"`: buckets are in this
   * process's memory, and pace its calls only. Defaults to `$REDIS_URL`; without that, to memory with a warning.
   */
  readonly redis?: RedisInput | undefined;
  /**
   * Whether a sluice that finds no Redis is a `RedisRequiredError`, rather than a sluice in memory: each replica would
   * have the whole rate to itself. Defaults to true in production (`NODE_ENV=production`), else to false.
   */
  readonly requireRedis?: boolean | undefined;
  /**
   * The URLs of several independent Redis servers, instead of `redis`: each bucket and each queue is on one of
   * them, by its name. A server that is added or removed moves only its own part; one that is down stops only that.
   */
  readonly shards?: readonly string[] | undefined;
  /** What every key in Redis starts with. Defaults to `"sluice"`. */
  readonly prefix?: string | undefined;
  /** How long a draw waits for Redis before it rejects with `StoreUnavailableError`. Defaults to 2,000 ms. */
  readonly storeTimeoutMs?: number | undefined;
  /** After how many failures a Redis server is no longer asked, and how often it is probed then. */
  readonly breaker?: BreakerOptions | undefined;
  /**
   * The path of a file, YAML or JSON, that says the limits of buckets: see `docs/rules.md`. It is read at once, and again
   * within a second whenever it has changed; what it says goes before what the code says, in all processes that share the
   * Redis, and after what was set by hand. A file that cannot be used is an error here, and later changes nothing.
   * Defaults to none.
   */
  readonly rules?: string | undefined;
  /**
   * Gets the warnings and errors that reach no caller; a pino logger fits. If it throws, they go to `console`. Defaults to
   * `console`.
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

/** What `queue()` takes. */
export interface QueueOptions<Data = unknown, Input = Data> {
  /** The bucket that its jobs draw from. */
  readonly bucket: Bucket;
  /** How much of a shared rate each key gets beside the others, 0.001 to 1,000: by key, or a function of it. Defaults to 1. */
  readonly weights?: Weights | undefined;
  /**
   * Has the jobs of a key done strictly one after another, by priority and then in the order in which they joined: the
   * next begins once the one before is done, a dead letter, cancelled or removed, whatever process runs it. A job that is
   * tried again keeps its place in front, and its key waits for it. `true` orders all keys, and each job needs one; or
   * give a function of the key, or `{ keys, stuck }`. With `stuck: "hold"` a dead letter holds its key until it was replayed
   * or purged; by default the next job begins. Give all processes the same: the newest job of a key decides. Defaults to
   * false: jobs of a key begin in order, as far as workers do not hold them at once.
   */
  readonly ordered?: Ordered | undefined;
  /**
   * Checks the data of each job when it is enqueued, and again before its handler runs: zod, valibot, arktype,
   * or any other Standard Schema. Its output is stored, as JSON, and it must accept that as well. Defaults to no
   * check.
   */
  readonly schema?: Schema<Data, Input> | undefined;
  /** The most bytes of JSON that the data of one job may have. Defaults to 1,000,000. */
  readonly maxJobBytes?: number | undefined;
  /** The defaults of the options of `enqueue`: `{ attempts: 8, backoff: { baseMs: 500 } }`. Each process that enqueues has its own. */
  readonly defaults?: JobDefaults | undefined;
  /**
   * Which done jobs are kept, with their results, logs and progress: the last `count`, for `forMs` at most. The workers
   * of a process remove the others by what it says here. What `finished()` waits for in any process is told in any case.
   * Defaults to the last 1,000, for a day.
   */
  readonly keepDone?: KeepDone | undefined;
  /**
   * Whether the queue and its workers have connections of their own, instead of those that all queues of a sluice share.
   * Worth it where jobs have megabytes of data, which would hold up what other queues ask. Defaults to false.
   */
  readonly ownConnections?: boolean | undefined;
  /**
   * Which dead letters are kept: the last `count`, for `forMs` at most. The workers of a process remove the others by
   * what it says here, and log how many; none while somebody replays some. Defaults to all, for good.
   */
  readonly keepFailed?: KeepFailed | undefined;
  /**
   * How many jobs may wait: `10_000`, or `{ all: 10_000, perKey: 500 }`. What would be one more is refused with
   * `QueueFullError`. Those count that wait for a worker, for a later time or for their next attempt; recurring jobs and
   * retries are never refused. Each process that enqueues has its own. Defaults to no bound.
   */
  readonly maxBacklog?: number | MaxBacklog | undefined;
}

const QUEUE_OPTIONS = z.strictObject({
  maxBacklog: MAX_BACKLOG.optional(),
  bucket: z.custom<Bucket>(isObject, { error: "give what sluice.bucket() returned" }),
  weights: z
    .custom<Weights>((value) => isObject(value) || typeof value === "function", {
      error: "give a number for each key, or a function of the key",
    })
    .optional(),
  schema: z
    .custom<Schema<unknown>>(isSchema, { error: "give a schema that keeps to Standard Schema" })
    .optional(),
  // Checked by the queue.
  ordered: z.custom<Ordered>(() => true).optional(),
  maxJobBytes: wholeNumber(2, 512_000_000, "bytes").optional(),
  defaults: JOB_DEFAULTS.optional(),
  keepDone: KEEP_DONE.optional(),
  ownConnections: z.boolean({ error: "give true or false" }).optional(),
  keepFailed: KEEP_FAILED.optional(),
});

export function readSluiceOptions(given: unknown): SluiceOptions {
  const where = "createSluice()";
  const read = readOptions(where, SLUICE_OPTIONS, given);
  if (read.shards === undefined || read.redis === undefined) return read;
  const remedy = "give one server as redis, or several as shards";
  throw new InvalidOptionError({ where, option: "shards", value: read.shards.length, remedy });
}

/**
 * Where Redis is; undefined for a sluice in memory.
 *
 * @throws {@link RedisRequiredError} when none is named and one is required.
 * @throws {@link InvalidOptionError} when no address can be read from `$REDIS_URL`.
 */
export function locateRedis(read: SluiceOptions): RedisInput | readonly string[] | undefined {
  const { shards, redis, requireRedis } = read;
  if (redis === MEMORY) {
    if (requireRedis !== true) return undefined;
    const remedy = 'redis is "memory": give an address as redis, or leave this out';
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

/** Where buckets are that pace one process only. */
const MEMORY = "memory";

/** @throws {@link InvalidOptionError} when no address can be read from `$REDIS_URL`. */
function readRedisUrl(): string | undefined {
  const value = process.env["REDIS_URL"];
  if (value === undefined || value === "") return undefined;
  if (canRead(value)) return value;
  const remedy = 'set a URL such as "redis://127.0.0.1:6379", its password encoded as in URLs';
  throw new InvalidOptionError({ where: "createSluice()", option: "$REDIS_URL", value, remedy });
}

/** Schemas are objects, or functions with the same property. */
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
  // Addresses that cannot be read have an issue of their own already.
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
/** Clients and options of node-redis: ioredis would ignore their address, and connect to 127.0.0.1. */
function isOfOthers(value: object): boolean {
  if ("duplicate" in value) return !("status" in value);
  return OF_NODE_REDIS.some((name) => name in value);
}

function isHost(host: unknown): boolean {
  return host === undefined || typeof host === "string";
}

/** ioredis also takes digits: `$REDIS_PORT` is text. */
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

/** The default logger. The messages say what matters of the facts. */
export const consoleLogger: Logger = {
  // oxlint-disable-next-line no-console
  warn: (_facts, message) => console.warn(`[sluice] ${message}`),
  // oxlint-disable-next-line no-console
  error: (_facts, message) => console.error(`[sluice] ${message}`),
};
