import type { Job } from "./job.ts";

/** What a handler gets beside its job. */
export interface JobContext {
  /** Aborted when the worker's deadline is over or the job's lock is lost: another worker may then run the job. */
  readonly signal: AbortSignal;
  /** 1 at the first try. */
  readonly attempt: number;
}

/** Does one job; what it throws counts as a failed attempt. */
export type Handler<Data, Result> = (job: Job<Data>, context: JobContext) => Promise<Result>;

/** A context, and the end of what it stands for. */
export interface OwnedJobContext extends JobContext {
  readonly isAborted: boolean;
  abort(reason: string): void;
}

/** Makes the signal when it is asked for: to make one for each job cost as much as all else about it. */
export function createJobContext(attempt: number): OwnedJobContext {
  let controller: AbortController | undefined;
  let abortedBy: string | undefined;

  return {
    attempt,
    get signal() {
      controller ??= new AbortController();
      if (abortedBy !== undefined) controller.abort(abortedBy);
      return controller.signal;
    },
    get isAborted() {
      return abortedBy !== undefined;
    },
    abort(reason) {
      abortedBy ??= reason;
      controller?.abort(reason);
    },
  };
}
