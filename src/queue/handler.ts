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
