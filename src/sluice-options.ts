import process from "node:process";
import { z } from "zod";
import type { Logger } from "./core/logger.ts";
import { LONGEST_MS, NAME, readOptions, wholeNumber } from "./core/options.ts";
import type { RedisInput } from "./redis/connection.ts";
import type { Bucket } from "./throttle/bucket.ts";

export interface SluiceOptions {
  /**
   * Where Redis is: a URL, ioredis options, or an ioredis client, which is copied. Defaults to `$REDIS_URL`;
   * without either, buckets live in this process's memory, and a warning says so.
   */
  readonly redis?: RedisInput | undefined;
  /** What every key in Redis starts with. Defaults to `"sluice"`. */
  readonly prefix?: string | undefined;
  /** How long a draw waits for Redis before it rejects with `StoreUnavailableError`. Defaults to 2,000 ms. */
  readonly storeTimeoutMs?: number | undefined;
  /** Where warnings and errors go that no caller waits for; a pino logger fits. Defaults to `process.emitWarning`. */
  readonly logger?: Logger | undefined;
}

const SLUICE_OPTIONS = z.strictObject({
  redis: z
    .custom<RedisInput>(isRedisInput, {
      error: 'give a URL such as "redis://127.0.0.1:6379", ioredis options, or an ioredis client',
    })
    .optional(),
  prefix: NAME.optional(),
  storeTimeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  logger: z.custom<Logger>(isLogger, { error: "give an object with warn and error" }).optional(),
});
const QUEUE_OPTIONS = z.strictObject({
  bucket: z.custom<Bucket>(isObject, { error: "give what sluice.bucket() returned" }),
});

export function readSluiceOptions(given: unknown): SluiceOptions {
  return readOptions("createSluice()", SLUICE_OPTIONS, given);
}

export function readQueueOptions(where: string, given: unknown): { readonly bucket: Bucket } {
  return readOptions(where, QUEUE_OPTIONS, given);
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function isRedisInput(value: unknown): boolean {
  if (typeof value === "string") return URL.canParse(value) && /^(rediss?|unix):/.test(value);
  return (
    isObject(value) &&
    !Array.isArray(value) &&
    !("url" in (value as object)) &&
    !(value instanceof URL)
  );
}

function isLogger(value: unknown): boolean {
  const { warn, error } = (isObject(value) ? value : {}) as Partial<Logger>;
  return typeof warn === "function" && typeof error === "function";
}

/** Without a logger, what went wrong shows as a warning of the process. */
export const processWarnings: Logger = {
  warn: (_facts, message) => process.emitWarning(message, "SluiceWarning"),
  error: (_facts, message) => process.emitWarning(message, "SluiceWarning"),
};
