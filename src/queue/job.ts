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
  /** What each attempt takes of the bucket; undefined for 1 call. */
  readonly cost: Cost | undefined;
  readonly priority: Priority;
  /** How long one attempt of it may take, in ms; undefined where the worker's `timeoutMs` counts. */
  readonly timeoutMs: number | undefined;
  /** The `dedupeId` that `enqueue` was given; of a run of a recurring job, the name of that. Undefined without one. */
  readonly dedupeId: string | undefined;
  /** How often it is tried at most: `20`. */
  readonly attempts: number;
  /** How many of its attempts have ended, apart from those that gave the job back: 0 while the first one runs. */
  readonly attemptsMade: number;
  /** When it was enqueued, in ms since 1970 on Redis' clock, as are all times below. */
  readonly enqueuedAtMs: number;
  /** From when on its first attempt may start, in ms since 1970: later than `enqueuedAtMs` by its delay. */
  readonly dueAtMs: number;
  /** When a worker took it for its last attempt, in ms since 1970; undefined if none has. */
  readonly startedAtMs: number | undefined;
  /** When it was done or had failed for the last time, in ms since 1970; undefined before that. */
  readonly endedAtMs: number | undefined;
  /** The time by which its first attempt must start, in ms since 1970; undefined without one, or after the first attempt. */
  readonly startByMs: number | undefined;
  /** What its handler returned, as JSON. Undefined until the job is done, and for nothing. */
  readonly result: unknown;
}

/** The text of a job's key. */
export function keyTextOf({ key }: Pick<Job<unknown>, "key">): string | undefined {
  return key === undefined ? undefined : encodeKey(key);
}

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);
/** BullMQ's ids: a number, or for a run of a recurring job `repeat:<schedule>:<ms since 1970>`. */
const SHAPE = /^(\d{1,20}|repeat:[^:]{1,256}:\d{1,20})$/;
/**
 * Keys of a queue, BullMQ's and ours, and of a bucket of the same name, that have no colon in their own part: a job's key in
 * Redis ends with its id as they do. A new key gets a colon, or is named here.
 */
const TAKEN = new Set(
  `active completed delayed events failed id limiter marker meta paused pc prioritized repeat stalled
  stalled-check wait waiting waiting-children state turns holes`.split(/\s+/),
);

/**
 * An id of the application's own.
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
    error: 'give it a letter too, such as "order-17": jobs without an id of their own have numbers',
    abort: true,
  })
  .refine((id) => !TAKEN.has(id), {
    error: "give another one, such as a longer one: a key of the queue in Redis has this name",
  });

/**
 * The id, or undefined if no job can have it: a job's key in Redis ends with its id, and an id such as `meta` would
 * name a key of the queue itself.
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
 * What JSON gives back of a value: the text of a `Date`, what `toJSON()` returns, no functions. The data of a job is of
 * this type, unless the queue has a schema, whose output it is then.
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

/** What JSON cannot hold is null in a list. */
type ItemFromJson<Item> = unknown extends Item
  ? Item
  : Item extends undefined | symbol | ((...args: never[]) => unknown)
    ? null
    : FromJson<Item>;
