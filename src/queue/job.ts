import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { encodeKey, type Key } from "../core/key-path.ts";
import type { Priority } from "../core/input/options.ts";
import type { Cost } from "../throttle/costs.ts";

/** Where a job is. */
export type JobState = "waiting" | "active" | "delayed" | "done" | "failed";

export const JOB_STATES: readonly JobState[] = ["waiting", "active", "delayed", "done", "failed"];

/** Queued work, as producers and handlers see it. */
export interface Job<Data> {
  readonly id: string;
  /** What kind of work it is, `"refund"`; undefined unless `enqueue` was given one. */
  readonly name: string | undefined;
  readonly data: Data;
  /** The tenant, account or endpoint that the job is for: `"acme"`, or a path of names, `["acme", "endpoint-7"]`. */
  readonly key: Key | undefined;
  /** The cost of each attempt; undefined for 1 call. */
  readonly cost: Cost | undefined;
  readonly priority: Priority;
  /** The time limit of one attempt, in ms; undefined if the worker's `timeoutMs` applies. */
  readonly timeoutMs: number | undefined;
  /** The `dedupeId` given to `enqueue`; for a run of a recurring job, that job's name. Undefined without one. */
  readonly dedupeId: string | undefined;
  /** The most attempts: `20`. */
  readonly attempts: number;
  /** How many of its attempts have ended, without those that gave the job back: 0 while the first one runs. */
  readonly attemptsMade: number;
  /** When it was enqueued, in ms since 1970 on Redis' clock, as are all times below. */
  readonly enqueuedAtMs: number;
  /** When its first attempt may start, in ms since 1970: `enqueuedAtMs` plus its delay. */
  readonly dueAtMs: number;
  /** When a worker took it for its last attempt, in ms since 1970; undefined before that. */
  readonly startedAtMs: number | undefined;
  /** When it was done, or failed for the last time, in ms since 1970; undefined before that. */
  readonly endedAtMs: number | undefined;
  /** The time by which its first attempt must start, in ms since 1970; undefined without one, or after the first attempt. */
  readonly startByMs: number | undefined;
  /** What its handler returned, as JSON. Undefined until the job is done, or if it returned nothing. */
  readonly result: unknown;
}

/** Returns a job's key as text. */
export function keyTextOf({ key }: Pick<Job<unknown>, "key">): string | undefined {
  return key === undefined ? undefined : encodeKey(key);
}

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);
/** BullMQ's ids: a number, or for a run of a recurring job `repeat:<schedule>:<ms since 1970>`. */
const SHAPE = /^(\d{1,20}|repeat:[^:]{1,256}:\d{1,20})$/;
/**
 * Names in Redis that a job must not take: a job's key ends with its id, and these keys of a queue (BullMQ's and ours)
 * and of a bucket of the same name have no colon in their own part. A new key gets a colon, or is listed here.
 */
const TAKEN = new Set(
  `active completed delayed events failed id limiter marker meta paused pc prioritized repeat stalled
  stalled-check wait waiting waiting-children state turns holes`.split(/\s+/),
);

/**
 * An id that the application chooses.
 *
 * @internal
 */
export const OWN_ID: z.ZodType<string> = z
  .string({ error: "give a string" })
  .refine((id) => id.length >= 1 && id.length <= 256, {
    error: "give an id of 1 to 256 characters",
    abort: true,
  })
  .refine((id) => !/[:\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(id), {
    error: 'leave out ":" and control characters, which separate the parts of Redis keys',
    abort: true,
  })
  .refine((id) => !/^\d+$/.test(id), {
    error:
      'add a letter, such as "order-17": plain numbers are the ids of jobs that are given none',
    abort: true,
  })
  .refine((id) => !TAKEN.has(id), {
    error: "give another one, such as a longer one: it is the name of a Redis key of the queue",
  });

/**
 * Returns the id, or undefined if no job can have it. A job's key in Redis ends with its id, and an id such as `meta`
 * would name a key of the queue itself.
 *
 * @throws {@link InvalidOptionError} for what is not a string of 1 to 1,000 characters.
 */
export function readJobId(where: string, id: unknown): string | undefined {
  const read = JOB_ID.safeParse(id);
  if (read.success) {
    const { data } = read;
    return SHAPE.test(data) || OWN_ID.safeParse(data).success ? data : undefined;
  }
  throw new InvalidOptionError({ where, option: "id", value: id, remedy: REMEDY });
}

/**
 * What remains of a value after JSON: a `Date` becomes text, `toJSON()` is applied, and functions are dropped. The data
 * of a job has this type, unless the queue has a schema: then it has the type of the schema's output.
 */
export type FromJson<Value> = unknown extends Value
  ? Value
  : Value extends string | number | boolean | null | undefined
    ? Value
    : Value extends { toJSON(...args: never[]): infer Json }
      ? FromJson<Json>
      : Value extends symbol | ((...args: never[]) => unknown)
        ? undefined
        : Value extends bigint
          ? never
          : Value extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
            ? Record<string, never>
            : Value extends readonly unknown[]
              ? { [Index in keyof Value]: ItemFromJson<Value[Index]> }
              : { [Name in keyof Value]: FromJson<Value[Name]> };

/** In a list, JSON replaces what it cannot hold by null. */
type ItemFromJson<Item> = unknown extends Item
  ? Item
  : Item extends undefined | symbol | ((...args: never[]) => unknown)
    ? null
    : FromJson<Item>;
