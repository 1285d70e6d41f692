import { createJobContext, type OwnedJobContext } from "./handler.ts";
import { JobLostError } from "./job-errors.ts";

/** The jobs that a worker has in hand. */
export interface Running {
  readonly count: number;
  begin(jobId: string, attempt: number): OwnedJobContext;
  end(context: OwnedJobContext): void;
  /** Tells the handler of a job, or of all, that the job is no longer this worker's. */
  abort(why: string, jobId?: string): void;
  /** Resolves as soon as nothing is under way: true; or after `timeoutMs`: false. */
  untilNone(timeoutMs: number): Promise<boolean>;
}

export function createRunning(): Running {
  /** With the ids of their jobs. One that has lost its lock may be here twice. */
  const contexts = new Map<OwnedJobContext, string>();
  let onNone = (): void => {};

  return {
    get count() {
      return contexts.size;
    },
    begin(jobId, attempt) {
      const context = createJobContext(attempt);
      contexts.set(context, jobId);
      return context;
    },
    end(context) {
      contexts.delete(context);
      if (contexts.size === 0) onNone();
    },
    abort(why, only) {
      for (const [context, jobId] of contexts) {
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
