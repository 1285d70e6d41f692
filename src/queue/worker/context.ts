import { InvalidOptionError } from "../../core/errors.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { ListedWait, Waits } from "../../throttle/waiting/wait.ts";
import { JobLostError } from "../errors.ts";
import type { Job, Stored } from "../job.ts";
import type { Discard, RetryAfter } from "./outcome.ts";

/** What a handler gets beside its job. */
export interface JobContext {
  /**
   * Aborted with `HandlerTimeoutError` after the worker's `timeoutMs`; with `JobLostError` at the deadline of
   * `worker.close()`, or when the job's lock is lost: another worker may then run the job; with `LeaseLostError`
   * when the lease of its slot is.
   */
  readonly signal: AbortSignal;
  /** 1 at the first try. */
  readonly attempt: number;
  /** What this attempt left on: `slot.settle({ tokens: 812 })` tells what the call came to cost. It is released when the handler ends. */
  readonly slot: Slot;
  /**
   * Keeps a line with the job: the last 100 lines of a job, and of each the first 1,000 characters.
   * Resolves when Redis has it, and never rejects: what cannot be written is lost.
   */
  readonly log: (line: string) => Promise<void>;
  /**
   * Says how far the job is, as anything that JSON holds in up to 10,000 characters; the last one is kept.
   * Each is a write to Redis. Resolves when Redis has it, and never rejects.
   *
   * @throws {@link InvalidOptionError} at once, when the value is no JSON, or too long.
   */
  readonly progress: (value: number | string | boolean | object) => Promise<void>;
}

/** What a handler may return: what it came to, or what is to become of its job instead. */
export type HandlerResult<Result> = Result | Discard | RetryAfter;

/** Does one job, at once or by a promise; what it throws counts as a failed attempt. */
export type Handler<Data, Result = unknown> = (
  job: Job<Data>,
  context: JobContext,
) => HandlerResult<Result> | Promise<HandlerResult<Result>>;

/** A context, the wait for its slot, and the end of what it stands for. */
export interface OwnedJobContext extends JobContext, Waits {
  readonly jobId: string;
  /** When the job was fetched, on `performance.now()`. */
  readonly sinceMs: number;
  readonly isAborted: boolean;
  hasBegun: boolean;
  /** The attempt has its slot, and begins. */
  begin(stored: Stored<unknown>, slot: Slot): void;
  /** Ends the wait for its slot, if it waits. */
  leave(reason: unknown): void;
  abort(reason: unknown): void;
}

const LONGEST_LINE = 1_000;
const LONGEST_PROGRESS = 10_000;

export function createJobContext(jobId: string, attempt: number): OwnedJobContext {
  return new FetchedContext(jobId, attempt);
}

/** A class, and all made when it is asked for: to make a signal for each job cost as much as all else about it. */
class FetchedContext implements OwnedJobContext {
  readonly jobId: string;
  readonly attempt: number;
  readonly sinceMs: number = performance.now();
  hasBegun = false;
  isAborted = false;
  #reason: unknown;
  #controller: AbortController | undefined;
  #stored: Stored<unknown> | undefined;
  #slot: Slot | undefined;
  #wait: ListedWait | undefined;

  constructor(jobId: string, attempt: number) {
    this.jobId = jobId;
    this.attempt = attempt;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.isAborted) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  get slot(): Slot {
    return this.#slot!;
  }

  // Functions that need no `this`: handlers take their context apart.
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

  add(wait: ListedWait): void {
    this.#wait = wait;
  }

  delete(): void {
    this.#wait = undefined;
  }

  leave(reason: unknown): void {
    this.#wait?.leave(reason);
  }

  abort(reason: unknown): void {
    if (this.isAborted) return;
    this.isAborted = true;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }
}

/** Handlers need not wait for what is only there to be looked at, nor fail for it. */
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

/** The jobs that a worker has in hand. */
export interface Running {
  readonly count: number;
  /** How many of them have yet to begin. */
  readonly unbegun: number;
  /** A job was fetched. */
  add(jobId: string, attempt: number): OwnedJobContext;
  /** It has its slot. */
  started(context: OwnedJobContext): void;
  /** It has ended, or goes back. */
  end(context: OwnedJobContext): void;
  /** Those that have yet to begin, in the order in which they came. */
  waiting(): Iterable<OwnedJobContext>;
  /** Ends their waits for slots. */
  leave(reason: string): void;
  /** Tells the handler of a job, or of all, that the job is no longer this worker's. */
  abort(why: string, jobId?: string): void;
  /** Resolves as soon as nothing is under way: true; or after `timeoutMs`: false. */
  untilNone(timeoutMs: number): Promise<boolean>;
}

export function createRunning(): Running {
  /** In the order in which they came. A job that has lost its lock may be here twice. */
  const contexts = new Set<OwnedJobContext>();
  let unbegun = 0;
  let onNone = (): void => {};

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
    add(jobId, attempt) {
      const context = createJobContext(jobId, attempt);
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
    leave(reason) {
      for (const context of contexts) context.leave(reason);
    },
    abort(why, only) {
      for (const context of contexts) {
        const { jobId } = context;
        if (only === undefined || jobId === only) context.abort(new JobLostError({ jobId, why }));
      }
    },
    untilNone(timeoutMs) {
      if (contexts.size === 0) return Promise.resolve(true);
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), timeoutMs);
        onNone = () => {
          clearTimeout(timer);
          resolve(true);
        };
      });
    },
  };
}
