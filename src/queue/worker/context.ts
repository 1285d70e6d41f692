/** What a worker's parts share, the jobs that it has at hand, and what a handler gets beside its job. */
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
import type { WeightsOf } from "../lanes/weights.ts";
import type { Downstream } from "./held/downstream.ts";
import type { Discard, RetryAfter } from "./outcome.ts";

/** What the parts of one worker share. */
export interface WorkerContext<Data = unknown, Result = unknown> extends Omit<
  FetcherParts,
  "hear" | "least"
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
  readonly concurrency: number;
  readonly lockMs: number;
  readonly patienceMs: number;
  /** How long a handler may take, in ms; undefined is without end. */
  readonly timeoutMs?: number | undefined;
  /** Whether a response that a handler returns may fail its attempt. Defaults to true. */
  readonly failOnResponse?: boolean | undefined;
  /** The weights of a key's lane and of the heads of its path. */
  readonly weightsOf: WeightsOf;
  readonly running: Running;
}

/** What a handler gets beside its job. */
export interface JobContext {
  /**
   * Aborted with `HandlerTimeoutError` after the job's or the worker's `timeoutMs`; with `JobCancelledError` when the job is
   * cancelled; with `JobLostError` at the deadline of
   * `worker.close()`, or when the job's lock is lost: another worker may then run the job; with `LeaseLostError`
   * when the lease of its slot is.
   */
  readonly signal: AbortSignal;
  /** 1 at the first try. */
  readonly attempt: number;
  /** The slot of this attempt: `slot.settle({ tokens: 812 })` says what the call cost in the end. It is released when the handler ends. */
  readonly slot: Slot;
  /**
   * Stores a line with the job: the last 100 lines of a job are kept, and of each the first 1,000 characters.
   * Resolves when Redis has it, and never rejects: a line that cannot be written is lost.
   */
  readonly log: (line: string) => Promise<void>;
  /**
   * Stores how far the job is, as any value of up to 10,000 characters of JSON; the last one is kept.
   * Each is a write to Redis. Resolves when Redis has it, and never rejects.
   *
   * @throws {@link InvalidOptionError} at once, when the value is not JSON, or too long.
   */
  readonly progress: (value: number | string | boolean | object) => Promise<void>;
}

/** What a handler may return: its result, or what to do with its job instead. */
export type HandlerResult<Result> = Result | Discard | RetryAfter;

/** Does one job, at once or by a promise. If it throws, the attempt has failed. */
export type Handler<Data, Result = unknown> = (
  job: Job<Data>,
  context: JobContext,
) => HandlerResult<Result> | Promise<HandlerResult<Result>>;

/**
 * Handlers by the names of jobs: `{ charge: …, refund: … }`. `default` does the jobs of all other names, and those without
 * one; without it they fail at once and are kept as dead letters, with the reason `"No handler: …"`.
 */
export type Handlers<Data, Result = unknown> = Readonly<Record<string, Handler<Data, Result>>>;

/** What the handler of a batch gets beside its jobs. */
export interface BatchContext {
  /** Aborted once no job of the batch is to be gone on with: each was cancelled, is lost or has timed out. */
  readonly signal: AbortSignal;
  /** The slot of the batch. It is released when the handler ends. */
  readonly slot: Slot;
  /** What the handler of each single job would get, in the order of the jobs: its `signal`, `attempt`, `log`, `progress`. */
  readonly contexts: readonly JobContext[];
}

/**
 * What becomes of the jobs of a batch, in their order: results, and errors for those that have failed, {@link RetryAfter}
 * and {@link Discard} among them. Without it, all are done.
 */
export type BatchOutcomes<Result> = readonly (Result | Error)[] | undefined | void;

/** Does several jobs in one call, at once or by a promise. If it throws, the attempts of all of them have failed. */
export type BatchHandler<Data, Result = unknown> = (
  jobs: readonly Job<Data>[],
  context: BatchContext,
) => BatchOutcomes<Result> | Promise<BatchOutcomes<Result>>;

/** What `worker()` takes as the handler: a function, functions by name, or the file of one. */
export type HandlerInput<Data, Result> =
  | Handler<Data, Result>
  | Handlers<Data, Result>
  | string
  | URL;

/** A job that a worker has fetched: its context, and the wait for its slot. */
export interface OwnedJobContext extends JobContext, WaitRegistry {
  readonly jobId: string;
  /** The key under which it may be recalled. */
  readonly key: string | undefined;
  /** The token of its lock: a later fetch of the same job has a lock of its own. */
  readonly token: string;
  /** When the job was fetched, on `performance.now()`. */
  readonly sinceMs: number;
  readonly isAborted: boolean;
  /** Whether it is no longer this worker's job. */
  readonly isLost: boolean;
  /** Whether somebody has cancelled it. */
  readonly isCancelled: boolean;
  /** Whether it is not to begin here, for whatever reason. */
  readonly isLeaving: boolean;
  /** When Redis last confirmed the job's lock, on `performance.now()`. */
  lockedAtMs: number;
  /** True once the job is about to be given back, and its lock with it. */
  isGoingBack: boolean;
  hasBegun: boolean;
  /** Called when the attempt has its slot, just before its handler runs. */
  begin(stored: Stored<unknown>, slot: Slot): void;
  /** Ends the wait for its slot, if it waits. */
  leave(reason: unknown): void;
  /** Ends the wait for its slot, unless its handler runs: it goes back into the queue. */
  recall(): void;
  /** Ends the wait for its slot, or aborts its handler: somebody has cancelled it. */
  cancel(): void;
  abort(reason: unknown): void;
  /** Ends the wait for its slot, or aborts its handler: it is no longer this worker's job. */
  lose(why: string): void;
}

const RECALLED = "the job goes back into the queue";
const LONGEST_LINE = 1_000;
const LONGEST_PROGRESS = 10_000;

/** What is known of a job when it is fetched. */
export interface FetchedJob {
  readonly jobId: string;
  readonly key?: string | undefined;
  readonly token: string;
  readonly attempt: number;
  /** From when on its lock lasts, on `performance.now()`; the present by default. */
  readonly lockedAtMs?: number;
}

export function createJobContext(fetched: FetchedJob): OwnedJobContext {
  return new FetchedContext(fetched);
}

/** A class whose parts are made on first use: a signal for each job cost as much as all else about a job. */
class FetchedContext implements OwnedJobContext {
  readonly jobId: string;
  readonly key: string | undefined;
  readonly token: string;
  readonly attempt: number;
  readonly sinceMs: number = performance.now();
  lockedAtMs: number;
  hasBegun = false;
  isAborted = false;
  isLost = false;
  isCancelled = false;
  #isRecalled = false;
  isGoingBack = false;
  #reason: unknown;
  #controller: AbortController | undefined;
  #stored: Stored<unknown> | undefined;
  #slot: Slot | undefined;
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

  // Functions without `this`: handlers destructure their context.
  get log(): JobContext["log"] {
    const stored = this.#stored!;
    return (line) => written(stored.log(String(line).slice(0, LONGEST_LINE)));
  }

  get progress(): JobContext["progress"] {
    const stored = this.#stored!;
    return (value) => {
      assertProgress(value);
      return written(stored.updateProgress(value));
    };
  }

  begin(stored: Stored<unknown>, slot: Slot): void {
    this.#stored = stored;
    this.#slot = slot;
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

  lose(why: string): void {
    this.isLost = true;
    const reason = new JobLostError({ jobId: this.jobId, why });
    this.abort(reason);
    this.leave(reason);
  }
}

/** Handlers do not fail when a line or a progress cannot be written. */
async function written(writing: Promise<unknown>): Promise<void> {
  await writing.catch(() => undefined);
}

/** @throws {@link InvalidOptionError} when a value cannot be kept as a job's progress. */
export function assertProgress(value: unknown): void {
  let text: string | undefined;
  try {
    text = JSON.stringify(value) as string | undefined;
  } catch {
    // A cycle, a BigInt, or a toJSON that throws.
  }
  if (text !== undefined && text.length <= LONGEST_PROGRESS) return;
  const remedy = `give what JSON holds in up to ${LONGEST_PROGRESS} characters`;
  throw new InvalidOptionError({ where: "progress()", option: "value", value, remedy });
}

/** The jobs that a worker has fetched and not finished. */
export interface Running {
  readonly count: number;
  /** How many of them have not started yet. */
  readonly unbegun: number;
  /** Adds a job that was fetched. */
  add(fetched: FetchedJob): OwnedJobContext;
  /** Notes that a job has its slot. */
  started(context: OwnedJobContext): void;
  /** Removes a job that has ended, or goes back. */
  end(context: OwnedJobContext): void;
  /** Those that have not started yet, in the order in which they were fetched. */
  waiting(): Iterable<OwnedJobContext>;
  /** All of them, in the same order. */
  all(): Iterable<OwnedJobContext>;
  /** Ends their waits for slots. */
  leave(reason: string): void;
  /** Ends them all with {@link JobLostError}: others may run them. */
  lose(why: string): void;
  /** Resolves with true as soon as no job is left, or with false once the earliest deadline is over. */
  untilNone(): Promise<boolean>;
  /** Sets a deadline for that, in ms from now. */
  endWithin(ms: number): void;
}

export function createRunning(): Running {
  /** In the order in which they were fetched. A job that has lost its lock may be here twice. */
  const contexts = new Set<OwnedJobContext>();
  let unbegun = 0;
  let onNone = (): void => {};
  /** The earliest deadline, on `performance.now()`, and what watches it while somebody waits. */
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
    lose(why) {
      for (const context of contexts) context.lose(why);
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
