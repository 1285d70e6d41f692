import * as z from "zod";
import type { Payloads } from "../core/codec.ts";
import type { CodecError } from "../core/errors.ts";
import { isThenable } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { encodeKey, type Key } from "../core/key-path.ts";
import { NAME, type Priority } from "../core/input/options.ts";
import type { Cost } from "../throttle/costs.ts";

/** The state of a job. */
export type JobState = "waiting" | "active" | "delayed" | "done" | "failed";

export const JOB_STATES: readonly JobState[] = ["waiting", "active", "delayed", "done", "failed"];

/** Names a job of a queue. Each job that `enqueue` returns is one. */
export interface JobReference {
  /** The name of the queue: `"reports"`. */
  readonly queue: string;
  readonly id: string;
}

/** The parents that a job still waits for. */
export interface AwaitedParents {
  readonly count: number;
  /** The first of them, in order. */
  readonly first: readonly JobReference[];
}

/** The jobs directly before and after a job in its flow: their numbers, and the first 24 of each. */
export interface JobFlow {
  /** The parents that the job still waits for. */
  readonly awaited: AwaitedParents;
  /** The parents that have ended. */
  readonly ended: {
    readonly count: number;
    readonly first: readonly (JobReference & { readonly state: ParentState })[];
  };
  /**
   * The jobs that wait for this one. Empty once the job has ended. A dead letter keeps the children that a replay
   * resumes.
   */
  readonly children: { readonly count: number; readonly first: readonly JobReference[] };
}

/**
 * How a parent ended:
 *
 * - `"done"`: its handler succeeded.
 * - `"failed"`: it is a dead letter. A child sees this only with `onParentFailure: "run"`, or if it was replayed itself.
 * - `"cancelled"`: it was cancelled or removed.
 * - `"missing"`: it was no longer stored when the child was enqueued. Most likely, it was done.
 */
export type ParentState = "done" | "failed" | "cancelled" | "missing";

/** A queued job, as producers and handlers see it. */
export interface Job<Data> {
  readonly id: string;
  /** The kind of work: `"refund"`. Undefined if the job was enqueued without a name. */
  readonly name: string | undefined;
  /** The data of the job. Undefined if this process cannot decode it: `unreadable` says why. Handlers always get it. */
  readonly data: Data;
  /** The tenant, account or endpoint that the job is for: `"acme"`, or a path of names: `["acme", "endpoint-7"]`. */
  readonly key: Key | undefined;
  /** The cost of each attempt. Undefined means 1 call. */
  readonly cost: Cost | undefined;
  readonly priority: Priority;
  /** The time limit for each attempt, in ms. Undefined if the worker's `timeoutMs` applies. */
  readonly timeoutMs: number | undefined;
  /**
   * The `dedupeId` that was passed to `enqueue`. For a run of a recurring job, this is the name of its schedule.
   * Undefined without a `dedupeId`.
   */
  readonly dedupeId: string | undefined;
  /** How often the job is attempted at most: `20`. */
  readonly attempts: number;
  /**
   * How many attempts of the job have ended: 0 during the first attempt. Attempts that returned the job to the queue do
   * not count.
   */
  readonly attemptsMade: number;
  /** When the job was enqueued, in ms since 1970. This time and all times below come from the clock of Redis. */
  readonly enqueuedAtMs: number;
  /** When the first attempt may start, in ms since 1970: `enqueuedAtMs` plus the job's delay. */
  readonly dueAtMs: number;
  /** When a worker fetched the job for its latest attempt, in ms since 1970. Undefined before the first attempt. */
  readonly startedAtMs: number | undefined;
  /** When the job was done, or failed for the last time, in ms since 1970. Undefined before that. */
  readonly endedAtMs: number | undefined;
  /**
   * The deadline by which the first attempt must start, in ms since 1970. Undefined without a deadline, or after the
   * first attempt.
   */
  readonly startByMs: number | undefined;
  /** What the handler returned, as JSON. Undefined until the job is done, or if the handler returned nothing. */
  readonly result: unknown;
  /** Why this process cannot decode the job's data or result. Undefined if it can. */
  readonly unreadable?: CodecError | undefined;
}

/**
 * Returns the job with its payloads decoded. A payload that cannot be decoded is undefined, and `unreadable` says why:
 * otherwise one such job would hide the others of a list. Returns a promise only if there is something to decode.
 */
export function decodeJob<Readable extends Pick<Job<unknown>, "id" | "data" | "result">>(
  payloads: Pick<Payloads, "decode">,
  job: Readable,
): Readable | Promise<Readable> {
  const data = payloads.decode(job.data, { kind: "data", id: job.id });
  const result = payloads.decode(job.result, { kind: "result", id: job.id });
  if (data === job.data && result === job.result) return job;
  return Promise.allSettled([data, result]).then((decoded) => {
    const [ofData, ofResult] = decoded.map((each) =>
      each.status === "fulfilled" ? each.value : undefined,
    );
    const failed = decoded.find((each) => each.status === "rejected");
    const unreadable = failed && { unreadable: failed.reason as CodecError };
    return Object.assign(job, { data: ofData, result: ofResult }, unreadable);
  });
}

/** How many payloads are encoded or decoded at once, because a codec may open a file or a connection for each. */
const AT_ONCE = 100;

/** Maps items with an asynchronous function, a bounded number of them at once. Keeps their order. */
export async function mapInTurns<Item, Mapped>(
  items: readonly Item[],
  map: (item: Item, index: number) => Mapped | Promise<Mapped>,
): Promise<Mapped[]> {
  const mapped: Mapped[] = [];
  for (let first = 0; first < items.length; first += AT_ONCE) {
    const some = items.slice(first, first + AT_ONCE).map((item, at) => map(item, first + at));
    // Avoids promises where nothing is encoded, which is the usual case.
    const settled = some.some(isThenable) ? await Promise.all(some) : (some as Mapped[]);
    mapped.push(...settled);
  }
  return mapped;
}

/** Returns a job's key as text. */
export function keyTextOf({ key }: Pick<Job<unknown>, "key">): string | undefined {
  return key === undefined ? undefined : encodeKey(key);
}

const REMEDY = "give the id of a job";
const JOB_ID = z.string().min(1).max(1_000);
/** The job ids that BullMQ generates: a number, or `repeat:<schedule>:<ms since 1970>` for a run of a recurring job. */
const SHAPE = /^(\d{1,20}|repeat:[^:]{1,256}:\d{1,20})$/;
/**
 * Ids that a job must not have. The Redis key of a job ends with its id. With such an id, that key would be a key of
 * the queue (BullMQ's or ours), or of a bucket with the same name. When you add a key, put a colon into its own part,
 * or list it here.
 */
const TAKEN = new Set(
  `active completed delayed events failed id limiter marker meta paused pc prioritized repeat stalled
  stalled-check wait waiting waiting-children state turns holes`.split(/\s+/),
);

/**
 * A job id that the application chooses.
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
 * Returns the id, or undefined if no job can have this id. The Redis key of a job ends with its id, so an id such as
 * `meta` would name a key of the queue itself.
 *
 * @throws {@link InvalidOptionError} when the id is not a string of 1 to 1,000 characters.
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
 * Names of jobs, as an option. Other fields, such as those of a job from `enqueue`, are left out.
 *
 * @internal
 */
export const JOB_REFERENCE: z.ZodType<JobReference> = z
  .custom<JobReference>((given: unknown) => {
    if (typeof given !== "object" || given === null) return false;
    const { queue, id } = given as Partial<JobReference>;
    if (!NAME.safeParse(queue).success || typeof id !== "string") return false;
    return SHAPE.test(id) || OWN_ID.safeParse(id).success;
  }, 'give a job from enqueue(), or { queue: "reports", id: "17" }')
  .transform(({ queue, id }) => ({ queue, id }));

/**
 * The type of a value after it was stored as JSON: a `Date` becomes text, `toJSON()` is applied, and functions are
 * dropped. Without a schema, the data of a job has this type. With a schema, the data has the type of the schema's
 * output.
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

/**
 * The type of a list item after it was stored as JSON, which replaces functions, symbols and undefined in a list with
 * null.
 */
type ItemFromJson<Item> = unknown extends Item
  ? Item
  : Item extends undefined | symbol | ((...args: never[]) => unknown)
    ? null
    : FromJson<Item>;
