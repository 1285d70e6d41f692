import { createJobContext, type OwnedJobContext } from "./handler.ts";
import { JobLostError } from "./job-errors.ts";

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
