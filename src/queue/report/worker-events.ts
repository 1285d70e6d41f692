import { createEmitter, type Emitter, type OwnedEmitter } from "../../core/events/events.ts";
import type { Logger } from "../../core/logger.ts";
import type { Job } from "../job.ts";

/** A job and its attempt. */
interface AttemptFacts<Data> {
  readonly job: Job<Data>;
  /** 1 at the first try. */
  readonly attempt: number;
  /** How often the job is tried at most: `20`. */
  readonly attempts: number;
}

/** What a worker's own jobs come to. A queue's events are those of all workers. */
export interface WorkerEvents<Data = unknown, Result = unknown> {
  /** A handler starts. */
  readonly active: AttemptFacts<Data>;
  /** A job is done. `result` is what its handler returned. */
  readonly done: AttemptFacts<Data> & { readonly result: Result | undefined };
  /**
   * An attempt has failed: the last one too, which `dead` follows. `error` is what the handler threw. `retryInMs` is
   * after how many ms the job is tried again, `2100`; undefined after the last attempt.
   */
  readonly failed: AttemptFacts<Data> & {
    readonly error: Error;
    readonly retryInMs: number | undefined;
    /** Whether it counts as an attempt; false while the downstream is away. */
    readonly counts: boolean;
  };
  /** A job is a dead letter now. */
  readonly dead: AttemptFacts<Data> & { readonly error: Error; readonly reason: string };
  /** Something went wrong that belongs to no handler, such as an outage of Redis. */
  readonly error: { readonly error: Error };
  /** The lock of a job has ended, of this worker or of another that has died or hangs: the job waits again. */
  readonly stalled: { readonly jobId: string };
  /** The worker has been closed: none of its handlers runs any more. */
  readonly closed: Readonly<Record<never, never>>;
}

const NAMES = ["active", "done", "failed", "dead", "error", "stalled", "closed"] as const;

/** Tells what happens to a worker's jobs. */
export interface WorkerEmitter<Data, Result> extends Emitter<WorkerEvents<Data, Result>> {
  /**
   * Calls a listener on each event of this kind of this worker's own. Errors of listeners go to the logger and change
   * nothing. Returns a function that removes the listener.
   *
   * @throws {@link InvalidOptionError} when there is no such event, or the listener is no function.
   */
  on: Emitter<WorkerEvents<Data, Result>>["on"];
}

export function createWorkerEmitter<Data, Result>(
  queue: string,
  logger: Logger,
): OwnedEmitter<WorkerEvents<Data, Result>> {
  return createEmitter<WorkerEvents<Data, Result>>(`a worker of queue "${queue}"`, NAMES, logger);
}
