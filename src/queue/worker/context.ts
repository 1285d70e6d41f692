/**
 * The state that the parts of a worker share, the jobs that the worker holds, and the context that a handler gets with
 * each job.
 */
import type { Payloads } from "../../core/codec.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { RedisClock } from "../../stores/redis/queue/clock.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { CancellableWait, WaitRegistry } from "../../throttle/waiting/wait.ts";
import type { QueueConnection } from "../bullmq/connection.ts";
import type { Stored } from "../bullmq/stored-job.ts";
import type { Schema } from "../enqueue/data.ts";
import { JobCancelledError, JobLostError } from "../errors.ts";
import type { Job } from "../job.ts";
import type { FetcherParts } from "../lanes/fetcher.ts";
import type { ParentOutcome } from "../manage/flows.ts";
import type { WeightsOf } from "../lanes/lane-options.ts";
import type { Downstream } from "./held/downstream.ts";
import type { Discard, RetryAfter } from "./outcome.ts";

/** The settings and state that the parts of one worker share. */
export interface WorkerContext<Data = unknown, Result = unknown> extends Omit<
  FetcherParts,
  "applyOrders" | "least" | "onFlows"
> {
  readonly lanes: LaneStore;
  readonly bucket: OwnedBucket;
  readonly connection: QueueConnection;
  /** The clock of the server that holds the queue. */
  readonly clock: RedisClock;
  readonly downstream: Downstream;
  readonly prefix: string;
  readonly handler: Handler<Data, Result>;
  readonly schema?: Schema<Data> | undefined;
  readonly payloads: Payloads;
  readonly concurrency: number;
  readonly lockMs: number;
  readonly patienceMs: number;
  /** How long a handler may run, in ms. Undefined for no limit. */
  readonly timeoutMs?: number | undefined;
  /** Whether an error response that a handler returns fails the attempt. Defaults to true. */
  readonly failOnResponse?: boolean | undefined;
  /** The weights of a key's lane and of its parent keys. */
  readonly weightsOf: WeightsOf;
  readonly running: Running;
}

/** The second argument of a handler, beside its job. */
export interface JobContext {
  /**
   * A signal that is aborted when the handler should stop. The reason of the signal says why:
   *
   * - `HandlerTimeoutError` after the job's or the worker's `timeoutMs`
   * - `JobCancelledError` when the job is cancelled
   * - `JobLostError` at the deadline of `worker.close()`, or when the job's lock is lost, so that another worker may
   *   run it
   * - `LeaseLostError` when the lease of its slot is lost
   */
  readonly signal: AbortSignal;
  /** The number of this attempt: 1 for the first. */
  readonly attempt: number;
  /**
   * The slot of this attempt. Call `slot.settle({ tokens: 812 })` to report the actual cost. The slot is released when
   * the handler ends.
   */
  readonly slot: Slot;
  /**
   * Stores a log line with the job. Redis keeps the last 100 lines of a job, and the first 1,000 characters of each
   * line. Resolves when Redis has the line. Never rejects: a line that cannot be written is lost.
   */
  readonly log: (line: string) => Promise<void>;
  /**
   * Stores the job's progress: any value whose JSON has up to 10,000 characters. Only the latest value is kept. Each
   * call writes to Redis. Resolves when Redis has the value. Never rejects: a value that cannot be encoded or written
   * is lost.
   *
   * @throws {@link InvalidOptionError} at once, when the value is not JSON, or too long.
   */
  readonly progress: (value: number | string | boolean | object) => Promise<void>;
  /**
   * Reads how the job's parents ended, in the order of `after`, or of the group's jobs. Reads them all with each call:
   * a request to Redis. Empty for a job without parents.
   *
   * @throws {@link CodecError} when this process cannot decode a result, because it has not opened the parent's queue
   * with its codec.
   */
  readonly parents: () => Promise<readonly ParentOutcome[]>;
}

/** The return value of a handler: the job's result, or an instruction to retry or discard the job. */
export type HandlerResult<Result> = Result | Discard | RetryAfter;

/** Runs one job, and returns the result or a promise. If the handler throws or rejects, the attempt has failed. */
export type Handler<Data, Result = unknown> = (
  job: Job<Data>,
  context: JobContext,
) => HandlerResult<Result> | Promise<HandlerResult<Result>>;

/**
 * One handler for each job name: `{ charge: …, refund: … }`. The `default` handler runs jobs with any other name, and
 * jobs without a name. Without a `default` handler, these jobs fail at once and become dead letters with the reason
 * `"No handler: …"`.
 */
export type Handlers<Data, Result = unknown> = Readonly<Record<string, Handler<Data, Result>>>;

/** The second argument of a batch handler, beside its jobs. */
export interface BatchContext {
  /** A signal that is aborted once every job of the batch was cancelled, was lost or has timed out. */
  readonly signal: AbortSignal;
  /** The slot of the batch. It is released when the handler ends. */
  readonly slot: Slot;
  /** The context of each job, in the order of the jobs: its own `signal`, `attempt`, `log` and `progress`. */
  readonly contexts: readonly JobContext[];
}

/**
 * One outcome for each job of a batch, in the order of the jobs. An outcome is a result, or an error for a failed job.
 * The error may be a {@link RetryAfter} or a {@link Discard}. If the handler returns nothing, all jobs are done.
 */
export type BatchOutcomes<Result> = readonly (Result | Error)[] | undefined | void;

/**
 * Runs several jobs in one call, and returns the outcomes or a promise. If the handler throws or rejects, the attempts
 * of all its jobs have failed.
 */
export type BatchHandler<Data, Result = unknown> = (
  jobs: readonly Job<Data>[],
  context: BatchContext,
) => BatchOutcomes<Result> | Promise<BatchOutcomes<Result>>;

/**
 * What `worker()` accepts as a handler: a function, one function for each job name, or the path or URL of a file with a
 * handler.
 */
export type HandlerInput<Data, Result> =
  | Handler<Data, Result>
  | Handlers<Data, Result>
  | string
  | URL;

/** @deprecated Use `HandlerInput`. */
export type GivenHandler<Data, Result> = HandlerInput<Data, Result>;

/** The context of a job that a worker has fetched, with the wait for the job's slot. */
export interface OwnedJobContext extends JobContext, WaitRegistry {
  readonly jobId: string;
  /** The job's encoded key. A pause of this key sends the job back to the queue. */
  readonly key: string | undefined;
  /** The token of the job's lock. A later fetch of the same job gets another token. */
  readonly token: string;
  /** When the job was fetched, on `performance.now()`. */
  readonly sinceMs: number;
  readonly isAborted: boolean;
  /** True if another worker may have the job. */
  readonly isLost: boolean;
  readonly isCancelled: boolean;
  /** True if the job must not begin in this worker, for any reason. */
  readonly isLeaving: boolean;
  /** When Redis last confirmed the job's lock, on `performance.now()`. */
  lockedAtMs: number;
  /** True once the worker is about to return the job to the queue, which releases the job's lock. */
  isGoingBack: boolean;
  hasBegun: boolean;
  /** How long this attempt may take, in ms: the `timeoutMs` of the job or of the worker. Undefined without a limit. */
  limitMs: number | undefined;
  /** Reads the outcomes of the job's parents. Undefined for a job without parents. */
  readParents: (() => Promise<readonly ParentOutcome[]>) | undefined;
  /** Sets what the handler's context uses. Called when the attempt has its slot, just before its handler runs. */
  begin(stored: Stored<unknown>, slot: Slot | undefined, payloads: Payloads): void;
  /** Ends the wait for a slot, if there is one. */
  leave(reason: unknown): void;
  /** Sends the job back to the queue by ending its wait for a slot. Does nothing once its handler runs. */
  recall(): void;
  /** Cancels the job: ends the wait for its slot, or aborts its handler. */
  cancel(): void;
  abort(reason: unknown): void;
  /** Gives up the job because another worker may have it: ends the wait for the job's slot, or aborts its handler. */
  lose(reason: string): void;
}

const RECALLED = "the job goes back into the queue";
const LONGEST_LINE = 1_000;
const LONGEST_PROGRESS = 10_000;
const PROGRESS_VALUE = { where: "progress()", option: "value" };

/** A job that a worker has just fetched, with its lock and the number of its attempt. */
export interface FetchedJob {
  readonly jobId: string;
  readonly key?: string | undefined;
  readonly token: string;
  readonly attempt: number;
  /** When the job's lock began, on `performance.now()`. Defaults to now. */
  readonly lockedAtMs?: number;
}

export function createJobContext(fetched: FetchedJob): OwnedJobContext {
  return new FetchedContext(fetched);
}

/**
 * Creates the abort signal, `log` and `progress` on first use. An abort signal for every job would take as much time as
 * the rest of the job's handling.
 */
class FetchedContext implements OwnedJobContext {
  readonly jobId: string;
  readonly key: string | undefined;
  readonly token: string;
  readonly attempt: number;
  readonly sinceMs: number = performance.now();
  lockedAtMs: number;
  hasBegun = false;
  limitMs: number | undefined;
  readParents: OwnedJobContext["readParents"];
  isAborted = false;
  isLost = false;
  isCancelled = false;
  #isRecalled = false;
  isGoingBack = false;
  #reason: unknown;
  #controller: AbortController | undefined;
  #stored: Stored<unknown> | undefined;
  #slot: Slot | undefined;
  #payloads: Payloads | undefined;
  /** The latest write of encoded progress. The next write follows it, so that the latest value is kept. */
  #writing: Promise<void> | undefined;
  #wait: CancellableWait | undefined;

  constructor({ jobId, key, token, attempt, lockedAtMs }: FetchedJob) {
    this.lockedAtMs = lockedAtMs ?? this.sinceMs;
    this.jobId = jobId;
    this.key = key;
    this.token = token;
    this.attempt = attempt;
  }

  get isLeaving(): boolean {
    return this.isLost || this.isCancelled || this.#isRecalled;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.isAborted) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  get slot(): Slot {
    return this.#slot!;
  }

  // Returns functions that do not use `this`, because handlers destructure their context.
  get log(): JobContext["log"] {
    const stored = this.#stored!;
    return (line) => written(stored.log(String(line).slice(0, LONGEST_LINE)));
  }

  get progress(): JobContext["progress"] {
    const stored = this.#stored!;
    return (value) => {
      const json = assertProgress(value);
      const about = { kind: "progress", id: this.jobId, dueInMs: 0, isShared: false } as const;
      const encoding = this.#payloads?.encode(json, about);
      if (encoding === undefined) return written(stored.updateProgress(value));
      // `value` may change before it is stored, so the JSON is what counts.
      const encoded = encoding.then((envelope) => envelope ?? (JSON.parse(json) as object));
      const write = async () => stored.updateProgress(await encoded);
      this.#writing = written(Promise.allSettled([encoded, this.#writing]).then(write));
      return this.#writing;
    };
  }

  get parents(): JobContext["parents"] {
    const { readParents } = this;
    return async () => (await readParents?.()) ?? [];
  }

  begin(stored: Stored<unknown>, slot: Slot | undefined, payloads: Payloads): void {
    this.#stored = stored;
    this.#slot = slot;
    this.#payloads = payloads;
  }

  add(wait: CancellableWait): void {
    this.#wait = wait;
  }

  delete(): void {
    this.#wait = undefined;
  }

  leave(reason: unknown): void {
    this.#wait?.cancel(reason);
  }

  recall(): void {
    if (this.#stored !== undefined) return;
    this.#isRecalled = true;
    this.leave(RECALLED);
  }

  cancel(): void {
    if (this.isLost || this.isCancelled) return;
    this.isCancelled = true;
    const reason = new JobCancelledError(this.jobId);
    this.abort(reason);
    this.leave(reason);
  }

  abort(reason: unknown): void {
    if (this.isAborted) return;
    this.isAborted = true;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }

  lose(reason: string): void {
    this.isLost = true;
    const error = new JobLostError({ jobId: this.jobId, reason });
    this.abort(error);
    this.leave(error);
  }
}

/**
 * Waits for a write, and resolves even if the write fails. A handler must not fail because a log line or its progress
 * cannot be written.
 */
async function written(writing: Promise<unknown>): Promise<void> {
  await writing.catch(() => undefined);
}

/**
 * Checks a value for `progress()`, and returns it as JSON. `named` says how an error names the value.
 *
 * @throws {@link InvalidOptionError} when the value cannot be stored as progress.
 */
export function assertProgress(
  value: unknown,
  named: { readonly where: string; readonly option: string } = PROGRESS_VALUE,
): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value) as string | undefined;
  } catch {
    // The value has no JSON: it has a cycle, a BigInt, or a `toJSON` that throws.
  }
  if (text !== undefined && text.length <= LONGEST_PROGRESS) return text;
  const remedy = `give what JSON holds in up to ${LONGEST_PROGRESS} characters`;
  throw new InvalidOptionError({ ...named, value, remedy });
}

/** The set of jobs that a worker has fetched and not finished. */
export interface Running {
  readonly count: number;
  /** The number of fetched jobs that have not started yet. */
  readonly unbegun: number;
  /** Adds a fetched job. */
  add(fetched: FetchedJob): OwnedJobContext;
  /** Records that a job has its slot. */
  started(context: OwnedJobContext): void;
  /** Removes a job that has ended, or goes back to the queue. */
  end(context: OwnedJobContext): void;
  /** The jobs that have not started yet, in the order in which they were fetched. */
  waiting(): Iterable<OwnedJobContext>;
  /** All jobs, in the order in which they were fetched. */
  all(): Iterable<OwnedJobContext>;
  /** Ends the waits of all jobs for their slots. */
  leave(reason: string): void;
  /** Ends all jobs with {@link JobLostError}, because other workers may run them. */
  lose(reason: string): void;
  /** Resolves with true as soon as no job is left, or with false after the earliest deadline. */
  untilNone(): Promise<boolean>;
  /** Sets a deadline for `untilNone()`, in ms from now. */
  endWithin(ms: number): void;
}

export function createRunning(): Running {
  /**
   * The fetched jobs, in the order in which they were fetched. A job that lost its lock and was fetched again appears
   * twice.
   */
  const contexts = new Set<OwnedJobContext>();
  let unbegun = 0;
  let onNone = (): void => {};
  /**
   * The earliest deadline of `untilNone()`, on `performance.now()`, and the function that restarts the deadline's
   * timer.
   */
  let deadlineMs = Infinity;
  let watchDeadline = (): void => {};

  function started(context: OwnedJobContext): void {
    if (context.hasBegun) return;
    context.hasBegun = true;
    unbegun -= 1;
  }

  return {
    get count() {
      return contexts.size;
    },
    get unbegun() {
      return unbegun;
    },
    add(fetched) {
      const context = createJobContext(fetched);
      contexts.add(context);
      unbegun += 1;
      return context;
    },
    started,
    end(context) {
      started(context);
      contexts.delete(context);
      if (contexts.size === 0) onNone();
    },
    *waiting() {
      for (const context of contexts) if (!context.hasBegun) yield context;
    },
    all: () => contexts,
    leave(reason) {
      for (const context of contexts) context.leave(reason);
    },
    lose(reason) {
      for (const context of contexts) context.lose(reason);
    },
    untilNone() {
      if (contexts.size === 0) return Promise.resolve(true);
      return new Promise((resolve) => {
        let timer: NodeJS.Timeout | undefined;
        const settle = (haveAllEnded: boolean): void => {
          watchDeadline = () => {};
          clearTimeout(timer);
          resolve(haveAllEnded);
        };
        onNone = () => settle(true);
        watchDeadline = () => {
          clearTimeout(timer);
          const leftMs = Math.min(deadlineMs - performance.now(), LONGEST_MS);
          timer = setTimeout(() => settle(false), leftMs);
        };
        watchDeadline();
      });
    },
    endWithin(ms) {
      deadlineMs = Math.min(deadlineMs, performance.now() + ms);
      watchDeadline();
    },
  };
}
