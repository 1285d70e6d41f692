import * as z from "zod";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { Listener } from "./events.ts";

/** What happens to jobs when the queue is longer than `highWater`. */
export const STRATEGY = Object.freeze({
  LEAK: 1,
  OVERFLOW: 2,
  OVERFLOW_PRIORITY: 4,
  BLOCK: 3,
} as const);
export type Strategy = (typeof STRATEGY)[keyof typeof STRATEGY];

export const PRIORITIES = 10;
export const DEFAULT_PRIORITY = 5;

const MOST = 1_000_000;
const FLAG = z.boolean({ error: "give true or false" }).nullish();
const COUNT = wholeNumber(1, MOST, "jobs").nullish();
const FROM_0 = wholeNumber(0, MOST, "jobs").nullish();
const TIME_ERROR = { error: `give a time from 0 to ${LONGEST_MS} milliseconds` };
const TIME = z.number(TIME_ERROR).min(0, TIME_ERROR).max(LONGEST_MS, TIME_ERROR).nullish();
const INTERVAL = wholeNumber(1, LONGEST_MS, "milliseconds").nullish();
const STRATEGY_OPTION = z
  .literal(Object.values(STRATEGY), { error: "give one of Bottleneck.strategy" })
  .nullish();
const ID = z.union([z.string(), z.number()], { error: "give a text" }).nullish();

const SETTINGS = {
  maxConcurrent: COUNT,
  minTime: TIME,
  highWater: FROM_0,
  strategy: STRATEGY_OPTION,
  penalty: TIME,
  reservoir: FROM_0,
  reservoirRefreshInterval: INTERVAL,
  reservoirRefreshAmount: COUNT,
  reservoirIncreaseInterval: INTERVAL,
  reservoirIncreaseAmount: COUNT,
  reservoirIncreaseMaximum: COUNT,
  id: ID,
  rejectOnDrop: FLAG,
  trackDoneStatus: FLAG,
  timeout: INTERVAL,
};
const LIMITER = z.strictObject({
  ...SETTINGS,
  datastore: z
    .enum(["local", "redis", "ioredis"], { error: 'give "local", "redis" or "ioredis"' })
    .nullish(),
  clientOptions: z.custom<object>(isObject, { error: "give options of ioredis" }).nullish(),
  clusterNodes: z.array(z.unknown(), { error: "give a list of nodes" }).nullish(),
  connection: z
    .custom<object>(isObject, { error: "give a Bottleneck.IORedisConnection" })
    .nullish(),
  Promise: z.custom<PromiseConstructor>(isFunction, { error: "give a Promise class" }).nullish(),
  Redis: z.unknown().optional(),
  clearDatastore: FLAG,
  heartbeatInterval: INTERVAL,
  clientTimeout: INTERVAL,
});
const JOB = z.strictObject({
  priority: z.unknown().optional(),
  weight: wholeNumber(0, MOST, "units").nullish(),
  expiration: TIME,
  id: ID,
});
const STOP = z.strictObject({
  dropWaitingJobs: FLAG,
  dropErrorMessage: z.string({ error: "give a text" }).nullish(),
  enqueueErrorMessage: z.string({ error: "give a text" }).nullish(),
});
const BATCHER = z.strictObject({
  maxTime: TIME,
  maxSize: COUNT,
  Promise: z.unknown().optional(),
});
const CONNECTION = z.strictObject({
  clientOptions: LIMITER.shape.clientOptions,
  clusterNodes: LIMITER.shape.clusterNodes,
  client: z.custom<object>(isObject, { error: "give a client of ioredis" }).nullish(),
  Redis: z.unknown().optional(),
  Promise: z.unknown().optional(),
});

/** The options of a limiter, with the names and the defaults of Bottleneck 2. `null` means the default. */
export interface ConstructorOptions {
  /** How many jobs may run at the same time. The `weight` of a job counts. Defaults to no limit. */
  readonly maxConcurrent?: number | null | undefined;
  /** The time between the starts of two jobs, in ms. Defaults to 0. */
  readonly minTime?: number | null | undefined;
  /** How many jobs may be queued before the strategy applies. Defaults to no limit. */
  readonly highWater?: number | null | undefined;
  /** Defaults to `Bottleneck.strategy.LEAK`. */
  readonly strategy?: Strategy | null | undefined;
  /** How long the strategy `BLOCK` refuses jobs, in ms. Defaults to `15 * minTime`, or 5,000 without `minTime`. */
  readonly penalty?: number | null | undefined;
  /** How many jobs may start before no more jobs start. The `weight` of a job counts. Defaults to no limit. */
  readonly reservoir?: number | null | undefined;
  /** How long `reservoirRefreshAmount` lasts, in ms. */
  readonly reservoirRefreshInterval?: number | null | undefined;
  /** How many jobs may start in any `reservoirRefreshInterval`. */
  readonly reservoirRefreshAmount?: number | null | undefined;
  /** The time in which the reservoir gains `reservoirIncreaseAmount`, in ms. */
  readonly reservoirIncreaseInterval?: number | null | undefined;
  readonly reservoirIncreaseAmount?: number | null | undefined;
  /** The most that the reservoir can hold. Defaults to `reservoir`. */
  readonly reservoirIncreaseMaximum?: number | null | undefined;
  /** The name that limiters of several processes share. */
  readonly id?: string | null | undefined;
  /** Whether the promise of a dropped job rejects. Defaults to true. */
  readonly rejectOnDrop?: boolean | null | undefined;
  /** Whether `counts` and `jobStatus` include finished jobs. Uses more memory. Defaults to false. */
  readonly trackDoneStatus?: boolean | null | undefined;
  /** `"redis"` and `"ioredis"` both use the ioredis of Sluice. Defaults to `"local"`: this limiter alone. */
  readonly datastore?: "local" | "redis" | "ioredis" | null | undefined;
  /** The options of ioredis: the address and the credentials. */
  readonly clientOptions?: object | null | undefined;
  /** The nodes of a Redis Cluster. */
  readonly clusterNodes?: readonly unknown[] | null | undefined;
  /** A connection that several limiters share. */
  readonly connection?: object | null | undefined;
  /** The class of the promises that methods return. */
  readonly Promise?: unknown;
  /** Ignored, because Sluice has its own ioredis. */
  readonly Redis?: unknown;
  /** Deletes the counts and settings that limiters with this id share. Defaults to false. */
  readonly clearDatastore?: boolean | null | undefined;
  /** In a group: how long an unused limiter is kept, in ms. Defaults to 300,000. */
  readonly timeout?: number | null | undefined;
  /** Ignored, because no timer checks the reservoir. */
  readonly heartbeatInterval?: number | null | undefined;
  /** How long the jobs of a process count after it was killed, in ms. Defaults to 30,000. */
  readonly clientTimeout?: number | null | undefined;
}

/** The options of a job. */
export interface JobOptions {
  /** From 0, the most urgent, to 9. Defaults to 5. */
  readonly priority?: number | null | undefined;
  /** How much of `maxConcurrent` and of the reservoir the job takes. Defaults to 1. */
  readonly weight?: number | null | undefined;
  /** The job fails when it runs longer, in ms. Defaults to no limit. */
  readonly expiration?: number | null | undefined;
  /** The name of the job. No two unfinished jobs of a limiter may have the same. */
  readonly id?: string | null | undefined;
}

export interface StopOptions {
  /** Whether jobs that have not started are dropped. Defaults to true. */
  readonly dropWaitingJobs?: boolean | null | undefined;
  readonly dropErrorMessage?: string | null | undefined;
  readonly enqueueErrorMessage?: string | null | undefined;
}

export interface BatcherOptions {
  /** How long the first element of a batch waits, in ms. Defaults to no limit. */
  readonly maxTime?: number | null | undefined;
  /** The most elements of a batch. Defaults to no limit. */
  readonly maxSize?: number | null | undefined;
}

export interface ConnectionOptions {
  readonly clientOptions?: object | null | undefined;
  readonly clusterNodes?: readonly unknown[] | null | undefined;
  /** A client of ioredis, which Sluice copies. */
  readonly client?: object | null | undefined;
  readonly Redis?: unknown;
}

/** The settings that `updateSettings` can change. */
export interface Settings {
  readonly maxConcurrent: number | null;
  readonly minTime: number;
  readonly highWater: number | null;
  readonly strategy: Strategy;
  readonly penalty: number | null;
  readonly reservoir: number | null;
  readonly reservoirRefreshInterval: number | null;
  readonly reservoirRefreshAmount: number | null;
  readonly reservoirIncreaseInterval: number | null;
  readonly reservoirIncreaseAmount: number | null;
  readonly reservoirIncreaseMaximum: number | null;
  readonly clientTimeout: number;
}

export const DEFAULTS: Settings = {
  maxConcurrent: null,
  minTime: 0,
  highWater: null,
  strategy: STRATEGY.LEAK,
  penalty: null,
  reservoir: null,
  reservoirRefreshInterval: null,
  reservoirRefreshAmount: null,
  reservoirIncreaseInterval: null,
  reservoirIncreaseAmount: null,
  reservoirIncreaseMaximum: null,
  clientTimeout: 30_000,
};

/** @throws {@link InvalidOptionError} when an option is unknown or can never work. */
export function readLimiterOptions(where: string, given: unknown): ConstructorOptions {
  return readOptions(where, LIMITER, given ?? {}) as ConstructorOptions;
}

/** Returns the settings after a change. An option that is missing keeps its value, and `null` restores the default. */
export function settingsAfter(settings: Settings, given: ConstructorOptions): Settings {
  const changed = Object.keys(DEFAULTS)
    .filter((name) => given[name as keyof Settings] !== undefined)
    .map((name) => {
      const key = name as keyof Settings;
      return [key, given[key] ?? DEFAULTS[key]];
    });
  return { ...settings, ...(Object.fromEntries(changed) as Partial<Settings>) };
}

export function readJobOptions(given: unknown): JobOptions {
  return readOptions("Bottleneck job", JOB, given ?? {}) as JobOptions;
}

export function readStopOptions(given: unknown): StopOptions {
  return readOptions("stop()", STOP, given ?? {}) as StopOptions;
}

export function readBatcherOptions(given: unknown): BatcherOptions {
  return readOptions("Bottleneck.Batcher", BATCHER, given) as BatcherOptions;
}

export function readConnectionOptions(where: string, given: unknown): ConnectionOptions {
  return readOptions(where, CONNECTION, given) as ConnectionOptions;
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function isFunction(value: unknown): value is Listener {
  return typeof value === "function";
}
